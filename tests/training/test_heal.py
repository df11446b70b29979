"""Healing brings a swapped model back towards the original, and touches nothing else."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from sliceformer_lab import swap
from sliceformer_lab.training.heal import blocks_of, heal_layers, heal_together, relative_error


def bert() -> Any:
    transformers = pytest.importorskip("transformers")
    sizes = {"hidden_size": 24, "num_hidden_layers": 3, "num_attention_heads": 3, "intermediate_size": 48}
    options = {"vocab_size": 40, "max_position_embeddings": 16, "initializer_range": 0.3}
    torch.manual_seed(0)
    return transformers.BertModel(transformers.BertConfig(**sizes, **options)).eval()


def batches(count: int) -> list[dict[str, torch.Tensor]]:
    generator = torch.Generator().manual_seed(1)
    mask = (torch.arange(12) < torch.tensor([12, 12, 9, 5])[:, None]).long()
    return [
        {"input_ids": torch.randint(1, 40, (4, 12), generator=generator), "attention_mask": mask} for _ in range(count)
    ]


def test_healing_of_chosen_layers_lowers_their_errors_and_leaves_the_rest_alone() -> None:
    teacher = bert()
    student = swap(copy.deepcopy(teacher), "csp", layers=[0, 2])
    before, original = copy.deepcopy(student), copy.deepcopy(teacher.state_dict())
    healed = heal_layers(student, teacher, batches(60), [0, 2], lr=3e-3)
    assert sorted(healed) == [0, 2]
    assert all(errors.last < 0.8 * errors.first for errors in healed.values())
    assert_close(teacher.state_dict(), original)
    assert_close(blocks_of(student)[1].state_dict(), blocks_of(before)[1].state_dict())
    (inputs,) = batches(1)
    target = teacher(**inputs).last_hidden_state
    errors = [relative_error(model(**inputs).last_hidden_state, target, inputs) for model in (before, student)]
    assert errors[1] < errors[0]
    final = heal_together(student, teacher, batches(20), lr=3e-4)
    assert final.last < final.first


def test_softmax_attention_in_place_of_itself_has_nothing_to_heal() -> None:
    teacher = bert()
    healed = heal_layers(swap(copy.deepcopy(teacher), "mha"), teacher, batches(1), range(3), lr=0.0)
    assert all(errors.first < 1e-8 for errors in healed.values())


def test_a_padded_token_is_no_target() -> None:
    (inputs,) = batches(1)
    target = torch.randn(4, 12, 24)
    output = torch.where(inputs["attention_mask"].bool()[..., None], target, 1e3)
    assert relative_error(output, target, inputs) == 0


def test_a_model_without_blocks_is_refused() -> None:
    with pytest.raises(ValueError, match="Linear has no list of blocks"):
        blocks_of(nn.Linear(2, 2))
