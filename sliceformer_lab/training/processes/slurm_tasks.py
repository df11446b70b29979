"""The tasks of a Slurm step as the processes of one run.

The first task runs the command, as a single process would. Each other task is connected to it, starts a process when
the first task starts a run, says how that process ended, and ends with the first task. Imports no torch.
"""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sliceformer_lab.errors import ConfigError, LabError
from sliceformer_lab.runs.processes import PARENT, ignore_stop_signals, num_tasks, process_number
from sliceformer_lab.training.processes.child_process import ProcessRank, start_child

MEETING = 300.0  # seconds in which all tasks must be connected
ANSWER = 2.0  # seconds that a connected task may take to say who it is
EVERY = 0.2  # seconds between two looks at a process
LEAVING = 30.0  # seconds in which another task ends its process
LOST = 1000  # in place of an exit code: the task itself has ended
MAX_LINE_BYTES = 65536  # bytes


@dataclass(frozen=True, kw_only=True)
class Step:
    """A Slurm step of several tasks, seen from one of them."""

    identity: str  # of this start: job, step and number of restarts
    nodes: int
    tasks: int
    tasks_per_node: str  # as Slurm writes it: 2, 2(x3) or 2,1
    place: ProcessRank  # of this task's process
    host: str  # of the first task
    port: int  # that the first task listens at


def slurm_step() -> Step | None:
    """The step whose task this process is; None outside Slurm, in a step of one task, and in a process of a task."""
    variables = os.environ
    tasks = num_tasks()
    if tasks == 1 or PARENT in variables:
        return None
    job, step = int(variables["SLURM_JOB_ID"]), int(variables["SLURM_STEP_ID"])
    local, node = int(variables["SLURM_LOCALID"]), int(variables["SLURM_NODEID"])
    return Step(
        identity=f"{job}.{step}.{variables.get('SLURM_RESTART_COUNT', '0')}",
        nodes=int(variables["SLURM_STEP_NUM_NODES"]),
        tasks=tasks,
        tasks_per_node=variables["SLURM_STEP_TASKS_PER_NODE"],
        place=ProcessRank(rank=process_number(), local_rank=local, node_rank=node, world_size=tasks),
        host=first_host(variables["SLURM_STEP_NODELIST"]),
        port=10000 + (7 * job + step) % 20000,  # below the ports that Linux gives to programs that ask for any
    )


def first_host(nodes: str) -> str:
    """The first host of a list of Slurm, such as node[003-007,9],other: node003."""
    return re.sub(r"\[([^],-]*)[^]]*\]", r"\1", nodes).split(",")[0]


def check_slurm_step(step: Step | None, num_nodes: int, num_devices: int) -> None:
    """Raises ConfigError if the tasks of the step are not the processes that `trainer` asks for."""
    given = f"trainer.num_nodes={num_nodes} trainer.devices={num_devices}"
    if step is None:
        if num_nodes > 1:
            raise ConfigError(
                f"trainer.num_nodes={num_nodes}: Slurm starts a run on several nodes, one task for each process: "
                f"srun -N {num_nodes} --ntasks-per-node={num_devices} python -m sliceformer_lab ..."
            )
        return
    if step.nodes != num_nodes or step.tasks_per_node not in (f"{num_devices}", f"{num_devices}(x{num_nodes})"):
        raise ConfigError(
            f"{given} does not fit this Slurm step (nodes: {step.nodes}, tasks per node: {step.tasks_per_node}); start "
            f"one task for each process, srun -N {num_nodes} --ntasks-per-node={num_devices}, or change num_nodes and "
            "devices (the GPUs that each task can see)"
        )
    if len(other_tasks()) < step.tasks - 1:
        raise ConfigError(
            f"{given}: the tasks of a Slurm step train one run at a time, started by the first task itself; "
            "in a sweep, use launcher=serial, or launcher=slurm with launcher.tasks_per_node outside the step"
        )


class StepTask:
    """Another task of the step, used by the first one like the process that it starts."""

    def __init__(self, link: _Link) -> None:
        self._link = link
        self._code: int | None = 0  # of a process that has ended, as at the start; None while one runs
        self._lock = threading.Lock()  # two threads look whether a process has ended

    def start(self, folder: Path, address: str, port: int) -> StepTask:
        """Lets the task start its process of the run in `folder`; returns the task itself."""
        if self.poll() is None:
            self._code = LOST  # it cannot end its last process
        if self._code != LOST:
            self._code = None
            self._send({"start": str(folder), "address": address, "port": port})
        return self

    def poll(self) -> int | None:
        """The exit code of its process, LOST if the task has ended, or None."""
        with self._lock:
            if self._code is None:
                try:
                    message = self._link.receive(0.001)
                except OSError:
                    self._code = LOST
                else:
                    self._code = None if message is None else int(message["ended"])
        return self._code

    def wait(self, timeout: float = LEAVING) -> int:
        """The exit code of its process once it has ended. Raises TimeoutExpired."""
        deadline = time.monotonic() + timeout
        while (code := self.poll()) is None:
            if time.monotonic() > deadline:
                raise subprocess.TimeoutExpired("another task", timeout)
            time.sleep(EVERY / 4)
        return code

    def kill(self) -> None:
        """Lets the task end its process."""
        if self.poll() is None:
            self._send({"kill": True})

    def _send(self, message: Mapping[str, object]) -> None:
        try:
            self._link.send(message)
        except OSError:
            self._code = LOST


