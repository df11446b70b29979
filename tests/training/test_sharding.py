"""trainer=fsdp trains as one process does, and its checkpoints are the same files."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl
import torch
import torch.distributed as dist
from support.other_process import run_python
from support.plans import build_data, build_task
from support.run_folders import read_summary
from support.runs import SMALL, last_of_each, small_config
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor

from sliceformer_lab.__main__ import main
from sliceformer_lab.callbacks.checkpoint import Checkpoints
from sliceformer_lab.config.compose import option_names
from sliceformer_lab.runs.folder import read_checkpoint
from sliceformer_lab.training.processes.sharding import shard
from sliceformer_lab.training.saved.saved_run import load_run

FSDP = ("trainer=fsdp", "trainer.accelerator=cpu", "trainer.precision=32-true")
RUN = (*SMALL, "optim.warmup_steps=0", "optim.clip_norm=0.1", "encoder.dropout=0")
OTHERS = (
    "block=set",
    "block=mega",
    "task=zinc block=gps",
    "task=zinc block=gatedgcn attention=identity task.bias=false",
    "attention=csp attention.reference=channel0 task.pool=ref_max",
)


def train(folder: Path, *options: str) -> dict[str, Any]:
    """Trains in this process; returns the last checkpoint."""
    assert main(last_of_each([*RUN, *options, f"hydra.run.dir={folder}"])) == 0
    return read_checkpoint(folder / "checkpoints" / "last.ckpt")


@pytest.fixture
def mesh() -> Iterator[DeviceMesh]:
    """One process that splits weights among itself."""
    with socket.create_server(("", 0)) as free:
        port = free.getsockname()[1]
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=0, world_size=1)
    yield init_device_mesh("cpu", (1,), mesh_dim_names=("data_parallel",))
    dist.destroy_process_group()


ATTENTIONS = [
    pytest.param(f"attention={name}", marks=[] if name in ("mha", "csp", "samsa", "mega") else pytest.mark.slow)
    for name in option_names("attention")
]


@pytest.mark.parametrize("option", [*ATTENTIONS, *OTHERS])
def test_every_attention_has_the_same_gradients_with_split_weights(option: str, mesh: DeviceMesh) -> None:
    config = small_config(*option.split(), "encoder.depth=3")
    spec = build_data(config).spec
    tasks = []
    for split in (False, True):
        torch.manual_seed(0)
        task = build_task(config, spec).train()
        if split:
            shard(task, mesh)
        torch.manual_seed(1)
        task(task.example()).square().sum().backward()
        tasks.append(task)
    whole, parts = tasks
    for (name, weight), (same, part) in zip(whole.named_parameters(), parts.named_parameters(), strict=True):
        assert name == same and getattr(weight, "no_decay", False) == getattr(part, "no_decay", False)
        if weight.grad is not None:
            assert isinstance(part.grad, DTensor)
            torch.testing.assert_close(part.grad.full_tensor(), weight.grad)


@pytest.mark.slow
def test_two_processes_with_split_weights_train_as_one_does(tmp_path: Path) -> None:
    options = ("optim.epochs=3", "optim.lr=0.002")
    words = last_of_each([*RUN, *FSDP, *options, "callbacks=default"])
    place = f"hydra.run.dir={tmp_path}/two"
    two = run_python("-m", "sliceformer_lab", *words, "trainer.devices=2", "data.batch_size=8", place)
    assert two.returncode == 0, two.stderr
    assert "spectrum: not measured, because no process has all weights" in two.stdout
    last = read_checkpoint(tmp_path / "two" / "checkpoints" / "last.ckpt")
    assert len(last["generators"]) == 2
    whole = train(tmp_path / "one", *options, "data.batch_size=16")  # as many examples in a step
    assert whole["global_step"] == last["global_step"] == 24
    for checkpoint in (last, whole):
        for group in checkpoint["optimizer_states"][0]["param_groups"]:
            del group["fused"]  # which kernel: torch's fused one takes no split weights
    for part in ("state_dict", "optimizer_states", "lr_schedulers"):
        torch.testing.assert_close(last[part], whole[part], atol=1e-4, rtol=1e-3)
    sharded, one = (load_run(tmp_path / name).summary for name in ("two", "one"))
    assert sharded["metrics"] == pytest.approx(one["metrics"], abs=1e-4)
    for name in ("parameters", "cost_per_sample", "protocol", "chance"):  # of the whole model
        assert sharded[name] == one[name]
    assert sharded["best"]["epoch"] == one["best"]["epoch"]


@pytest.mark.parametrize(
    "order",
    [("fsdp", "cpu"), *(pytest.param(order, marks=pytest.mark.slow) for order in (("cpu", "fsdp"), ("fsdp", "fsdp")))],
)
def test_a_run_goes_on_with_split_weights_or_without(
    tmp_path: Path, order: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The optimiser has two groups of weights, with decay and without, so that a wrong order of its states shows."""
    trainers = {"fsdp": (*FSDP, "trainer.devices=1"), "cpu": ("trainer=cpu",)}
    options = ("optim.epochs=3", "optim.weight_decay=0.1", "encoder.dropout=0.1", "data.batch_size=32")
    whole = train(tmp_path / "whole", "trainer=cpu", *options)
    assert len(whole["optimizer_states"][0]["param_groups"]) == 2
    folder = tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr(Checkpoints, "on_train_epoch_start", stop_in_second_epoch, raising=False)
        words = last_of_each([*RUN, *options, *trainers[order[0]], f"hydra.run.dir={folder}"])
        assert main(words) == 1
    assert main([f"resume={folder}", *trainers[order[1]]]) == 0
    assert read_summary(folder)["starts"][1]["from_step"] == 4
    last = read_checkpoint(folder / "checkpoints" / "last.ckpt")
    for group in (*last["optimizer_states"][0]["param_groups"], *whole["optimizer_states"][0]["param_groups"]):
        del group["fused"]  # only the optimiser of whole weights on a CPU is fused
    for part in ("state_dict", "optimizer_states"):
        torch.testing.assert_close(last[part], whole[part], atol=1e-5, rtol=1e-4)  # fused sums round otherwise

    assert main(["mode=eval", f"resume={folder}", *trainers[order[0]]]) == 0
    again = json.loads((folder / "eval.json").read_text())["metrics"]
    assert again == pytest.approx(read_summary(folder)["metrics"], abs=1e-6)


