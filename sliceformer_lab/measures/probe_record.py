"""The file that records the measures of a layer's token matrices over the epochs of a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from sliceformer_lab.runs.files import whole_bytes

PLACES = ("input", "output", "stream")  # the operator's V, the operator's output, the block's output
FORMS = ("raw", "mean_removed", "profile_removed")  # X, X - 1 m^T, X - q a^T
MEASURES = ("spectrum", "stable_rank", "effective_rank", "residual", "cosine")


@dataclass(frozen=True)
class ProbeRecord:
    """Measures of one probe batch over a run. Axes: E epochs, L layers, P places, F forms, R singular values.

    The npz file holds the fields as arrays, and each measure NAME as `NAME_mean` and `NAME_std` over the samples.
    """

    epochs: NDArray[np.int64]  # (E,) last finished epoch of each record, -1 before training
    mean: Mapping[str, NDArray[np.float64]]  # measure -> (E, L, P, F), spectrum (E, L, P, F, R) with NaN beyond the end
    std: Mapping[str, NDArray[np.float64]]
    attentions: NDArray[np.str_]  # (L,) class of each layer's attention
    sample_ids: NDArray[np.int64]  # (S,) position of each sample in the validation split
    num_tokens: NDArray[np.int64]  # (S,) number of measured tokens, without CLS and padding
    note: str  # description of the samples

    def at(self, name: str, place: str, form: str, *, moment: int = -1) -> NDArray[np.float64]:
        """Mean of a measure per layer (L,), of the spectrum (L, R), in the `moment`-th record."""
        values: NDArray[np.float64] = self.mean[name][moment, :, PLACES.index(place), FORMS.index(form)]
        return values

    def up_to(self, epoch: int) -> Self:
        """The records up to `epoch`."""
        kept = self.epochs <= epoch
        return replace(
            self,
            epochs=self.epochs[kept],
            mean={name: values[kept] for name, values in self.mean.items()},
            std={name: values[kept] for name, values in self.std.items()},
        )

    def followed_by(self, later: Self) -> Self:
        """This record continued by the epochs of a later one."""
        return replace(
            later,
            epochs=np.concatenate([self.epochs, later.epochs]),
            mean={name: np.concatenate([self.mean[name], later.mean[name]]) for name in MEASURES},
            std={name: np.concatenate([self.std[name], later.std[name]]) for name in MEASURES},
        )

    def save(self, path: Path) -> None:
        """Write the npz file whole or not at all."""
        arrays: dict[str, Any] = {
            "epochs": self.epochs,
            "places": np.array(PLACES),
            "forms": np.array(FORMS),
            "attentions": self.attentions,
            "sample_ids": self.sample_ids,
            "num_tokens": self.num_tokens,
            "note": np.array(self.note),
        }
        arrays |= {f"{name}_mean": self.mean[name] for name in MEASURES}
        arrays |= {f"{name}_std": self.std[name] for name in MEASURES}
        with whole_bytes(path) as file:
            np.savez_compressed(file, **arrays)

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read a file that `save` wrote."""
        with np.load(path) as file:
            return cls(
                epochs=file["epochs"],
                mean={name: file[f"{name}_mean"] for name in MEASURES},
                std={name: file[f"{name}_std"] for name in MEASURES},
                attentions=file["attentions"],
                sample_ids=file["sample_ids"],
                num_tokens=file["num_tokens"],
                note=str(file["note"]),
            )
