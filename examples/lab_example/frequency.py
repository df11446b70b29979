"""A task: one number for a sequence of numbers."""

from __future__ import annotations

from torch import Tensor, nn

from sliceformer_lab.batch import Batch
from sliceformer_lab.encoder.embed import TokenEmbedding
from sliceformer_lab.encoder.factory import build_encoder
from sliceformer_lab.encoder.pool import Pool, PoolMode
from sliceformer_lab.tasks.base import DataSizes, ModelConfig
from sliceformer_lab.tasks.target_task import TargetTask


class Frequency(TargetTask):
    """One number of a sequence, by mean absolute error. Numbers (B, N, F) -> (B, 1).

    `TargetTask` has the loss, metrics, tables, pictures and references of numbers.
    """

    def __init__(self, model: ModelConfig, data: DataSizes, *, pool: PoolMode = "mean") -> None:
        super().__init__(model, data)
        dim = int(self.nodes.encoder.options["dim"])
        self.embedding = TokenEmbedding(0, self.data_spec.channels, dim)
        max_len = self.data_spec.max_len or 1
        self.encoder = build_encoder(self.nodes.encoder, self.nodes.block, self.nodes.attention, max_len)
        self.pool = Pool(pool, self.encoder.options)
        self.head = nn.Linear(dim, 1)

    def forward(self, batch: Batch) -> Tensor:
        tokens = self.encoder(self.embedding(batch.inputs), batch.padding)
        return self.in_own_unit(self.head(self.pool(tokens, batch.padding)))

    def constant(self, targets: Tensor) -> tuple[str, Tensor]:
        """The median, which has the smallest absolute error of all constants."""
        return "training median", targets.median(dim=0).values
