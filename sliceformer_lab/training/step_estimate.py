"""Time and memory of the largest training step on a CPU, estimated from one example before the first step."""

from __future__ import annotations

import copy
import logging
import math
import time

import torch
from pytorch_lightning.utilities.seed import isolate_rng
from torch import Tensor

from sliceformer_lab.batch import Batch
from sliceformer_lab.config.plain_checks import physical_memory
from sliceformer_lab.data.base import DataModule
from sliceformer_lab.errors import LabError, MachineError, machine_error
from sliceformer_lab.measures.call_cost import saved_bytes
from sliceformer_lab.training.interfaces import TaskModule

SLOW, LARGE = 5.0, 0.25  # seconds of a step, and share of the memory, from which the estimate is logged

log = logging.getLogger(__name__)


def check_step_memory(task: TaskModule, data: DataModule, accelerator: str) -> None:
    """Log what the largest step needs, if that is much.

    Raises MachineError if what the backward pass needs is more than the machine's memory. Does nothing on a GPU, whose
    own allocator ends such a step.
    """
    if accelerator != "cpu" and torch.accelerator.is_available():
        return
    data.setup()
    split, memory = data.splits["train"], physical_memory()
    count, lengths = min(data.train_batch_size, len(split)), split.lengths()
    row = 0 if lengths is None else int(lengths.argmax())
    tokens = task.num_tokens() if lengths is None else int(lengths[row])
    try:
        seconds, saved = cost_of_example(task, split[row], memory)
    except Exception as error:
        if isinstance(error, LabError):
            raise
        if machine_error(error) is None:
            log.info(f"time and memory of a step are unknown: {error}")
            return
        seconds, saved = math.inf, memory
    weights = 2 * sum(parameter.numel() * parameter.element_size() for parameter in task.parameters())
    wanted = weights + count * saved
    step = f"a step of {count} examples of {tokens:,} tokens"
    if wanted > memory:
        ways = _ways_out(
            (memory - weights) // saved, count * task.optim.accumulate, data, task.encoder.options.checkpoint
        )
        raise MachineError(f"{step} needs over {wanted / 1e9:.1f} GB of this machine's {memory / 1e9:.1f}; {ways}")
    if count * seconds > SLOW or wanted > LARGE * memory:
        log.info(f"{step} takes at most about {count * seconds:.0f} s and at least {wanted / 1e9:.3g} GB")


def cost_of_example(task: TaskModule, example: Batch, memory: int) -> tuple[float, int]:
    """Seconds of a forward and backward pass, and bytes that are saved in between.

    The first pass is not timed: it imports and builds what later ones use. The model and the random generators do not
    change. Raises MemoryError when the bytes exceed `memory`.
    """
    model = copy.deepcopy(task).train()

    def passes() -> Tensor:
        output: Tensor = model(example)
        torch.autograd.backward(output.float().sum())
        return output

    with isolate_rng():
        saved = saved_bytes(passes, model.parameters(), memory)
        start = time.perf_counter()
        passes()
    return time.perf_counter() - start, max(1, saved)


def _ways_out(fitting: int, examples: int, data: DataModule, checkpoint: bool) -> str:
    """What to set instead: a smaller batch, a smaller length."""
    ways = []
    if fitting > 0:
        size = 2 ** int(math.log2(fitting))
        ways.append(f"data.batch_size={size} optim.accumulate={math.ceil(examples / size)}")
    if hasattr(data, "max_len"):
        ways.append("a smaller data.max_len")
    if not checkpoint:
        ways.append("encoder.checkpoint=true")
    return f"try {' or '.join(ways or ['a smaller encoder'])}"