def stop_in_second_epoch(self: Checkpoints, trainer: pl.Trainer, module: pl.LightningModule) -> None:
    if trainer.current_epoch == 1:
        raise ValueError("bad luck")


def test_a_diverging_run_keeps_finite_checkpoints(tmp_path: Path) -> None:
    options = (*RUN, *FSDP, "trainer.devices=1", "optim.lr=1e30", "optim.clip_norm=null", "optim.epochs=3")
    assert main(last_of_each([*options, f"hydra.run.dir={tmp_path}"])) == 1
    assert read_summary(tmp_path)["status"] == "diverged"
    for file in (tmp_path / "checkpoints").glob("*.ckpt"):
        assert all(weight.isfinite().all() for weight in read_checkpoint(file)["state_dict"].values())


def test_a_weight_that_cannot_be_split_is_named(tmp_path: Path, refused: Callable[..., str]) -> None:
    options = (*RUN, *FSDP, "trainer.devices=1", "block.residual=rezero_shared", f"hydra.run.dir={tmp_path}")
    assert "trainer=fsdp: the weight encoder.gain is a single number" in refused(*last_of_each(options))


def test_half_precision_of_weights_is_refused(tmp_path: Path, refused: Callable[..., str]) -> None:
    options = (*RUN, *FSDP, "trainer.devices=1", "trainer.precision=16-mixed", f"hydra.run.dir={tmp_path}")
    assert "precision" in refused(*last_of_each(options))
