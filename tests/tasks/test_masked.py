"""Masked modelling: what is hidden, that it stays hidden, and how what is found is scored."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from support.plans import small_task
from support.task_modules import ready
from torch import Tensor

from sliceformer_lab.batch import NO_CLASS, Batch, Padding
from sliceformer_lab.data.spec import DataSpec
from sliceformer_lab.order import TokenOrder
from sliceformer_lab.tasks.masked import Maskable, MaskedAccuracy, MaskedModelling, MaskedR2, MostFrequent, is_masked
from sliceformer_lab.training.pretraining.pretrain_options import PretrainOptions

DIGITS = DataSpec(name="digits", num_classes=10, image_size=(8, 8), channels=1)
TEXTS = DataSpec(name="mine", num_classes=3, max_len=20, vocab_size=50, ragged=True)


def module(*overrides: str, data: DataSpec = DIGITS, seed: int = 0, **options: Any) -> MaskedModelling:
    task = small_task(*overrides, data=data)
    assert isinstance(task, Maskable)
    pretraining = task.pretraining(PretrainOptions(**options), seed).eval()
    assert isinstance(pretraining, MaskedModelling)
    return pretraining


def images(size: int = 6, first: int = 0) -> Batch:
    generator = torch.Generator().manual_seed(3)
    pixels = torch.randn(20, 1, 8, 8, generator=generator)[first : first + size]
    return Batch(pixels, torch.zeros(size, dtype=torch.long), torch.arange(first, first + size))


def texts(*lengths: int) -> Batch:
    padding = Padding.from_lengths(torch.tensor(lengths), max(lengths))
    ids = torch.randint(1, 50, (len(lengths), max(lengths)), generator=torch.Generator().manual_seed(0))
    if padding is not None:
        ids = ids.masked_fill(~padding.mask, 0)
    return Batch(ids, torch.zeros(len(lengths), dtype=torch.long), torch.arange(len(lengths)), padding)


def test_all_attentions_get_the_same_masks() -> None:
    targets = [module(f"attention={name}").hide(images(), 7).target for name in ("mha", "csp", "identity")]
    for target in targets[1:]:
        torch.testing.assert_close(target, targets[0], equal_nan=True)


def test_masks_follow_from_seed_step_and_example_only() -> None:
    def masks(batch: Batch, step: int | None, seed: int = 0) -> Tensor:
        return is_masked(module(seed=seed).hide(batch, step).target)

    torch.testing.assert_close(masks(images(3, first=2), 7), masks(images(), 7)[2:5])
    torch.testing.assert_close(masks(images(), None), masks(images(), None))
    for other in (masks(images(), 8), masks(images(), 7, seed=1), masks(images(), None)):
        assert not torch.equal(other, masks(images(), 7))


def test_masks_do_not_depend_on_the_length_to_which_a_batch_is_padded() -> None:
    model = module("task=imdb", data=TEXTS, mask_rate=0.5)
    together, alone = (is_masked(model.hide(batch, 3).target) for batch in (texts(5, 19), texts(5, 8)))
    torch.testing.assert_close(together[0, :5], alone[0, :5])


@pytest.mark.parametrize("shuffle", [False, True])
def test_padding_is_never_masked_and_never_a_target(shuffle: bool) -> None:
    model = module("task=imdb", "task.pool=cls", data=TEXTS, mask_rate=0.9, shuffle_tokens=shuffle)
    batch = texts(3, 20, 11)
    assert batch.padding is not None
    hidden = model.hide(batch, 0)
    assert not is_masked(hidden.target)[~batch.padding.mask].any()
    assert not hidden.inputs[~batch.padding.mask].any()
    assert len(model(hidden)) == is_masked(hidden.target).sum() > 20


def test_share_of_masked_units_is_the_rate() -> None:
    batch = Batch(torch.randn(200, 1, 8, 8), torch.zeros(200, dtype=torch.long), torch.arange(200))
    for rate in (0.5, 0.15):
        assert abs(is_masked(module(mask_rate=rate).hide(batch, 0).target).float().mean() - rate) < 0.03


def test_loss_is_the_mean_over_masked_units_only() -> None:
    words, pixels = module("task=imdb", data=TEXTS), module()
    target = torch.tensor([[NO_CLASS, 3, NO_CLASS], [7, NO_CLASS, NO_CLASS]])
    logits = torch.randn(2, 50)
    expected = -(logits.log_softmax(1)[0, 3] + logits.log_softmax(1)[1, 7]) / 2
    torch.testing.assert_close(words.loss(logits, target), expected)
    numbers = torch.full((1, 3, 4), torch.nan)
    numbers[0, 1] = 1.0
    torch.testing.assert_close(pixels.loss(torch.full((1, 4), 0.25), numbers), torch.tensor(0.75))
    assert words.loss(torch.randn(0, 50), torch.full((2, 3), NO_CLASS)) == 0


@pytest.mark.parametrize("order", ["raster", "hilbert"])
def test_patches_of_an_image_can_be_put_back(order: TokenOrder) -> None:
    spec = replace(DIGITS, image_size=(8, 16), channels=3, token_order=order)
    model, pictures = module(data=spec), torch.randn(2, 3, 8, 16)
    batch = Batch(pictures, torch.zeros(2, dtype=torch.long), torch.arange(2))
    patches = model.task.units(batch)
    assert patches.shape == (2, 32, 12)
    torch.testing.assert_close(model.task.with_units(batch, patches).inputs, pictures)
    if order == "raster":
        torch.testing.assert_close(patches[1, 9], pictures[1, :, 2:4, 2:4].flatten())  # second row, second column


@pytest.mark.parametrize("stem", ["patch", "conv"])
def test_a_hidden_patch_cannot_be_read(stem: str) -> None:
    model, batch = module(f"task.stem={stem}"), images()
    hidden = model.hide(batch, 0)
    units = model.task.units(batch)
    other = torch.where(is_masked(hidden.target)[..., None], units + torch.randn_like(units), units)
    torch.testing.assert_close(model(model.hide(model.task.with_units(batch, other), 0)), model(hidden), rtol=0, atol=0)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("qm9_gap", []),
        *(("peptides_func", [f"task.tokens={tokens}"]) for tokens in ("nodes_edges", "random")),
        ("peptides_func", ["block=gatedgcn", "attention=identity"]),
    ],
)
def test_a_hidden_atom_and_its_bonds_to_hidden_atoms_cannot_be_read(
    name: str, options: list[str], tmp_path: Path
) -> None:
    root = tmp_path / "data"
    root.mkdir()
    data = ready(name, root)
    model = module(f"task={name}", *options, data=data.spec, mask_rate=0.6)
    batch = data.splits["train"].batch(list(range(min(4, len(data.splits["train"])))))
    graphs = batch.structure
    assert graphs is not None
    hidden = model.hide(batch, 0)
    mask = is_masked(hidden.target)
    between = mask.flatten()[graphs.edge_index].all(0)
    assert between.any() and not between.all()
    other_atoms, other_bonds = (batch.inputs == 0).long(), (graphs.edge_features == 0).long()
    atoms = torch.where(mask[..., None], other_atoms, batch.inputs)
    bonds = torch.where(between[:, None], other_bonds, graphs.edge_features)

    def found(inputs: Tensor, edge_features: Tensor) -> Tensor:
        torch.manual_seed(0)  # of random tokens
        structure = replace(graphs, edge_features=edge_features)
        output: Tensor = model(model.hide(replace(batch, inputs=inputs, structure=structure), 0))
        return output

    torch.testing.assert_close(found(atoms, bonds), found(batch.inputs, graphs.edge_features), rtol=0, atol=0)
    assert not torch.equal(found(batch.inputs, other_bonds), found(batch.inputs, graphs.edge_features))


def test_grey_levels_that_are_ids_are_found_as_numbers() -> None:
    spec = DataSpec(name="grey", num_classes=2, max_len=4, vocab_size=256, grey_levels=True)
    model = module("task=lra_image", data=spec)
    assert (model.found.name, model.found.numbers, model.monitor) == ("pixels", 1, "r2")
    levels = torch.tensor([[0, 255, 51, 204]])
    torch.testing.assert_close(model.task.unit_targets(levels)[..., 0], torch.tensor([[-1.0, 1.0, -0.6, 0.6]]))


def test_shuffling_moves_the_tokens_of_an_example_and_keeps_them() -> None:
    plain, shuffled = (module("task=imdb", data=TEXTS, mask_rate=0.5, shuffle_tokens=on) for on in (False, True))
    batch = texts(20, 15)

    def all_tokens(model: MaskedModelling) -> Tensor:
        hidden = model.hide(batch, 0)
        return torch.where(is_masked(hidden.target), hidden.target, hidden.inputs)

    torch.testing.assert_close(all_tokens(plain), batch.inputs)
    assert not torch.equal(all_tokens(shuffled), batch.inputs)
    torch.testing.assert_close(all_tokens(shuffled).sort(1).values, batch.inputs.sort(1).values)


def test_r2_is_one_minus_errors_over_deviations_of_masked_numbers() -> None:
    target = torch.randn(50, 3, 2, generator=torch.Generator().manual_seed(0))
    target[torch.rand(50, 3, generator=torch.Generator().manual_seed(1)) < 0.4] = torch.nan
    mask = is_masked(target)
    predicted = torch.randn(int(mask.sum()), 2)
    known = target[mask]
    overall, at_position = MaskedR2((3, 2)), MaskedR2((3, 2), at_position=True)
    for metric in (overall, at_position):
        metric.update(predicted, target)
    errors = (predicted - known).square().sum()
    torch.testing.assert_close(overall.compute(), 1 - errors / (known - known.mean()).square().sum())
    means = target.nanmean(0).expand_as(target)[mask]
    torch.testing.assert_close(at_position.compute(), 1 - errors / (known - means).square().sum())
    ideal = MaskedR2((3, 2), at_position=True)
    ideal.update(means, target)
    torch.testing.assert_close(ideal.compute(), torch.tensor(0.0), atol=1e-6, rtol=0)


def test_masked_accuracy_counts_masked_units_and_the_commonest_class_is_its_floor() -> None:
    target = torch.tensor([[NO_CLASS, 2, 2], [1, NO_CLASS, 2]])
    accuracy, floor = MaskedAccuracy(), MostFrequent(4)
    for metric in (accuracy, floor):
        metric.update(torch.tensor([2, 0, 0, 2]), target)
    assert (float(accuracy.compute()), float(floor.compute())) == (0.5, 0.75)
