"""Pretraining on point clouds: a model finds the points of hidden balls from the rest of the cloud."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn
from torchmetrics import MetricCollection

from sliceformer_lab.batch import Batch
from sliceformer_lab.config.schema import ConfigError
from sliceformer_lab.encoder.embed import TokenEmbedding
from sliceformer_lab.encoder.hidden import Hidden
from sliceformer_lab.tasks.base import Task
from sliceformer_lab.tasks.masked import is_masked
from sliceformer_lab.tasks.metrics import MeanOfValues
from sliceformer_lab.tasks.pretraining import Pretraining
from sliceformer_lab.training.pretraining.pretrain_options import PretrainOptions

NUM_BALLS = 16  # of a cloud
HIDDEN_SHARE = 0.6  # share of them that is hidden


class CloudTask(Task):
    """A task whose tokens are the points of clouds (B, N, 3 or 6)."""

    maskable = True
    embedding: TokenEmbedding

    def pretraining(self, options: PretrainOptions, seed: int) -> Pretraining:
        """Finds the points of hidden balls. Raises ConfigError for `shuffle_tokens`."""
        return MaskedBalls(self, options, seed)

    def encode_points(self, inputs: Tensor, hidden: Hidden) -> Tensor:
        """The points after the encoder (B, N, C), with `hidden.vector` added to the hidden ones."""
        tokens, prefix = self.embedding(inputs), self.embedding.num_prefix
        return self.encoder(torch.cat([tokens[:, :prefix], hidden.mark(tokens[:, prefix:])], dim=1))[:, prefix:]


class MaskedBalls(Pretraining):
    """Finds the points of hidden balls. A batch -> points (M, K, 3) of its M hidden balls, relative to their centres.

    Centres are 16 points of a cloud (`NUM_BALLS`), each farthest from those before; a ball is the points to which a
    centre is the nearest. Each ball is hidden independently. The batch has the centre in place of a hidden point,
    without a normal, and the point's token gets a learned vector added. An MLP turns the mean token of a ball into
    K = N / 16 points. The loss is the Chamfer distance (`chamfer`), the mean over the hidden balls.
    Source: Pang et al. 2022, Point-MAE. Its balls overlap, its tokens are balls, and hidden ones pass by its encoder.
    """

    task: CloudTask
    monitor, monitor_mode = "chamfer", "min"

    def __init__(self, task: CloudTask, options: PretrainOptions, seed: int) -> None:
        if options.shuffle_tokens:
            raise ConfigError("pretrain.shuffle_tokens=true: the points of a cloud have no order to lose; leave it out")
        super().__init__(task, options, seed, HIDDEN_SHARE)
        self.points = max(1, task.num_tokens() // NUM_BALLS)  # that are found of a ball
        self.head = nn.Sequential(nn.Linear(self.dim, self.dim), nn.GELU(), nn.Linear(self.dim, 3 * self.points))

    def build_metrics(self) -> MetricCollection:
        """The Chamfer distance, and that of the centre alone, which needs no context."""
        metrics = {"chamfer": MeanChamfer(), "chamfer_of_centre": MeanChamfer(of_centre=True)}
        return MetricCollection(dict(metrics), compute_groups=False)

    def hide(self, batch: Batch, step: int | None) -> Batch:
        """The batch with hidden balls. Targets (B, N, 4) are points from their centre and the ball; NaN if visible."""
        points, normals = batch.inputs[..., :3], batch.inputs[..., 3:]
        centres, ball = divide(points, NUM_BALLS)
        mask = (self.draws(batch.ids, NUM_BALLS, step) < self.rate).gather(1, ball)[..., None]
        centre = centres.take_along_dim(ball[..., None], dim=1)
        target = torch.cat([points - centre, ball[..., None]], dim=2).masked_fill(~mask, torch.nan)
        inputs = torch.where(mask, torch.cat([centre, torch.zeros_like(normals)], dim=2), batch.inputs)
        return replace(batch, inputs=inputs, target=target)

    def forward(self, batch: Batch) -> Tensor:
        """A batch of `hide` -> points (M, K, 3) of its hidden balls."""
        tokens = self.task.encode_points(batch.inputs, Hidden(is_masked(batch.target), self.vector))
        members = members_of(batch.target)
        found = members.any(dim=2)
        counts = members.sum(dim=2, keepdim=True).clamp_min(1)
        means = members.to(tokens.dtype) @ tokens / counts  # (B, NUM_BALLS, C)
        return self.head(means[found]).unflatten(1, (self.points, 3))

    def loss(self, output: Tensor, target: Tensor) -> Tensor:
        """The mean Chamfer distance of the hidden balls; zero if none is hidden."""
        return chamfer(output, target).mean() if len(output) else output.sum() * 0.0

    def counted_parts(self, batch: Batch) -> Tensor:
        """The hidden balls, however many points they have: (B, NUM_BALLS)."""
        return members_of(batch.target).any(dim=2)

    def chance(self, targets: Tensor) -> float:
        """The distance of the centre alone."""
        metric = MeanChamfer(of_centre=True)
        metric.update(targets.new_zeros(int(members_of(targets).any(dim=2).sum()), 1, 3), targets)
        return float(metric.compute())


class MeanChamfer(MeanOfValues):
    """Mean Chamfer distance over hidden balls; with `of_centre` that of one point in the centre of each."""

    def __init__(self, *, of_centre: bool = False) -> None:
        super().__init__()
        self.of_centre = of_centre

    def update(self, predicted: Tensor, target: Tensor) -> None:
        if len(predicted):
            found = torch.zeros_like(predicted[:, :1]) if self.of_centre else predicted
            self.add(chamfer(found, target))


def divide(points: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Clouds in balls: (B, N, 3) -> centres (B, count, 3), each the farthest from those before, and balls (B, N).

    The first centre is the first point. A point belongs to its nearest centre, of equally near ones to the first.
    """
    rows = torch.arange(len(points), device=points.device)
    centres, distances = [points[:, 0]], []
    for _ in range(count):
        distances.append((points - centres[-1][:, None]).square().sum(dim=2))
        nearest = torch.stack(distances).amin(dim=0)  # (B, N)
        centres.append(points[rows, nearest.argmax(dim=1)])
    return torch.stack(centres[:count], dim=1), torch.stack(distances, dim=2).argmin(dim=2)


