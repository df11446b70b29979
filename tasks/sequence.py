"""A class, numbers or labels of a sequence: token ids or numbers, encoder, pooling and head."""

from __future__ import annotations

from typing import Literal

from torch import Tensor, nn

from sliceformer_lab.attention.dropout import Dropout
from sliceformer_lab.batch import Batch, Padding
from sliceformer_lab.config.option_types import Count, Fraction, Positive
from sliceformer_lab.encoder.embed import TokenEmbedding
from sliceformer_lab.encoder.factory import build_encoder
from sliceformer_lab.encoder.hidden import Hidden
from sliceformer_lab.encoder.linear_init import initialise_head
from sliceformer_lab.encoder.pool import Pool, PoolMode
from sliceformer_lab.tasks.base import DataSizes, ModelConfig
from sliceformer_lab.tasks.masked import Maskable, Units
from sliceformer_lab.tasks.target_task import ClassWeights, TargetTask
from sliceformer_lab.tasks.targets import Classes, TargetKind

Head = Literal["linear", "mlp", "gelu", "mega"]

FEW_SYMBOLS = 32  # a vocabulary of at most as many is one of symbols, as that of ListOps, and not of text


class SequenceClassification(Maskable, TargetTask):
    """A sequence encoder of any attention. Ids (B, N) or numbers (B, N, F) -> logits (B, classes).

    Where the data have several numbers or labels a sequence in place of classes, outputs are these (B, T).

    head: `linear`; `mlp`, one hidden layer with ReLU (Long-Range Arena); `gelu`, one hidden layer with GELU; `mega`,
    the same without the last bias and with the encoder's dropout before the GELU. The hidden layer has `head_dim`
    units, by default as many as the encoder's MLP. With `embed_dim` the token table has that width, and a GELU and a
    linear map follow. `token_dropout` is the share of the tokens that training sets to zero, as the word dropout of
    Iyyer et al. (2015) does. Two options repeat Sliceformer's published IMDB code: `double_softmax` passes
    probabilities to the loss in place of logits, and `pool_over_padding` pools over all positions, with zeros at
    padding. `padding_counts` repeats SAMSA's published code: padding is an ordinary token in the whole model.
    """

    double_softmax = False

    def __init__(
        self,
        model: ModelConfig,
        data: DataSizes,
        *,
        pool: PoolMode = "mean",
        head: Head = "linear",
        head_dim: Count | None = None,
        embed_std: Positive | None = 1.0,
        embed_dim: Count | None = None,
        token_dropout: Fraction = 0.0,
        label_smoothing: Fraction = 0.0,
        double_softmax: bool = False,
        pool_over_padding: bool = False,
        padding_counts: bool = False,
        class_weights: ClassWeights | None = None,
    ) -> None:
        super().__init__(model, data)
        spec, nodes = self.data_spec, self.nodes
        if spec.max_len is None:
            raise ValueError(f"{spec.name} has no sequences; choose another task for it")
        self.max_len = spec.max_len
        self.embedding = TokenEmbedding(
            spec.vocab_size,
            spec.channels,
            self.dim,
            cls=pool == "cls",
            cls_std=float(nodes.encoder.option("position_std")),
            std=self.dim**-0.5 if embed_std is None else embed_std,
            padded=spec.ragged and not padding_counts,
            hidden=embed_dim,
            dropout=token_dropout,
        )
        prefix = self.embedding.num_prefix
        self.encoder = build_encoder(
            nodes.encoder, nodes.block, nodes.attention, self.max_len + prefix, num_prefix=prefix
        )
        self.pool = Pool(pool, self.encoder.options)
        self.pool.check(self.encoder.attentions[-1])
        self.head = self.build_head(head, self.dim, head_dim or int(nodes.encoder.options["mlp_dim"]))
        initialise_head(self.head, self.encoder.options)
        self.label_smoothing = label_smoothing
        if double_softmax and not spec.num_classes:
            raise ValueError(f"double_softmax=true is for classes, which {spec.name} has not; set it to false")
        self.double_softmax, self.pool_over_padding = double_softmax, pool_over_padding
        self.padding_counts = padding_counts
        self.weigh_classes(class_weights)

    def initialise(self) -> None:
        if self.encoder.options.init is not None:
            from sliceformer_lab.encoder.pretrained import initialise_texts

            initialise_texts(self.embedding, self.encoder)

    @property
    def kind(self) -> TargetKind:
        if self.double_softmax:
            return Classes(self.data_spec.num_classes, double_softmax=True)
        return super().kind

    def build_head(self, head: Head, dim: int, hidden: int) -> nn.Module:
        """The head, from a pooled vector (B, dim) to outputs (B, classes or T)."""
        classes = self.num_outputs
        match head:
            case "linear":
                return nn.Linear(dim, classes)
            case "mlp":
                return nn.Sequential(nn.Linear(dim, hidden), nn.ReLU(), nn.Linear(hidden, classes))
            case "gelu":
                return nn.Sequential(nn.Linear(dim, hidden), nn.GELU(), nn.Linear(hidden, classes))
            case "mega":
                dropped = nn.Sequential(Dropout(self.encoder.options.dropout), nn.GELU())
                return nn.Sequential(nn.Linear(dim, hidden), dropped, nn.Linear(hidden, classes, bias=False))

    def forward(self, batch: Batch) -> Tensor:
        """Ids (B, N) or numbers (B, N, F) -> logits (B, classes), or numbers or logits (B, T)."""
        return self.in_own_unit(self.head(self.encoded(batch.inputs, batch.padding)))

    def encoded(self, inputs: Tensor, padding: Padding | None) -> Tensor:
        """One vector per sequence: (B, N) or (B, N, F) -> (B, dim)."""
        tokens, padding = self.embed(inputs, padding), self._padding_of_tokens(padding)
        return self.encoder.pooled(self.pool, tokens, padding, with_padding=self.pool_over_padding)

    def embed(self, inputs: Tensor, padding: Padding | None, hidden: Hidden | None = None) -> Tensor:
        """The tokens (B, N, C), with a CLS token in front if pooling reads one."""
        return self.embedding(inputs, hidden)

    def _padding_of_tokens(self, padding: Padding | None) -> Padding | None:
        if padding is None or self.padding_counts:
            return None
        return padding.after_prefix(self.embedding.num_prefix) if self.embedding.num_prefix else padding

    @property
    def masked_units(self) -> Units:
        """Pixels or other numbers, or tokens, at the rates of Amos et al. (2024): .5, .15, for few symbols .1.

        The grey levels of pixels are found as numbers, also where they are ids.
        """
        spec = self.data_spec
        if spec.grey_levels or not spec.vocab_size:
            name = "pixels" if spec.grey_levels else "numbers"
            return Units(name=name, rate=0.5, most=self.max_len, numbers=max(1, spec.channels))
        few = spec.vocab_size <= FEW_SYMBOLS
        return Units(
            name="symbols" if few else "tokens", rate=0.1 if few else 0.15, most=self.max_len, classes=spec.vocab_size
        )

    def unit_targets(self, units: Tensor) -> Tensor:
        """Ids (B, N), or numbers (B, N, F); grey levels that are ids become numbers in -1..1."""
        if self.data_spec.grey_levels and self.data_spec.vocab_size:
            return units[..., None] * (2 / (self.data_spec.vocab_size - 1)) - 1.0
        return units

    def encode_units(self, batch: Batch, hidden: Hidden) -> Tensor:
        """The tokens after the encoder (B, N, C)."""
        tokens = self.embed(batch.inputs, batch.padding, hidden)
        return self.encoder(tokens, self._padding_of_tokens(batch.padding))[:, self.embedding.num_prefix :]
