"""Answers at single tokens: a probe's sequences, the shared encoder, and one linear map of each token."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torchmetrics import MetricCollection

from sliceformer_lab.batch import NO_CLASS, Batch
from sliceformer_lab.config.option_types import Positive
from sliceformer_lab.data.base import DataModule
from sliceformer_lab.data.probes.probe_data import ProbeData
from sliceformer_lab.encoder.embed import TokenEmbedding
from sliceformer_lab.encoder.factory import build_encoder
from sliceformer_lab.encoder.linear_init import initialise_head
from sliceformer_lab.tasks.base import DataSizes, ModelConfig, Task
from sliceformer_lab.tasks.metrics import MeanOfValues


class AnswerAccuracy(MeanOfValues):
    """Share of right answers at the asked tokens. Predicted (B, N) int64, targets (B, N) -> scalar."""

    summed_as = torch.long

    def update(self, predicted: Tensor, target: Tensor) -> None:
        self.add(is_right(predicted, target)[target != NO_CLASS])


class TokenAnswers(Task):
    """Answers from any attention. Ids (B, N) or (B, N, 2), or numbers (B, N, 1) -> logits (B, N, classes) or (B, N, 1).

    Two ids in a token are embedded apart and added. Without classes the answers are numbers, the ascending order
    statistics: the loss is the squared error, and an answer is right if no other order statistic is nearer. There is no
    pooling, so that what another token holds must be carried to the asked one by the attention.
    """

    kept_type = torch.int16

    def __init__(self, model: ModelConfig, data: DataSizes, *, embed_std: Positive = 0.5) -> None:
        super().__init__(model, data)
        spec, nodes = self.data_spec, self.nodes
        if spec.max_len is None or spec.targets != "answers":
            raise ValueError(f"{spec.name} asks nothing at single tokens; choose another task for it")
        self.embedding = TokenEmbedding(spec.vocab_size, spec.channels, self.dim, std=embed_std, padded=False)
        self.encoder = build_encoder(nodes.encoder, nodes.block, nodes.attention, spec.max_len)
        self.head = nn.Linear(self.dim, spec.num_classes or 1)
        initialise_head(self.head, self.encoder.options)

    def build_metrics(self) -> MetricCollection:
        return MetricCollection({"accuracy": AnswerAccuracy()}, compute_groups=False)

    def forward(self, batch: Batch) -> Tensor:
        """Ids (B, N) or (B, N, 2), or numbers (B, N, 1) -> logits (B, N, classes) or numbers (B, N, 1)."""
        inputs = batch.inputs
        if self.data_spec.vocab_size and inputs.ndim == 3:
            tokens = self.embedding(inputs.flatten(1)).unflatten(1, inputs.shape[1:]).sum(2)
        else:
            tokens = self.embedding(inputs)
        logits: Tensor = self.head(self.encoder(tokens))
        return logits

    def loss(self, output: Tensor, target: Tensor) -> Tensor:
        """Cross-entropy or squared error, the mean over the asked tokens."""
        if self.data_spec.num_classes:
            return functional.cross_entropy(output.flatten(0, 1), target.flatten(), ignore_index=NO_CLASS)
        return functional.mse_loss(output[..., 0], target)

    def kept(self, output: Tensor, batch: Batch) -> Tensor:
        """The answer of each token (B, N): its class, or the rank of the order statistic that is nearest to it."""
        if self.data_spec.num_classes:
            return output.argmax(2)
        return (output - batch.target[:, None, :]).abs().argmin(2)

    def chance(self, targets: Tensor) -> float:
        """The best accuracy from the asked token and its position."""
        return float(self.data_spec.chance or 0.0)

    def more_results(self, data: DataModule, predictions: Mapping[str, Mapping[str, Tensor]]) -> dict[str, Any]:
        """The bag level, test accuracy by position, distance or answer, and that at other lengths."""
        found: dict[str, Any] = {"bag_level": self.data_spec.bag_level}
        if not isinstance(data, ProbeData) or "test" not in predictions:
            return found
        name, groups = data.test_groups()
        ids, targets, answers = (predictions["test"][part] for part in ("ids", "targets", "logits"))
        right, asked = is_right(answers.long(), targets).numpy(), (targets != NO_CLASS).numpy()
        of = groups[ids.numpy()]
        listed = {str(group): float(right[asked & (of == group)].mean()) for group in np.unique(of[asked]).tolist()}
        found["accuracy_by"] = {"group": name, "values": listed}
        if data.test_lengths:
            found["accuracy_at_length"] = {str(n): self._accuracy_at(data, n) for n in data.test_lengths}
        return found

    @torch.no_grad()
    def _accuracy_at(self, data: ProbeData, length: int) -> float:
        self.eval()
        metric, split = AnswerAccuracy(), data.at_length(length)
        metric.distributed_available_fn = bool  # False: only the first process computes this
        for rows in torch.split(torch.arange(len(split)), data.eval_batch_size):
            batch = split.batch(rows.tolist())
            metric.update(self.predicted(batch.to(self.device)).long().cpu(), batch.target)
        return float(metric.compute())


def is_right(predicted: Tensor, target: Tensor) -> Tensor:
    """Which answers (B, N) are right: those equal to their class, or for numbers those whose rank is their position."""
    if target.is_floating_point():
        return predicted == torch.arange(target.shape[1], device=target.device)
    return predicted == target