def members_of(target: Tensor) -> Tensor:
    """The points of each hidden ball, from targets (B, N, 4): (B, NUM_BALLS, N) bool."""
    ball = target[..., 3].nan_to_num(-1.0)
    return ball[:, None] == torch.arange(NUM_BALLS, device=target.device)[:, None]


def chamfer(found: Tensor, target: Tensor) -> Tensor:
    """The Chamfer distances of M hidden balls, in squares: found points (M, K, 3), targets (B, N, 4) -> (M,).

    The mean square from each found point to the nearest true one, plus the same from each true to the nearest found.
    """
    members = members_of(target)
    rows, balls = members.any(dim=2).nonzero(as_tuple=True)
    inside = members[rows, balls]  # (M, N)
    sizes = inside.sum(dim=1, keepdim=True)
    order = inside.to(torch.uint8).argsort(dim=1, descending=True, stable=True)[:, : int(sizes.max())]
    real = torch.arange(order.shape[1], device=target.device) < sizes  # (M, P)
    true = target[rows[:, None], order, :3].nan_to_num()
    squares = (found[:, :, None] - true[:, None]).square().sum(dim=3)  # (M, K, P)
    from_found = squares.masked_fill(~real[:, None], torch.inf).amin(dim=2).mean(dim=1)
    from_true = squares.amin(dim=1).masked_fill(~real, 0.0).sum(dim=1) / sizes[:, 0]
    return from_found + from_true