_others: tuple[int, list[StepTask]] = (0, [])  # with the process that is connected to them
_first: tuple[_Link, ProcessRank] | None = None


def other_tasks() -> list[StepTask]:
    """The other tasks of the step, by their numbers; none outside `joined_step`, in these tasks, and in a fork."""
    process, tasks = _others
    return tasks if process == os.getpid() else []


def is_other_task() -> bool:
    """Whether this process is another task of a step than the first; it must `follow` that one."""
    return _first is not None


@contextmanager
def joined_step() -> Iterator[None]:
    """Connects the tasks of the Slurm step that this process belongs to, if any. Raises LabError if one is missing."""
    global _others, _first
    if (step := slurm_step()) is None or _others[1] or _first:
        yield
        return
    with ExitStack() as stack:
        if step.place.rank == 0:
            _others = os.getpid(), _wait_for_others(step, stack)
        else:
            _first = _connect(step, stack), step.place
        try:
            yield
        finally:
            _others, _first = (0, []), None


def follow() -> None:
    """Starts a process for each run that the first task starts, until the first task ends.

    Slurm sends its signals to the processes too. They stop together, so this task only waits for its own.
    """
    if _first is not None:
        ignore_stop_signals()
        _serve(*_first)


def _serve(link: _Link, place: ProcessRank) -> None:
    child: subprocess.Popen[bytes] | None = None
    try:
        while True:
            message = link.receive(None if child is None else EVERY) or {}
            if "start" in message:
                child = start_child(Path(message["start"]), place, message["address"], message["port"])
            if child is not None:
                if "kill" in message:
                    child.kill()
                    child.wait()
                if (code := child.poll()) is not None:
                    link.send({"ended": code})
                    child = None
    except OSError:  # the first task has ended
        if child is not None:
            child.kill()
            child.wait()


def _wait_for_others(step: Step, stack: ExitStack) -> list[StepTask]:
    """Waits until the other tasks are connected, as long as `stack` is open; by their numbers."""
    found: dict[int, StepTask] = {}
    deadline = time.monotonic() + MEETING
    try:
        server = stack.enter_context(socket.create_server(("", step.port), backlog=step.tasks))
    except OSError as error:
        raise LabError(
            f"the tasks of this Slurm step meet at port {step.port} of {step.host}, which cannot be used "
            f"({error.strerror or error}); start the job again, its new number gives another port"
        ) from error
    while len(found) < step.tasks - 1:
        server.settimeout(max(0.001, deadline - time.monotonic()))
        try:
            link = _Link(stack.enter_context(server.accept()[0]))
        except TimeoutError:
            raise LabError(
                f"{step.tasks - 1 - len(found)} of {step.tasks} tasks of this Slurm step did not connect to "
                f"{step.host}:{step.port} in {MEETING:.0f} s; did they start, and do the nodes reach each other?"
            ) from None
        with suppress(OSError, KeyError, ValueError):  # a stranger at the port
            hello = link.receive(ANSWER) or {}
            if hello["identity"] == step.identity:
                link.send({"identity": step.identity})
                found[int(hello["number"])] = StepTask(link)
    return [found[number] for number in sorted(found)]


def _connect(step: Step, stack: ExitStack) -> _Link:
    """A connection to the first task, as long as `stack` is open."""
    deadline = time.monotonic() + MEETING
    while time.monotonic() < deadline:
        with ExitStack() as attempt, suppress(OSError):
            connection = socket.create_connection((step.host, step.port), timeout=ANSWER)
            link = _Link(attempt.enter_context(connection))
            link.send({"identity": step.identity, "number": step.place.rank})
            answer = link.receive(max(0.001, deadline - time.monotonic()))  # a stranger may be ahead in the queue
            if (answer or {}).get("identity") == step.identity:
                stack.push(attempt.pop_all())
                return link
        time.sleep(EVERY)
    raise LabError(
        f"the first task of this Slurm step did not answer at {step.host}:{step.port} in {MEETING:.0f} s; "
        "did it end, and do the nodes reach each other?"
    )


class _Link:
    """Messages over a connection, each a line of JSON."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)  # an idle one stays known to firewalls
        self._connection = connection
        self._unread = b""

    def send(self, message: Mapping[str, object]) -> None:
        """Sends a message. Raises OSError if the connection has ended."""
        self._connection.settimeout(LEAVING)
        self._connection.sendall(json.dumps(message).encode() + b"\n")

    def receive(self, seconds: float | None) -> dict[str, Any] | None:
        """The next message; None if none arrives in time. Raises OSError if the connection has ended."""
        self._connection.settimeout(seconds)
        while b"\n" not in self._unread:
            try:
                part = self._connection.recv(4096)
            except TimeoutError:
                return None
            if not part or len(self._unread) > MAX_LINE_BYTES:
                raise ConnectionError("the connection has ended")
            self._unread += part
        line, _, self._unread = self._unread.partition(b"\n")
        with suppress(ValueError):
            message = json.loads(line)
            if isinstance(message, dict):
                return message
        raise ConnectionError("the other side sent no message of ours")
