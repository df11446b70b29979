"""A task as a program for ExecuTorch, the runtime of phones and microcontrollers."""

from __future__ import annotations

import re
from pathlib import Path

import torch
from torch import Tensor

from sliceformer_lab.commands.export.program import MAX_NETWORK_TOKENS, Predict, reason_of
from sliceformer_lab.errors import LabError

INSTEAD = "use format=onnx or format=torch_export"
IF_SORT = (
    "csp and sliceformer with reference=none become minima and maxima in windows of at most "
    f"{MAX_NETWORK_TOKENS} tokens; otherwise {INSTEAD}"
)


def write_executorch(program: torch.export.ExportedProgram, file: Path) -> Predict:
    """Writes a program of one input for ExecuTorch and returns what its runtime computes from the file.

    XNNPACK gets what it takes, the portable kernels the rest. Raises LabError if ExecuTorch is missing, or lacks an
    operator of the model.
    """
    try:
        from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
        from executorch.exir import to_edge_transform_and_lower
        from executorch.runtime import Runtime
    except ImportError as error:
        raise LabError(
            f"format=executorch needs {error.name}; run pip install 'sliceformer-lab[executorch]'"
        ) from error

    try:
        lowered = to_edge_transform_and_lower(program, partitioner=[XnnpackPartitioner()]).to_executorch()
    except Exception as error:  # of ExecuTorch, of many kinds
        refused = re.search(r"Operator torch\._ops\.(\S+) is not", str(error))
        raise _refusal(f"it has no operator {refused[1]}" if refused else reason_of(error)) from error
    runtime = Runtime.get()
    known = runtime.operator_registry.operator_names
    operators = lowered.executorch_program.execution_plan[0].operators
    if missing := sorted({f"{op.name}.{op.overload}" if op.overload else op.name for op in operators} - known):
        raise _refusal(f"it has no operator {' and '.join(missing)}")
    file.write_bytes(lowered.buffer)
    method = runtime.load_program(file).load_method("forward")

    def predict(*arguments: Tensor) -> Tensor:
        rows = zip(*(torch.split(argument, 1) for argument in arguments), strict=True)
        return torch.cat([method.execute(list(row))[0] for row in rows])

    return predict


def _refusal(reason: str) -> LabError:
    return LabError(f"ExecuTorch cannot take this model ({reason}); {IF_SORT if 'sort' in reason else INSTEAD}")
