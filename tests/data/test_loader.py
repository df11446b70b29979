"""Loaders replay a pass from (seed, optimizer step): with any workers, in any number of processes."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import pytorch_lightning as pl
import torch
from support import official_files
from torch import Tensor, nn

from sliceformer_lab.batch import Batch
from sliceformer_lab.data.images.cifar import CIFAR10
from sliceformer_lab.data.loader import PassSampler, SeededLoader, Split, _signals_wait
from sliceformer_lab.data.spec import Content, LoadPlan


class Recorder(pl.LightningModule):
    """A linear model that keeps the ids and pictures that it was given."""

    def __init__(self) -> None:
        super().__init__()
        self.model = nn.Sequential(nn.Flatten(), nn.Linear(3 * 32 * 32, 10))
        self.given: list[tuple[Tensor, Tensor]] = []

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        self.given.append((batch.ids, batch.inputs))
        return nn.functional.cross_entropy(self.model(batch.inputs), batch.target)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.01)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    official_files.cifar10(tmp_path)
    return tmp_path


def cifar(root: Path, seed: int = 0, **options: Any) -> CIFAR10:
    return CIFAR10(LoadPlan(seed=seed), root=str(root), verify=False, batch_size=16, **options)


def passes(data: CIFAR10, stage: str = "train") -> list[Batch]:
    data.setup()
    return list(loader(data, stage))


def loader(data: CIFAR10, stage: str) -> SeededLoader:
    return data.train_dataloader() if stage == "train" else data.test_dataloader()[0]


def test_epochs_differ_in_order_and_augmentation_unless_lightning_overfits_on_a_fixed_batch(root: Path) -> None:
    quiet = {"accelerator": "cpu", "logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    fits: dict[bool, list[tuple[Tensor, Tensor]]] = {}
    for overfits in (False, True):
        model = Recorder()
        trainer = pl.Trainer(max_epochs=2, overfit_batches=int(overfits), default_root_dir=root, **quiet)
        trainer.fit(model, datamodule=cifar(root))
        fits[overfits] = model.given
    half = len(fits[False]) // 2
    epochs = fits[False][:half], fits[False][half:]
    order = [torch.cat([ids for ids, _ in epoch]) for epoch in epochs]
    assert order[0].sort().values.equal(order[1].sort().values) and not order[0].equal(order[1])
    pictures = [
        torch.cat([inputs for _, inputs in epoch])[ids.argsort()] for epoch, ids in zip(epochs, order, strict=True)
    ]
    assert (pictures[0] != pictures[1]).flatten(1).any(dim=1).float().mean() > 0.9
    (first, fixed), (second, again) = fits[True]
    assert torch.equal(first, second) and torch.equal(fixed, again)


def test_seed_changes_batches_and_loading_leaves_the_run_s_generators_alone(root: Path) -> None:
    data = cifar(root)
    before = torch.get_rng_state(), random.getstate(), np.random.get_state(legacy=False)
    first = passes(data)
    again, other = cifar(root), cifar(root, seed=1)
    for pass_of in (again, other):
        passes(pass_of)
    pictures, same, others = (d.splits["train"].__getitems__([0, 1, 2]).inputs for d in (data, again, other))
    assert torch.equal(pictures, same) and not torch.equal(pictures, others)
    assert torch.equal(before[0], torch.get_rng_state())
    assert str(before[1:]) == str((random.getstate(), np.random.get_state(legacy=False)))
    assert not torch.equal(first[0].ids, passes(cifar(root, seed=1))[0].ids)


def shares(data: CIFAR10, stage: str, world: int, monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """The ids that each process of a group would be given, in order."""
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: world)
    given = []
    for rank in range(world):
        monkeypatch.setattr(torch.distributed, "get_rank", lambda rank=rank: rank)
        own = loader(data, stage)
        given.append([i for batch in own for i in batch.ids.tolist()])
        assert len(cast(PassSampler, own.sampler)) == len(given[-1])
    return given


def test_processes_share_training_equally_and_evaluation_exactly(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = cifar(root, limit_train=89)
    alone = [i for batch in passes(data) for i in batch.ids.tolist()]
    training = shares(data, "train", 3, monkeypatch)
    assert [len(share) for share in training] == [29, 29, 29]
    assert [i for step in zip(*training, strict=True) for i in step] == alone[:87]
    evaluation = shares(data, "test", 3, monkeypatch)
    assert sorted(i for share in evaluation for i in share) == list(range(20))


@pytest.mark.skipif(not hasattr(signal, "pthread_sigmask"), reason="Windows cannot hold signals back")
def test_a_signal_while_workers_start_arrives_after_they_have_started() -> None:
    seen: list[str] = []
    before = signal.signal(signal.SIGUSR1, lambda *_: seen.append("signal"))
    done = threading.Event()
    other = threading.Thread(target=done.wait)  # the system gives it the signals that the main thread blocks
    other.start()
    try:
        with _signals_wait():
            os.kill(os.getpid(), signal.SIGUSR1)
            time.sleep(0.05)
            seen.append("workers started")
    finally:
        done.set()
        other.join()
        signal.signal(signal.SIGUSR1, before)
    assert seen == ["workers started", "signal"]


class Given(Split):
    """Examples with the given contents, targets and inputs."""

    def __init__(self, contents: Sequence[Content | None], targets: Tensor, inputs: Tensor | None = None) -> None:
        self.given, self.targets, self.inputs = contents, targets, targets if inputs is None else inputs

    def __len__(self) -> int:
        return len(self.given)

    def subset(self, rows: np.ndarray) -> Given:
        raise NotImplementedError

    def stored(self, row: int) -> Content | None:
        return self.given[row]

    def batch(self, rows: list[int]) -> Batch:
        return Batch(self.inputs[rows], self.targets[rows], torch.tensor(rows))


class Drawing(Given):
    """Examples made of one number from each of the generators that augment."""

    def batch(self, rows: list[int]) -> Batch:
        drawn = torch.tensor([torch.rand(()).item(), np.random.rand(), random.random()])
        return Batch(drawn, self.targets[rows], torch.tensor(rows))


def test_each_batch_of_a_pass_has_random_numbers_of_its_own_from_all_generators() -> None:
    split = Drawing([None] * 4, torch.zeros(4))
    first, other, again = (split.__getitems__(rows).inputs for rows in ([0, 1], [2, 3], [0, 1]))
    assert torch.equal(first, again) and (first != other).all()
    split.pass_seed = 1
    assert (split.__getitems__([0, 1]).inputs != first).all()


def test_every_content_and_target_and_their_order_count_in_a_digest_and_classes_by_name() -> None:
    names, texts, targets = ("a", "b", "c"), [f"text {number}" for number in range(300)], torch.arange(300) % 3
    known = Given(texts, targets).digest(names)
    assert Given(texts, 2 - targets).digest(names[::-1]) == known
    found = {known, Given(texts[::-1], targets.flip(0)).digest(names)}
    found |= {Given(["text 0t", "ext 1", *texts[2:]], targets).digest(names)}
    for row in (0, 255, 256, 299):
        found |= {Given([*texts[:row], "other", *texts[row + 1 :]], targets).digest(names)}
        found |= {Given(texts, targets.index_fill(0, torch.tensor(row), (row + 1) % 3)).digest(names)}
    assert len(found) == 11


def test_the_numbers_type_and_shape_of_contents_and_targets_count_in_a_digest() -> None:
    zeros = [np.zeros(4), np.zeros((2, 2)), np.zeros(4, np.int64), np.ones(4)]
    assert len({Given([content], torch.zeros(1)).digest(()) for content in zeros}) == 4
    targets = [torch.tensor([value]) for value in (1.0, 2.0, [1.0], [2, 1], [1, 2])]
    assert len({Given(["a"], target).digest(("x", "y")) for target in targets}) == 5
    inputs = [torch.tensor([value]) for value in (1, 2)]  # stand in for a content that no split keeps
    assert len({Given([None], torch.tensor([0]), one).digest(()) for one in inputs}) == 2
