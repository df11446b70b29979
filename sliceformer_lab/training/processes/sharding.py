"""trainer=fsdp: every process keeps a part of the weights, gradients and optimiser states (ZeRO-3, PyTorch's FSDP2)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

from lightning_fabric.plugins import ClusterEnvironment
from pytorch_lightning.strategies import ModelParallelStrategy, Strategy
from pytorch_lightning.strategies.launchers import _SubprocessScriptLauncher
from torch import nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.optim import Optimizer

from sliceformer_lab.encoder.base import EncoderBlock
from sliceformer_lab.errors import ConfigError
from sliceformer_lab.training.interfaces import TaskModule

if TYPE_CHECKING:
    from pathlib import Path

    from torch.distributed.device_mesh import DeviceMesh

HINTS = ("no_decay", "lr_scale")  # attributes of weights that `OptimOptions.build_optimizer` reads
WHOLE = StateDictOptions(full_state_dict=True, cpu_offload=True)  # in the first process; the others get nothing


class Sharded(ModelParallelStrategy):
    """Splits the weights of a task over all processes; its checkpoints are the same files as those of one process.

    Lightning's own strategy for this saves optimiser states in another form, which only it can read, and its older
    one (FSDPStrategy) can neither clip gradients by their norm nor run on a CPU.
    """

    def __init__(self) -> None:
        super().__init__(tensor_parallel_size=1, save_distributed_checkpoint=False)

    def _configure_launcher(self) -> None:  # as DDP has it: `child_processes` starts the processes
        environment = cast(ClusterEnvironment, self.cluster_environment)
        self._launcher = _SubprocessScriptLauncher(environment, self.num_processes, self.num_nodes)

    def setup_environment(self) -> None:
        """Lets all processes share one model; Lightning would only split it between nodes."""
        self._data_parallel_size = self.num_nodes * self.num_processes
        super().setup_environment()

    def model_to_device(self) -> None:
        """Moves what is not split, such as metrics."""
        with _kept_hints(self._module):
            super().model_to_device()

    @property
    def lightning_restore_optimizer(self) -> bool:
        """Lightning gives the optimiser states to `load_optimizer_state_dict`."""
        return True

    def load_checkpoint(self, checkpoint_path: str | Path, weights_only: bool | None = None) -> dict[str, Any]:
        """The content of the file, read in each process."""
        return Strategy.load_checkpoint(self, checkpoint_path, weights_only)

    def load_model_state_dict(self, checkpoint: Mapping[str, Any], strict: bool = True) -> None:
        """Gives each process its part of the weights."""
        options = StateDictOptions(full_state_dict=True, strict=strict)
        set_model_state_dict(self._module, dict(checkpoint["state_dict"]), options=options)

    def load_optimizer_state_dict(self, checkpoint: Mapping[str, Any]) -> None:
        """Gives each process its part of the optimiser states."""
        for optimizer, saved in zip(self.optimizers, checkpoint["optimizer_states"], strict=True):
            names = _names_by_number(self._module, optimizer)
            groups = [group | {"params": [names[n] for n in group["params"]]} for group in saved["param_groups"]]
            states = {names[number]: state for number, state in saved["state"].items()}
            whole: dict[str, Any] = {"state": states, "param_groups": groups}
            set_optimizer_state_dict(self._module, optimizer, whole, options=StateDictOptions(full_state_dict=True))

    def optimizer_state(self, optimizer: Optimizer) -> dict[str, Any]:
        """The whole states as `optimizer.state_dict()` of one process has them; empty except in the first process."""
        whole: dict[str, Any] = get_optimizer_state_dict(self._module, optimizer, options=WHOLE)
        if self.global_rank != 0:
            return whole
        numbers = {name: number for number, name in _names_by_number(self._module, optimizer).items()}
        groups = [group | {"params": [numbers[name] for name in group["params"]]} for group in whole["param_groups"]]
        return {"state": {numbers[name]: state for name, state in whole["state"].items()}, "param_groups": groups}

    @property
    def _module(self) -> nn.Module:
        return cast(nn.Module, self.model)


def shard(task: TaskModule, mesh: DeviceMesh) -> None:
    """Splits the weights of a task over the processes of a mesh, once.

    Each block's weights are gathered when it runs. Those of the last block are gathered with the rest of the task,
    from the forward to the end of the backward pass: some pools use it before it runs. So are those of all blocks
    of an encoder that passes a state from block to block, because FSDP2 loses gradients that take another way than the
    inputs and outputs of a block. Raises ConfigError for a weight without dimensions.
    """
    if is_sharded(task):
        return
    if scalars := [name for name, weight in task.named_parameters() if not weight.ndim]:
        raise ConfigError(
            f"trainer=fsdp: the weight {scalars[0]} is a single number and cannot be split over processes; "
            "use trainer=ddp, or another block or norm"
        )
    with _kept_hints(task):
        stateful = any(cast(EncoderBlock, block).passes_state for block in task.encoder.blocks)
        for module in (*(() if stateful else task.encoder.blocks[:-1]), task):
            fully_shard(module, mesh=mesh["data_parallel"])


def is_sharded(task: nn.Module) -> bool:
    """Whether this process has only a part of the weights."""
    return isinstance(task, FSDPModule)


@contextmanager
def _kept_hints(task: nn.Module) -> Iterator[None]:
    """Gives the weights that PyTorch puts in place of others what the optimiser reads from those."""
    before = {name: vars(weight).copy() for name, weight in task.named_parameters()}
    yield
    for name, weight in task.named_parameters():
        vars(weight).update({hint: before[name][hint] for hint in HINTS if hint in before[name]})


def _names_by_number(model: nn.Module, optimizer: Optimizer) -> dict[int, str]:
    """The names of the weights, numbered as in the state of an optimiser: group after group."""
    names = {weight: name for name, weight in model.named_parameters()}
    weights = [weight for group in optimizer.param_groups for weight in group["params"]]
    return {number: names[weight] for number, weight in enumerate(weights)}
