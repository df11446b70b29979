"""A task as a function of tensors, and as a program in the formats of torch, ONNX and ExecuTorch."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from sliceformer_lab.batch import Batch, Padding
from sliceformer_lab.data.spec import DataSpec
from sliceformer_lab.errors import LabError
from sliceformer_lab.permute.exported import decomposed, slice_shifts
from sliceformer_lab.training.interfaces import TaskModule

Predict = Callable[..., Tensor]  # inputs, and the lengths of padded sequences -> output
MOST = 4096  # samples in a batch of an exported program
MAX_NETWORK_TOKENS = 4096  # tokens that a program of one input sorts by minima and maxima


@dataclass(frozen=True)
class Lengths:
    """How many tokens the inputs of a program may have, padding included."""

    shortest: int
    longest: int

    @property
    def is_fixed(self) -> bool:
        """Whether all inputs have one length."""
        return self.shortest == self.longest

    def samples(self) -> list[int]:
        """Lengths to compare: both ends, their neighbours, and some between."""
        if self.is_fixed:
            return [self.longest]
        between = (self.shortest + (self.longest - self.shortest) * part // 8 for part in (1, 2, 3, 5))
        return sorted({self.shortest, self.shortest + 1, *between, self.longest - 1, self.longest})


@dataclass(frozen=True)
class Written:
    """What a comparison of a written model with the run's found."""

    difference: float  # largest, relative to the largest output
    lengths: Lengths | None = None  # tokens that the model's inputs may have; None: the sizes of the run's inputs


class Function(nn.Module):
    """A task as a function: inputs (B, ...), and for sequences of many lengths `lengths` (B,) int64 -> (B, ...)."""

    def __init__(self, task: TaskModule) -> None:
        super().__init__()
        self.task = task

    def forward(self, inputs: Tensor, lengths: Tensor | None = None) -> Tensor:
        padding = None
        if lengths is not None:
            padding = Padding(lengths, torch.arange(inputs.shape[1], device=inputs.device) < lengths[:, None])
        unused = torch.zeros(inputs.shape[0], dtype=torch.long, device=inputs.device)
        output: Tensor = self.task(Batch(inputs, unused, unused, padding))
        return output


def sample_inputs(task: TaskModule, spec: DataSpec, *, batch: int, tokens: int | None = None) -> tuple[Tensor, ...]:
    """Random inputs of `tokens` tokens or of the task's own sizes, and lengths where samples differ in length.

    The first sample has no padding. Raises LabError for a task whose inputs are more than one tensor.
    """
    example = task.example()
    if example.structure is not None or example.context is not None or len(example.inputs) != len(example):
        raise LabError(
            f"{spec.name}: its inputs are graphs, pairs or have a context, which a program of one tensor cannot take; "
            "use format=safetensors"
        )
    generator = torch.Generator().manual_seed(batch)
    sizes = example.inputs.shape[1:]
    shape = (batch, *sizes) if tokens is None else (batch, tokens, *sizes[1:])
    if example.inputs.is_floating_point():
        inputs = torch.randn(shape, generator=generator)
    else:
        inputs = torch.randint(1, max(2, spec.vocab_size), shape, generator=generator)
    if not spec.ragged:
        return (inputs,)
    lengths = torch.randint(1, shape[1] + 1, (batch,), generator=generator)
    lengths[0] = shape[1]
    return inputs, lengths


def exported(
    task: TaskModule, spec: DataSpec, lengths: Lengths | None, *, one_input: bool = False
) -> torch.export.ExportedProgram:
    """The task as a program of plain torch operators, for batches of any size, and of any of these lengths.

    `lengths` is None for inputs of the task's own sizes. With `one_input`, a batch has one input, sizes are fixed,
    shifts are slices and sorts are networks. Raises LabError with torch's reason if the model cannot be exported.
    """
    tokens = None if lengths is None or lengths.is_fixed else lengths.longest - 1  # an end would be taken as fixed
    arguments = sample_inputs(task, spec, batch=1 if one_input else 3, tokens=tokens)
    batch: dict[int, Any] = {} if one_input else {0: torch.export.Dim("batch", min=1, max=MOST)}
    sizes = [dict(batch) for _ in arguments]
    if lengths is not None and tokens is not None:
        sizes[0][1] = torch.export.Dim.DYNAMIC(min=lengths.shortest, max=lengths.longest)
    operator = partial(decomposed, longest_network=MAX_NETWORK_TOKENS if one_input else 0)
    try:
        with torch.no_grad():
            program = torch.export.export(Function(task), arguments, dynamic_shapes=tuple(sizes))
            if one_input:
                slice_shifts(program)
            plain: torch.export.ExportedProgram = program.run_decompositions(
                {torch.ops.sliceformer_lab.shift_sort.default: operator}
            )
            return plain
    except Exception as error:  # torch's own, of many kinds
        reason = f"{type(error).__name__}: {str(error).strip().splitlines()[0]}"
        raise LabError(f"torch.export cannot export this model ({reason}); use format=safetensors") from error


