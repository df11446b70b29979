"""Pretraining on point clouds: which balls are hidden, that they stay hidden, and how what is found is scored."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from support.plans import small_task
from torch import Tensor

from sliceformer_lab.batch import Batch
from sliceformer_lab.config.schema import ConfigError
from sliceformer_lab.data.points.clouds import farthest_points
from sliceformer_lab.data.spec import DataSpec
from sliceformer_lab.tasks.masked import is_masked
from sliceformer_lab.tasks.masked_balls import (
    NUM_BALLS,
    CloudTask,
    MaskedBalls,
    MeanChamfer,
    chamfer,
    divide,
    members_of,
)
from sliceformer_lab.training.pretraining.pretrain_options import PretrainOptions

CLOUDS = DataSpec(name="clouds", num_classes=3, max_len=64, channels=6, unordered=True)
WITH_PARTS = DataSpec(
    name="parts", num_classes=5, max_len=64, channels=6, unordered=True, targets="parts", parts=((0, 2), (2, 5))
)


def module(*overrides: str, data: DataSpec = CLOUDS, **options: Any) -> MaskedBalls:
    task = small_task(*(overrides or ("task=modelnet40",)), data=data)
    assert isinstance(task, CloudTask)
    found = task.pretraining(PretrainOptions(**options), 0).eval()
    assert isinstance(found, MaskedBalls)
    return found


def clouds(size: int = 4) -> Batch:
    points = torch.randn(size, 64, 6, generator=torch.Generator().manual_seed(1))
    return Batch(points, torch.zeros(size, dtype=torch.long), torch.arange(size))


def distance(found: Tensor, true: Tensor) -> Tensor:
    """The Chamfer distance of two sets of points, pair by pair."""
    squares = [[(one - other).square().sum() for other in true] for one in found]
    near_true = sum(min(row) for row in squares) / len(found)
    near_found = sum(min(row[j] for row in squares) for j in range(len(true))) / len(true)
    return torch.as_tensor(near_true + near_found)


def test_centres_are_the_farthest_points_and_a_ball_is_what_is_nearest_to_one() -> None:
    points = clouds().inputs[..., :3]
    centres, ball = divide(points, NUM_BALLS)
    for cloud, own_centres, own in zip(points, centres, ball, strict=True):
        torch.testing.assert_close(own_centres, cloud[farthest_points(cloud, NUM_BALLS)])
        torch.testing.assert_close(own, torch.cdist(cloud, own_centres).argmin(dim=1))


def test_hidden_points_are_replaced_by_their_centre_and_the_others_stay() -> None:
    batch = clouds()
    hidden = module().hide(batch, 0)
    mask = is_masked(hidden.target)
    centres, ball = divide(batch.inputs[..., :3], NUM_BALLS)
    centre = centres.take_along_dim(ball[..., None], dim=1)
    assert mask.any() and not mask.all()
    torch.testing.assert_close(hidden.inputs[mask], torch.cat([centre, torch.zeros_like(centre)], dim=2)[mask])
    torch.testing.assert_close(hidden.inputs[~mask], batch.inputs[~mask])
    torch.testing.assert_close(hidden.target[mask][:, :3], (batch.inputs[..., :3] - centre)[mask])


def test_balls_are_hidden_as_a_whole_at_the_rate() -> None:
    batch = clouds(200)
    _, ball = divide(batch.inputs[..., :3], NUM_BALLS)
    for options, rate in (({}, 0.6), ({"mask_rate": 0.25}, 0.25)):
        mask = is_masked(module(**options).hide(batch, 3).target)
        members = ball[:, None] == torch.arange(NUM_BALLS)[:, None]
        hidden = (mask[:, None] & members).sum(dim=2)
        assert ((hidden == 0) | (hidden == members.sum(dim=2))).all()
        assert abs((hidden > 0).float().mean() - rate) < 0.03


def test_chamfer_distance_is_that_of_every_pair_of_points() -> None:
    hidden = module().hide(clouds(), 1)
    members = members_of(hidden.target)
    sets = [cloud[inside][:, :3] for cloud, rows in zip(hidden.target, members, strict=True) for inside in rows]
    true = [points for points in sets if len(points)]
    found = torch.randn(len(true), 4, 3, generator=torch.Generator().manual_seed(2))
    expected = torch.stack([distance(*pair) for pair in zip(found, true, strict=True)])
    torch.testing.assert_close(chamfer(found, hidden.target), expected)
    metric, floor = MeanChamfer(), MeanChamfer(of_centre=True)
    for one in (metric, floor):
        one.update(found, hidden.target)
    torch.testing.assert_close(metric.compute(), expected.mean())
    centre = torch.stack([distance(torch.zeros(1, 3), points) for points in true]).mean()
    torch.testing.assert_close(floor.compute(), centre)
    assert module().chance(hidden.target) == pytest.approx(float(centre))


@pytest.mark.parametrize(("task", "data"), [("modelnet40", CLOUDS), ("shapenet_part", WITH_PARTS)])
def test_some_steps_on_a_batch_find_more_than_the_centre(task: str, data: DataSpec) -> None:
    model = module(f"task={task}", data=data)
    hidden = model.hide(clouds(), 0)
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(40):
        loss = model.loss(model(hidden), hidden.target)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    assert loss < 0.8 * model.chance(hidden.target)
    assert model.vector.grad is not None and model.vector.grad.abs().max() > 0


def test_a_batch_without_hidden_balls_has_no_loss() -> None:
    model, batch = module(mask_rate=1e-9), clouds()
    hidden = model.hide(batch, 0)
    found = model(hidden)
    assert found.shape == (0, 4, 3) and model.loss(found, hidden.target) == 0


def test_the_loss_of_several_batches_is_the_mean_over_balls_as_the_distance_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Balls have different numbers of points, so the mean over points would be another."""
    model = module()
    monkeypatch.setattr(model, "log_dict", lambda *args, **options: None)
    for size in (1, 3, 4):
        model._score(clouds(size), "val", "val", keep=False)
    found = model.val_metrics.compute()["chamfer"]
    assert float(model.val_loss.compute()) == pytest.approx(float(found), rel=1e-6)


def test_shuffling_points_is_refused() -> None:
    with pytest.raises(ConfigError, match="the points of a cloud have no order to lose"):
        module(shuffle_tokens=True)
