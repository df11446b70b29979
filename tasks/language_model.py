"""Next-token prediction with an encoder whose tokens see no later one."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional
from torchmetrics import MetricCollection

from sliceformer_lab.batch import Batch
from sliceformer_lab.config.option_types import Fraction, Positive
from sliceformer_lab.data.base import DataModule
from sliceformer_lab.data.sequences.characters import TextWindows
from sliceformer_lab.encoder.embed import TokenEmbedding
from sliceformer_lab.encoder.factory import build_encoder
from sliceformer_lab.encoder.linear_init import initialise_head
from sliceformer_lab.measures.ngram import ngram_bits
from sliceformer_lab.tasks.base import DataSizes, ModelConfig, Task
from sliceformer_lab.tasks.metrics import MeanBits
from sliceformer_lab.training.results.predicted import TableRow
from sliceformer_lab.training.results.references import scores_of

MAX_NGRAM_TOKENS = 7


class LanguageModel(Task):
    """A causal encoder of any attention that can be causal. Ids (B, N) -> logits (B, N, V) of each next token.

    Predictions are saved as the bits of each token, -log2 of its probability, (n, N).
    """

    monitor = "bits_per_token"
    monitor_mode = "min"
    causal = True
    kept_type = torch.float32

    def __init__(
        self,
        model: ModelConfig,
        data: DataSizes,
        *,
        embed_std: Positive = 0.02,
        label_smoothing: Fraction = 0.0,
    ) -> None:
        super().__init__(model, data)
        spec, nodes = self.data_spec, self.nodes
        if spec.max_len is None or spec.targets != "next tokens":
            raise ValueError(f"{spec.name} has no next tokens to predict; choose another task for it")
        self.embedding = TokenEmbedding(spec.vocab_size, 0, self.dim, std=embed_std, padded=False)
        self.encoder = build_encoder(nodes.encoder, nodes.block, nodes.attention, spec.max_len, causal=True)
        self.head = nn.Linear(self.dim, spec.num_classes)
        initialise_head(self.head, self.encoder.options)
        self.label_smoothing = label_smoothing

    def build_metrics(self) -> MetricCollection:
        """Bits per token, and perplexity, which is 2 to their power."""
        return MetricCollection({"bits_per_token": MeanBits(), "perplexity": MeanBits(power=True)})

    def forward(self, batch: Batch) -> Tensor:
        """Ids (B, N) -> logits (B, N, V)."""
        return self.head(self.encoder(self.embedding(batch.inputs), batch.padding))

    def kept(self, output: Tensor, batch: Batch) -> Tensor:
        """The bits of each target (B, N)."""
        nats = functional.cross_entropy(output.float().transpose(1, 2), batch.target, reduction="none")
        return nats / math.log(2)

    def loss(self, output: Tensor, target: Tensor) -> Tensor:
        """Cross-entropy over all tokens, with label smoothing."""
        return functional.cross_entropy(output.transpose(1, 2), target, label_smoothing=self.label_smoothing)

    def evaluation_loss(self, output: Tensor, target: Tensor) -> Tensor:
        """Cross-entropy without smoothing, in nats."""
        return functional.cross_entropy(output.transpose(1, 2), target)

    def chance(self, targets: Tensor) -> float:
        """Bits per token of the frequencies of the targets themselves, which no constant prediction surpasses."""
        share = targets.flatten().bincount().double() / targets.numel()
        return float(-torch.special.xlogy(share, share).sum() / math.log(2))

    def more_references(self, data: DataModule, predictions: Mapping[str, Mapping[str, Tensor]]) -> list[TableRow]:
        """Rows of the tokens' frequencies, of bigrams, and of the n-grams with the best validation score."""
        train = data.splits["train"]
        if not isinstance(train, TextWindows):
            return []
        started = time.monotonic()
        bits: dict[str, list[Tensor]] = {}
        for split, parts in predictions.items():
            batch = data.splits[split].batch(parts["ids"].tolist())  # type: ignore[index]
            windows = torch.cat([batch.inputs[:, :1], batch.target], dim=1).numpy()
            found = ngram_bits(train.seen, windows, self.data_spec.vocab_size, MAX_NGRAM_TOKENS)
            bits[split] = [torch.from_numpy(each) for each in found]
        seconds = round(time.monotonic() - started, 2)
        means = [float(each.mean()) for each in bits["val" if "val" in bits else "test"]]
        best = means.index(min(means))
        names = {0: "token frequencies", 1: "bigrams", best: f"n-grams of {best + 1} tokens"}
        rows: list[TableRow] = []
        for place, name in names.items():
            if place < len(means):
                metrics: dict[str, float] = {}
                for split, each in bits.items():
                    metrics |= scores_of(self, split, each[place], predictions[split]["targets"])
                rows.append({"name": name, "metrics": metrics, "seconds": seconds, "num_train": len(train.seen)})
        return rows
