"""Builds the variants of a comparison as functions to call: forward, or forward and backward."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from sliceformer_lab.attention import build_layer
from sliceformer_lab.attention.base import LayerSpec
from sliceformer_lab.batch import Padding
from sliceformer_lab.commands.benchmark.benchmark_options import BenchmarkOptions
from sliceformer_lab.commands.benchmark.comparisons import Variant, Workload
from sliceformer_lab.commands.benchmark.peers import published_csp, published_sort, shift_index
from sliceformer_lab.commands.benchmark.rows import Mode
from sliceformer_lab.permute import shift_sort, use_backend
from sliceformer_lab.permute.schedule import shift_steps

Function = Callable[..., Tensor]


@dataclass
class Contender:
    """A variant, built; its calls use its backend.

    `function` maps `inputs` (values or tokens first) to a tensor.
    """

    function: Function
    inputs: tuple[Tensor, ...]
    module: nn.Module | None = None
    backend: str | None = None
    counted: Function | None = None  # `function` before it was compiled
    fixed: tuple[Tensor, ...] = ()  # further tensors that every call uses
    grad: Tensor | None = field(default=None, init=False)

    def prepare(self, mode: Mode) -> Callable[[], object]:
        """Put the module into a mode and return the function to call."""
        if self.module is not None:
            self.module.train(mode == "training")
        return self.infer if mode == "inference" else self.train

    def infer(self) -> Tensor:
        """A forward pass without gradients."""
        with torch.no_grad(), self._select_backend():
            return self.function(*self.inputs)

    def forward(self) -> Tensor:
        """A forward pass with gradients."""
        with self._select_backend():
            return self.function(*self.inputs)

    def train(self) -> None:
        """A forward and a backward pass from empty gradients."""
        self.drop_gradients()
        with self._select_backend():
            y = self.function(*self.inputs)
            if self.grad is None:
                self.grad = torch.randn_like(y)
            torch.autograd.backward(y, self.grad)

    def drop_gradients(self) -> None:
        """Frees the gradients of inputs and parameters."""
        for leaf in (*self.inputs, *self.parameters()):
            leaf.grad = None

    def first_sample(self) -> Tensor:
        """An uncompiled forward pass of one sample, for counting operations."""
        with torch.no_grad(), self._select_backend():
            return (self.counted or self.function)(*(tensor[:1] for tensor in self.inputs))

    def parameters(self) -> list[nn.Parameter]:
        """The parameters of the module, if any."""
        return [] if self.module is None else list(self.module.parameters())

    def constants(self) -> list[Tensor]:
        """Tensors that exist with or without a backward pass: parameters, buffers and fixed inputs."""
        buffers = [] if self.module is None else self.module.buffers()
        return [*self.fixed, *self.parameters(), *buffers]

    def _select_backend(self) -> AbstractContextManager[None]:
        return nullcontext() if self.backend is None else use_backend(self.backend)


def build(variant: Variant, workload: Workload, options: BenchmarkOptions) -> Contender:
    """The variant with weights and inputs from seed 0."""
    torch.manual_seed(0)
    contender = (_build_operator if workload.kind == "operator" else _build_layer)(variant, workload, options)
    contender.backend = variant.backend
    contender.counted = contender.function
    if options.compile:
        torch._dynamo.config.fail_on_recompile_limit_hit = True  # else it silently runs uncompiled
        contender.function = torch.compile(contender.function)
    return contender


def _draw_tokens(workload: Workload, options: BenchmarkOptions, *, train: bool = True) -> Tensor:
    shape = (workload.batch, workload.tokens, workload.channels)
    x = torch.randn(shape, device=options.device)  # a CPU would take seconds
    x = x.to(getattr(torch, options.dtype))
    return x.requires_grad_(train)


def _build_operator(variant: Variant, workload: Workload, options: BenchmarkOptions) -> Contender:
    size = workload.group_size or workload.tokens
    is_complete = size == workload.tokens
    steps = torch.tensor(shift_steps("linear_window", workload.channels, workload.tokens))  # of the published code
    steps = steps.to(options.device)
    index = shift_index(steps, workload.tokens)
    functions: dict[str, Function] = {
        "shift_sort": lambda v: shift_sort(v, None if is_complete else steps, group_size=None if is_complete else size),
        "published_csp": lambda v: published_csp(v, index, size),
        "published_sliceformer": published_sort,
        "copy": torch.clone,
    }
    return Contender(functions[variant.method], (_draw_tokens(workload, options),), fixed=(steps, index))


def _build_layer(variant: Variant, workload: Workload, options: BenchmarkOptions) -> Contender:
    spec = LayerSpec(dim=workload.channels, num_heads=workload.heads, max_len=workload.tokens)
    layer = build_layer(variant.node or {}, spec).to(options.device, getattr(torch, options.dtype))
    x = _draw_tokens(workload, options, train=False)
    if not workload.padded:
        return Contender(layer, (x,), layer)
    padding = _draw_padding(workload).to(options.device)
    padded: Function = lambda x, lengths, mask: layer(x, Padding(lengths, mask))  # noqa: E731
    return Contender(padded, (x, padding.lengths, padding.mask), layer)


def _draw_padding(workload: Workload) -> Padding:
    """Lengths between a quarter and all of the tokens, the same for every variant; the first sample is full."""
    generator = torch.Generator().manual_seed(0)
    shortest = -(-workload.tokens // 4)
    lengths = torch.randint(shortest, workload.tokens + 1, (workload.batch,), generator=generator)
    lengths[0] = workload.tokens
    return Padding(lengths, torch.arange(workload.tokens) < lengths[:, None])
