"""A GPU that only knows shapes: operations between its tensors and those of the CPU fail, as on a real one.

It runs on any machine. Forward passes only: the backward pass of torch asks for a real device. Nothing is computed.
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from typing import TypeVar

import torch
from torch import Tensor, nn
from torch._subclasses import FakeTensorMode

from sliceformer_lab.batch import Movable

Record = TypeVar("Record", bound=Movable)


class FakeGPU(FakeTensorMode):
    """A context; tensors made inside it on `cuda` are fake, and only what is put on it may be used inside it."""

    def put(self, tensor: Tensor) -> Tensor:
        """The tensor on the fake GPU."""
        with torch.no_grad():
            moved: Tensor = self.from_tensor(tensor).to("cuda")
        return moved.requires_grad_(tensor.requires_grad)

    def put_record(self, record: Record) -> Record:
        """A record of tensors and of other records on the fake GPU."""
        moved = {}
        for field in fields(record):
            value = getattr(record, field.name)
            if isinstance(value, Tensor):
                moved[field.name] = self.put(value)
            elif is_dataclass(value) and isinstance(value, Movable):
                moved[field.name] = self.put_record(value)
        return replace(record, **moved)

    def put_module(self, module: nn.Module) -> None:
        """Parameters and buffers on the fake GPU; other tensors of a module stay, as in `module.to("cuda")`."""
        for part in module.modules():
            for name, parameter in part._parameters.items():
                part._parameters[name] = parameter if parameter is None else nn.Parameter(self.put(parameter))
            for name, buffer in part._buffers.items():
                part._buffers[name] = None if buffer is None else self.put(buffer)
