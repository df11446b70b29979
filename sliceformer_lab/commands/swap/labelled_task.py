"""A task with labels, by which the embeddings of an original and of swapped models are judged."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sliceformer_lab.commands.swap.pretrained_model import LibraryModel
from sliceformer_lab.commands.swap.swap_options import LabelledInputs
from sliceformer_lab.data.input_files import read_labelled
from sliceformer_lab.errors import DataError
from sliceformer_lab.measures.simple_models import classify_embeddings
from sliceformer_lab.training.heal import Inputs, last_states

MIN_INPUTS = 40
MAX_SETS = 3  # of layers from each side


class LabelledTask:
    """Half of the inputs train a logistic regression on a model's embeddings; it gives the others a class."""

    def __init__(self, opened: LibraryModel, labelled: LabelledInputs, batch_size: int, seed: int) -> None:
        """Raises DataError for inputs that cannot be read, too few of them, or a single label."""
        file = Path(str(labelled.file)).expanduser()
        known = list(read_labelled(file, opened.kind, labelled.column or "text", labelled.label or "label"))
        drawn = [known[i] for i in np.random.default_rng(seed).permutation(len(known))[: labelled.limit]]
        half = len(drawn) // 2
        if len(drawn) < MIN_INPUTS or len({label for _, label in drawn[:half]}) < 2:
            raise DataError(
                f"labelled.file={labelled.file} gives {len(drawn)} inputs with {len({label for _, label in drawn})} "
                f"labels; a verdict needs at least {MIN_INPUTS}, and two labels among those that train the classifier"
            )
        self.opened, self.num_training = opened, half
        self.labels = np.unique([label for _, label in drawn], return_inverse=True)[1]
        lengths = [len(content) for content, _ in drawn]
        self.order = np.argsort(lengths, kind="stable")  # so that texts need little padding
        contents = [drawn[i][0] for i in self.order]
        self.batches = [opened.encode(contents[i : i + batch_size]) for i in range(0, len(contents), batch_size)]

    @property
    def num_scored(self) -> int:
        """The inputs that are scored."""
        return len(self.labels) - self.num_training

    @torch.no_grad()
    def correct(self, model: Any) -> np.ndarray:
        """Whether each scored input gets its label from this model's embeddings: (E,) bool."""
        trunk, parts = self.opened.trunk(model), []
        for inputs in self.batches:
            parts.append(torch.nn.functional.normalize(mean_of_tokens(last_states(trunk, inputs), inputs)))
        embeddings, first = torch.cat(parts).float().numpy()[np.argsort(self.order)], self.num_training
        classes = classify_embeddings(embeddings[:first], self.labels[:first], embeddings[first:])
        return np.asarray(classes == self.labels[first:])


def mean_of_tokens(states: Tensor, inputs: Inputs) -> Tensor:
    """The mean of the states of real tokens. (B, N, C) -> (B, C)."""
    if isinstance(inputs, Tensor) or "attention_mask" not in inputs:
        return states.mean(1)
    weights = inputs["attention_mask"][..., None].to(states)
    return (states * weights).sum(1) / weights.sum(1)


def layer_sets(layers: Sequence[int]) -> dict[str, list[int]]:
    """The top and bottom layers to judge, at most MAX_SETS of each side, then all: name -> layers."""
    counts = [int(k) for k in np.unique(np.linspace(1, len(layers), MAX_SETS + 1).round()) if k < len(layers)]
    chosen = sorted(layers)
    top = {f"top {k}": chosen[-k:] for k in counts}
    return {**top, **{f"bottom {k}": chosen[:k] for k in counts}, "all": chosen}
