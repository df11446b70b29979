"""Healing brings a swapped model back towards the original, and touches nothing else."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from sliceformer_lab import swap
from sliceformer_lab.training.heal import FinalHealing, Healing, LayerHealing, find_blocks, relative_error


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
    healing: Healing = LayerHealing(student, teacher, [0, 2], lr=3e-3, num_steps=60)
    steps = torch.tensor([healing.step(inputs) for inputs in batches(60)])  # errors, (60, 2)
    assert (steps[-8:].mean(0) < 0.8 * steps[0]).all()
    assert_close(teacher.state_dict(), original)
    assert_close(find_blocks(student)[1].state_dict(), find_blocks(before)[1].state_dict())
    (inputs,) = batches(1)
    target = teacher(**inputs).last_hidden_state
    errors = [relative_error(model(**inputs).last_hidden_state, target, inputs) for model in (before, student)]
    assert errors[1] < errors[0]
    healing = FinalHealing(student, teacher, lr=3e-4, num_steps=20)
    steps = torch.tensor([healing.step(inputs) for inputs in batches(20)])  # (20, 1)
    assert steps[-2:].mean() < steps[0]


def test_softmax_attention_in_place_of_itself_has_nothing_to_heal() -> None:
    teacher = bert()
    healing = LayerHealing(swap(copy.deepcopy(teacher), "mha"), teacher, range(3), lr=0.0, num_steps=1)
    assert max(healing.step(batches(1)[0])) < 1e-8


def test_a_padded_token_is_no_target_and_a_constant_has_the_error_one() -> None:
    (inputs,) = batches(1)
    target, real = 5 + torch.randn(4, 12, 24), inputs["attention_mask"].bool()[..., None]
    for output, error in ((target, 0.0), (target[real.expand_as(target)].mean(), 1.0)):
        found = float(relative_error(torch.where(real, output, 1e3), target, inputs))
        assert found == pytest.approx(error, rel=0.01)


def test_a_model_without_blocks_is_refused() -> None:
    with pytest.raises(ValueError, match="Linear has no list of blocks"):
        find_blocks(nn.Linear(2, 2))
