"""A data module: noisy sine waves, whose frequency is to be predicted."""

import hashlib
from dataclasses import dataclass
from typing import Self

import numpy as np
import torch

from sliceformer_lab.batch import Batch
from sliceformer_lab.config.option_types import Count, Natural, NonNegative
from sliceformer_lab.data.base import DataModule
from sliceformer_lab.data.loader import Split
from sliceformer_lab.data.spec import DataSpec
from sliceformer_lab.data.splits import STAGES, Stage

LOWEST, HIGHEST = 1.0, 8.0  # cycles in a sequence


class WaveSplit(Split):
    """Waves (n, N) and their frequencies (n,)."""

    def __init__(self, waves: np.ndarray, frequencies: np.ndarray) -> None:
        self.waves, self.frequencies = waves, frequencies

    def __len__(self) -> int:
        return len(self.waves)

    def subset(self, rows: np.ndarray) -> Self:
        return type(self)(self.waves[rows], self.frequencies[rows])

    def batch(self, rows: list[int]) -> Batch:
        """Inputs (B, N, 1) and targets (B, 1)."""
        inputs, targets = (torch.from_numpy(part[rows][..., None]) for part in (self.waves, self.frequencies))
        return Batch(inputs, targets, torch.tensor(rows))


@dataclass(kw_only=True, eq=False, repr=False)
class Waves(DataModule):
    """Sine waves of random frequency and phase with normal noise, drawn from `generator_seed`."""

    title = "waves"

    length: Count = 64
    noise: NonNegative = 0.3
    num_examples: Count = 1500
    generator_seed: Natural = 0
    val_fraction: float = 0.2

    @property
    def spec(self) -> DataSpec:
        return DataSpec(name=f"waves_{self.length}", targets="numbers", num_targets=1, channels=1, max_len=self.length)

    def make_splits(self) -> dict[Stage, Split]:
        """A fifth for testing, `val_fraction` of the rest for validation."""
        waves, frequencies = self._drawn()
        tested = len(waves) // 5
        order = np.random.default_rng(self.split_seed).permutation(np.arange(tested, len(waves)))
        held = round(self.val_fraction * len(order))
        rows = {"test": np.arange(tested), "val": order[:held], "train": order[held:]}
        return {stage: WaveSplit(waves[rows[stage]], frequencies[rows[stage]]) for stage in STAGES}

    def _drawn(self) -> tuple[np.ndarray, np.ndarray]:
        generator = np.random.default_rng(self.generator_seed)
        frequencies = generator.uniform(LOWEST, HIGHEST, self.num_examples)
        phases = generator.uniform(0, 2 * np.pi, self.num_examples)
        time = np.arange(self.length) / self.length
        waves = np.sin(2 * np.pi * frequencies[:, None] * time + phases[:, None])
        waves += self.noise * generator.standard_normal(waves.shape)
        return waves.astype(np.float32), frequencies.astype(np.float32)

    def content_sha256(self) -> str:
        return hashlib.sha256(self._drawn()[0].tobytes()).hexdigest()

    def is_official(self) -> tuple[bool, str]:
        return True, "drawn from a seed"
