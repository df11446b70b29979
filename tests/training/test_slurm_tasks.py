"""The first task of a Slurm step and the others find each other, and see each other's end. No Slurm is needed."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.plans import plan_of
from support.runs import small_config

from sliceformer_lab.errors import ConfigError, LabError
from sliceformer_lab.runs.processes import PARENT, is_first_process, process_number
from sliceformer_lab.training.processes import slurm_tasks
from sliceformer_lab.training.processes.child_process import ProcessRank
from sliceformer_lab.training.processes.other_processes import num_devices
from sliceformer_lab.training.processes.slurm_tasks import (
    LOST,
    Step,
    StepTask,
    check_slurm_step,
    first_host,
    is_other_task,
    joined_step,
    other_tasks,
    slurm_step,
)

TASK = {  # variables of the second of two tasks
    "SLURM_JOB_ID": "12",
    "SLURM_STEP_ID": "3",
    "SLURM_STEP_NUM_TASKS": "2",
    "SLURM_STEP_NUM_NODES": "2",
    "SLURM_STEP_TASKS_PER_NODE": "1(x2)",
    "SLURM_STEP_NODELIST": "node[08,10]",
    "SLURM_NODEID": "1",
    "SLURM_LOCALID": "0",
}


@pytest.fixture
def task(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """This process is the second of two tasks."""
    monkeypatch.delenv(PARENT, raising=False)
    for name, value in TASK.items():
        monkeypatch.setenv(name, value)
    return monkeypatch


@pytest.fixture
def step() -> Step:
    """A step of two tasks on this machine, seen from the first."""
    with socket.create_server(("", 0)) as free:
        port = free.getsockname()[1]
    return Step(identity="1.0.0", nodes=1, tasks=2, tasks_per_node="2", place=place(0), host="127.0.0.1", port=port)


def place(rank: int) -> ProcessRank:
    return ProcessRank(rank=rank, local_rank=rank, node_rank=0, world_size=2)


@contextmanager
def other_task(step: Step) -> Iterator[StepTask]:
    """The other task, as the first one sees it."""
    with ExitStack() as stack:
        yield slurm_tasks._wait_for_others(step, stack)[0]


@pytest.fixture
def other(step: Step, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[subprocess.Popen[bytes]]]:
    """The other task, a thread here; the processes that it started, which do nothing but wait."""
    started: list[subprocess.Popen[bytes]] = []

    def start(*given: Any) -> subprocess.Popen[bytes]:
        assert given == (Path("folder"), second.place, "127.0.0.1", 99)
        started.append(subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE))
        return started[-1]

    def run() -> None:
        with ExitStack() as stack:
            slurm_tasks._serve(slurm_tasks._connect(second, stack), second.place)

    second = replace(step, place=place(1))
    monkeypatch.setattr(slurm_tasks, "start_child", start)
    thread = threading.Thread(target=run)
    thread.start()
    yield started
    thread.join(10)
    assert not thread.is_alive() and all(child.poll() is not None for child in started)


def test_the_place_of_a_task_follows_from_its_node(task: pytest.MonkeyPatch) -> None:
    found = slurm_step()
    assert found is not None and not is_first_process()
    assert (found.identity, found.host) == ("12.3.0", "node08")
    assert found.place == ProcessRank(rank=1, local_rank=0, node_rank=1, world_size=2)
    task.setenv("SLURM_RESTART_COUNT", "1")
    again = slurm_step()
    assert again.identity != found.identity and again.port == found.port


@pytest.mark.parametrize(("node", "local", "number"), [(0, 0, 0), (0, 1, 1), (1, 0, 2), (1, 1, 3)])
def test_tasks_are_numbered_node_after_node(task: pytest.MonkeyPatch, node: int, local: int, number: int) -> None:
    for name, value in {"STEP_NUM_TASKS": 4, "NODEID": node, "LOCALID": local, "PROCID": 9}.items():
        task.setenv(f"SLURM_{name}", str(value))
    assert process_number() == number and is_first_process() == (number == 0)
    task.setenv("RANK", "3")  # of the process that the task started
    assert process_number() == 3


@pytest.mark.parametrize("variable", [("SLURM_STEP_NUM_TASKS", "1"), (PARENT, "7")])
def test_one_task_or_a_process_of_a_task_is_no_step(task: pytest.MonkeyPatch, variable: tuple[str, str]) -> None:
    task.setenv(*variable)
    assert slurm_step() is None


@pytest.mark.parametrize(
    ("nodes", "first"), [("vm", "vm"), ("n7,n1", "n7"), ("a[003-007,9],b", "a003"), ("r[2,4]n[01-3]-x", "r2n01-x")]
)
def test_the_first_host_of_a_list(nodes: str, first: str) -> None:
    assert first_host(nodes) == first


@pytest.mark.parametrize(("nodes", "devices", "per_node"), [(1, 2, "2"), (3, 2, "2(x3)"), (2, 1, "1(x2)")])
def test_one_task_for_each_process_fits(
    step: Step, nodes: int, devices: int, per_node: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = replace(step, nodes=nodes, tasks=nodes * devices, tasks_per_node=per_node)
    others = [None] * (step.tasks - 1)
    monkeypatch.setattr(slurm_tasks, "_others", (os.getpid(), others))
    check_slurm_step(step, nodes, devices)
    monkeypatch.setattr(slurm_tasks, "_others", (os.getppid(), others))  # in a job of launcher=local
    with pytest.raises(ConfigError, match="the tasks of a Slurm step train one run at a time"):
        check_slurm_step(step, nodes, devices)


@pytest.mark.parametrize(("nodes", "devices", "per_node"), [(1, 2, "1"), (2, 1, "2"), (2, 2, "3,1"), (1, 1, "2")])
def test_other_tasks_than_the_trainer_asks_for_are_refused(step: Step, nodes: int, devices: int, per_node: str) -> None:
    step = replace(step, nodes=2 if "," in per_node else 1, tasks_per_node=per_node)
    with pytest.raises(ConfigError, match=f"srun -N {nodes} --ntasks-per-node={devices}"):
        check_slurm_step(step, nodes, devices)


@pytest.mark.parametrize(("devices", "count"), [(2, 2), ("3", 3), ([0, 2], 2), ("0,2,", 2), (-1, 1), ("auto", 1)])
def test_the_number_of_processes_on_a_node(devices: object, count: int) -> None:
    plan = plan_of(small_config("trainer=cpu"))
    trainer = replace(plan.trainer, devices=devices, accelerator="cpu")
    assert num_devices(trainer) == count


def test_the_first_task_starts_and_ends_processes_of_the_other_one_and_sees_their_ends(
    step: Step, other: list[subprocess.Popen[bytes]]
) -> None:
    with other_task(step) as found:
        for _ in range(2):  # jobs of a sweep
            found.start(Path("folder"), "127.0.0.1", 99)
            assert found.poll() is None
            found.kill()
            assert found.wait(5) == -signal.SIGKILL
        found.start(Path("folder"), "127.0.0.1", 99)
        while len(other) < 3:
            time.sleep(0.05)
        other[2].communicate(b"\n")  # ends by itself
        assert found.wait(5) == 0 == found.poll()
        found.start(Path("folder"), "127.0.0.1", 99)
        time.sleep(0.3)
    assert len(other) == 4  # the fixture sees that the last one ends with the first task


def test_the_first_task_sees_the_end_of_the_other_one(step: Step) -> None:
    with ExitStack() as stack:
        thread = threading.Thread(target=slurm_tasks._connect, args=(replace(step, place=place(1)), stack))
        thread.start()
        with other_task(step) as found:
            thread.join()
            found.start(Path("folder"), "127.0.0.1", 99)
            stack.close()
            assert found.wait(5) == LOST
            assert found.start(Path("folder"), "127.0.0.1", 99).poll() == LOST


def test_a_missing_task_is_named_in_time(task: pytest.MonkeyPatch) -> None:
    task.setattr(slurm_tasks, "MEETING", 0.3)
    task.setenv("SLURM_STEP_NODELIST", "127.0.0.1")
    with pytest.raises(LabError, match="the first task of this Slurm step did not answer"), joined_step():
        pass
    task.setenv("SLURM_NODEID", "0")
    with pytest.raises(LabError, match="1 of 2 tasks of this Slurm step did not connect"), joined_step():
        pass
    assert not other_tasks() and not is_other_task()


def test_a_port_in_use_is_named(task: pytest.MonkeyPatch) -> None:
    task.setenv("SLURM_NODEID", "0")
    step = slurm_step()
    with (
        socket.create_server(("", step.port)),
        pytest.raises(LabError, match=f"port {step.port} .* cannot be used"),
        joined_step(),
    ):
        pass