def lengths_of(program: torch.export.ExportedProgram) -> Lengths:
    """The lengths that a program takes: an operator may need a window of tokens at least."""
    name = program.graph_signature.user_inputs[0]
    size = next(node for node in program.graph.nodes if node.name == name).meta["val"].shape[1]
    if isinstance(size, int):
        return Lengths(size, size)
    found = program.range_constraints[size.node.expr]
    return Lengths(int(found.lower), int(found.upper))


def write_program(program: torch.export.ExportedProgram, file: Path) -> Predict:
    """Saves a program and returns what the file computes."""
    torch.export.save(program, file)
    module: Predict = torch.export.load(file).module()
    return module


def write_onnx(program: torch.export.ExportedProgram, file: Path) -> Predict:
    """Writes a program as ONNX and returns what ONNX Runtime computes from the file.

    Raises LabError if an operator has no counterpart.
    """
    import onnxruntime
    from onnxscript import opset18

    op: Any = opset18

    def stable_sort(x: Any, stable: bool = True, dim: int = -1, descending: bool = False) -> Any:
        """ONNX's TopK, which puts equal values in their order; torch has no translation of its own."""
        del stable
        size = op.Reshape(op.Gather(op.Shape(x), op.Constant(value_ints=[dim])), op.Constant(value_ints=[1]))
        return op.TopK(x, size, axis=dim, largest=int(descending), sorted=1)

    level = logging.root.manager.disable
    logging.disable(logging.INFO)  # onnx_ir reports each of its passes, and fails if a handler prints that
    try:
        found = torch.onnx.export(
            program,
            (),
            dynamo=True,
            verbose=False,
            custom_translation_table={torch.ops.aten.sort.stable: stable_sort},
        )
        if found is None:
            raise LabError("torch.onnx.export returned no program")
        found.save(file)
        session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    except Exception as error:  # of torch, onnxscript or ONNX Runtime
        reason = reason_of(error)
        raise LabError(f"this model cannot be exported to ONNX ({reason}); use format=torch_export") from error
    finally:
        logging.disable(level)
    names = [value.name for value in session.get_inputs()]

    def predict(*arguments: Tensor) -> Tensor:
        values = {name: argument.numpy() for name, argument in zip(names, arguments, strict=True)}
        return torch.from_numpy(session.run(None, values)[0])

    return predict


def write_executorch(program: torch.export.ExportedProgram, file: Path) -> Predict:
    """Writes a program of one input for ExecuTorch and returns what its runtime computes from the file.

    ExecuTorch is the runtime of phones and microcontrollers. XNNPACK gets what it takes, the portable kernels the
    rest. Raises LabError if ExecuTorch lacks an operator of the model.
    """
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.exir import to_edge_transform_and_lower
    from executorch.runtime import Runtime

    try:
        lowered = to_edge_transform_and_lower(program, partitioner=[XnnpackPartitioner()]).to_executorch()
    except Exception as error:  # of ExecuTorch, of many kinds
        refused = re.search(r"Operator torch\._ops\.(\S+) is not", str(error))
        raise _explain_refusal(f"it has no operator {refused[1]}" if refused else reason_of(error)) from error
    runtime = Runtime.get()
    known = runtime.operator_registry.operator_names
    operators = lowered.executorch_program.execution_plan[0].operators
    if missing := sorted({f"{op.name}.{op.overload}" if op.overload else op.name for op in operators} - known):
        raise _explain_refusal(f"it has no operator {' and '.join(missing)}")
    file.write_bytes(lowered.buffer)
    method = runtime.load_program(file).load_method("forward")

    def predict(*arguments: Tensor) -> Tensor:
        rows = zip(*(torch.split(argument, 1) for argument in arguments), strict=True)
        return torch.cat([method.execute(list(row))[0] for row in rows])

    return predict


def _explain_refusal(reason: str) -> LabError:
    instead = "use format=onnx or format=torch_export"
    if "sort" in reason:
        instead = (
            "csp and sliceformer with reference=none become minima and maxima in windows of at most "
            f"{MAX_NETWORK_TOKENS} tokens; otherwise {instead}"
        )
    return LabError(f"ExecuTorch cannot take this model ({reason}); {instead}")


def reason_of(error: BaseException) -> str:
    """The line of an error that names the operator, or the first line of the error that caused all others."""
    first = error
    while first.__cause__ is not None:
        first = first.__cause__
    lines = [line for line in str(error).splitlines() if "No ONNX function" in line]
    lines = lines or str(first).strip().splitlines()[:1]
    return " ".join(lines)
