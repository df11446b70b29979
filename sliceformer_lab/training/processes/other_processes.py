"""The processes of a distributed run: what they decide together, how the others start and end, the first error."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import threading
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

import pytorch_lightning as pl
import torch
import torch.distributed as dist
from lightning_fabric.plugins.environments.lightning import LightningEnvironment
from pytorch_lightning.strategies.launchers import _SubprocessScriptLauncher
from torch import Tensor

from sliceformer_lab.config.checked import RunPlan, TrainerOptions
from sliceformer_lab.errors import ConfigError, Interrupted, LabError
from sliceformer_lab.runs.processes import is_first_process, num_cores
from sliceformer_lab.training.processes.child_process import ProcessRank, start_child
from sliceformer_lab.training.processes.signals import end_in_time, no_end
from sliceformer_lab.training.processes.slurm_tasks import (
    LEAVING,
    LOST,
    StepTask,
    check_slurm_step,
    other_tasks,
    slurm_step,
)

VARIABLES = ("MASTER_ADDR", "MASTER_PORT", "NODE_RANK", "LOCAL_RANK", "WORLD_SIZE")  # that Lightning sets
FIRST_ERROR = ".first_error.json"

State = TypeVar("State")
Child = subprocess.Popen[bytes] | StepTask  # another process, here or in another task of a Slurm step

log = logging.getLogger(__name__)


def any_process(trainer: pl.Trainer, here: Tensor | bool) -> bool:
    """Whether a condition holds in at least one process. All processes must call it."""
    return bool(trainer.strategy.reduce_boolean_decision(bool(here), all=False))


def of_all_processes(state: State) -> list[State]:
    """The states of all processes, by their numbers. All processes must call it."""
    if not (dist.is_available() and dist.is_initialized()):
        return [state]
    states: list[State] = [state] * dist.get_world_size()
    dist.all_gather_object(states, state)
    return states


class OwnProcesses(LightningEnvironment):
    """The first process of a run starts the others: `child_processes` does, and Lightning does not.

    Lightning's own observer kills the first process before it can record why another one ended. Under Slurm,
    Lightning would take SIGUSR1 for itself, save a checkpoint that nothing else reads, and train on.
    """

    @property
    def creates_processes_externally(self) -> bool:
        return True


def check_processes(plan: RunPlan) -> None:
    """Raises ConfigError if the machine, or the step of a Slurm job, is not made for the processes of `trainer`.

    On the CPU, a machine has one core for each process, unless the configuration wants more.
    """
    trainer, cores = plan.trainer, num_cores()
    wanted, kind, step = str(trainer.devices), trainer.accelerator, slurm_step()
    check_slurm_step(step, trainer.num_nodes, num_devices(trainer))
    if step is not None or plan.oversubscribe or not wanted.isdigit() or int(wanted) <= cores:
        return
    if kind == "cpu" or (kind == "auto" and not torch.accelerator.is_available()):
        raise ConfigError(
            f"trainer.devices={wanted}: the run may use {cores} CPU cores of this machine, and more processes wait for "
            f"each other; choose at most {cores}, or say oversubscribe=true"
        )


def num_devices(trainer: TrainerOptions) -> int:
    """The number of processes on each node, from trainer.devices: a number, a list of GPUs, or -1 for all GPUs."""
    devices = trainer.devices
    if isinstance(devices, str) and "," in devices:
        return len(devices.strip(",").split(","))
    if isinstance(devices, list):
        return len(devices)
    if str(devices) not in ("-1", "auto"):
        return int(devices)
    return 1 if trainer.accelerator == "cpu" else max(1, torch.accelerator.device_count())


def num_processes(trainer: TrainerOptions) -> int:
    """The number of processes on all nodes, which share a step."""
    return num_devices(trainer) * trainer.num_nodes


@contextmanager
def child_processes(trainer: pl.Trainer, folder: Path) -> Iterator[None]:
    """Starts the other processes of a distributed run, and ends them at the end; one process starts none.

    Under Slurm, each other task of the step starts its own. Raises the first error of any process. At the end the
    process group and the environment variables are removed, so that the next job of a sweep starts its own.
    """
    launcher = trainer.strategy.launcher
    if not is_first_process() or not isinstance(launcher, _SubprocessScriptLauncher):
        yield
        return
    (folder / FIRST_ERROR).unlink(missing_ok=True)
    environment = {name: os.environ.get(name) for name in VARIABLES}
    children = _start_children(launcher, folder)
    watch = _Observer(children, folder)
    watch.start()
    try:
        yield
        watch.expect_ends()
    except BaseException as error:
        if isinstance(error, LabError | Interrupted):  # no consequence of the error of another process
            raise
        if (first := watch.first_error()) is not None:
            raise first from error
        raise
    finally:
        watch.stop()
        if dist.is_available() and dist.is_initialized():
            dist.destroy_process_group()
        for name, value in environment.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value
        (folder / FIRST_ERROR).unlink(missing_ok=True)


def record_first_error(folder: Path, rank: int, error: BaseException) -> None:
    """Writes the error of one process down, unless another process has failed before."""
    sentence = str(error) if isinstance(error, LabError) else f"{type(error).__name__}: {error}"
    trace = "" if isinstance(error, LabError) else "".join(traceback.format_exception(error))
    with suppress(OSError), (folder / FIRST_ERROR).open("x", encoding="utf-8") as file:
        json.dump([rank, sentence, trace], file)


def _start_children(launcher: _SubprocessScriptLauncher, folder: Path) -> list[Child]:
    """Starts all processes but the first, by their numbers."""
    if (step := slurm_step()) is not None:
        os.environ.setdefault("MASTER_ADDR", step.host)
    lightning = launcher.cluster_environment
    address, port = lightning.main_address, lightning.main_port
    if step is not None:
        return [task.start(folder, address, port) for task in other_tasks()]
    world = launcher.num_processes
    places = [ProcessRank(rank=n, local_rank=n, node_rank=0, world_size=world) for n in range(1, world)]
    return [start_child(folder, place, address, port) for place in places]


class _Observer(threading.Thread):
    """Looks whether the other processes still run, and ends a run that does not notice the end of one of them."""

    EVERY = 0.5  # seconds

    def __init__(self, children: Sequence[Child], folder: Path) -> None:
        super().__init__(name="other-processes", daemon=True)
        self._children, self._folder = children, folder
        self._stopped = threading.Event()
        self._error: LabError | None = None

    def run(self) -> None:
        """Waits for the end of a child; a run whose processes wait for it forever is ended."""
        while not self._stopped.wait(self.EVERY):
            if (error := self._dead_child()) is not None:
                self._error = error
                end_in_time(error)
                return

    def first_error(self) -> LabError | None:
        """The error that another process raised before this one, or its death; None if this one was the first."""
        for _ in range(10):  # the first process notices a closed connection before the other one has ended
            if (error := self._read_error() or self._dead_child()) is not None:
                return error
            time.sleep(self.EVERY / 5)
        return None

    def expect_ends(self) -> None:
        """Waits for children that are about to end."""
        deadline = time.monotonic() + LEAVING
        for child in self._children:
            with suppress(subprocess.TimeoutExpired):
                child.wait(max(0.1, deadline - time.monotonic()))

    def stop(self) -> None:
        """Ends the children that are left."""
        self._stopped.set()
        self.join()
        if self._error is not None:
            no_end(self._error)
        for child in self._children:
            child.kill()
        for child in self._children:
            with suppress(subprocess.TimeoutExpired):
                child.wait(LEAVING)

    def _read_error(self) -> LabError | None:
        try:
            rank, sentence, trace = json.loads((self._folder / FIRST_ERROR).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        if rank == 0:
            return None
        if trace:
            log.error(trace)
        return LabError(f"process {rank + 1} of {len(self._children) + 1}: {sentence}")

    def _dead_child(self) -> LabError | None:
        for rank, child in enumerate(self._children, start=1):
            if code := child.poll():
                return self._read_error() or LabError(
                    f"process {rank + 1} of {len(self._children) + 1} {_describe_exit(code)}"
                )
        return None


def _describe_exit(code: int) -> str:
    """How a process ended, from its exit code."""
    if code == LOST:
        return "was lost, because its Slurm task has ended"
    if code > 0:
        return f"ended with exit code {code}"
    advice = ", most often because memory ran out; try a smaller data.batch_size" if code == -signal.SIGKILL else ""
    return f"was ended by {signal.Signals(-code).name}{advice}"
