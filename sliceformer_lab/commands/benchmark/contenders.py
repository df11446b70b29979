"""Builds the variants of a comparison as functions to call: forward, or a whole training step."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import TypeVar, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sliceformer_lab.attention import build_layer
from sliceformer_lab.attention.base import Attention, LayerSpec
from sliceformer_lab.attention.permutation import PermutationAttention
from sliceformer_lab.attention.samsa import SAMSA
from sliceformer_lab.commands.benchmark.benchmark_options import BenchmarkOptions
from sliceformer_lab.commands.benchmark.peers import published_csp, published_exchange, published_sort, shift_index
from sliceformer_lab.commands.benchmark.rows import Mode
from sliceformer_lab.commands.benchmark.workloads import Variant, Workload
from sliceformer_lab.config.compose import load_option
from sliceformer_lab.encoder.factory import Encoder, build_encoder
from sliceformer_lab.permute import shift_sort, use_backend
from sliceformer_lab.permute.schedule import shift_steps

BYTES = 257  # ids of LRA's text: 256 bytes and padding
SLOTS = 128  # of SAMSA's top-k for each head, by default

Function = Callable[..., Tensor]
Module = TypeVar("Module", bound=nn.Module)


@dataclass
class Contender:
    """A variant, built; its calls use its backend.

    `function` maps `inputs` (values or tokens first) to a tensor.
    """

    function: Function
    inputs: tuple[Tensor, ...]
    module: nn.Module | None = None
    backend: str | None = None
    optimiser: torch.optim.Optimizer | None = None  # takes a step after every backward pass
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
        with torch.no_grad(), self._backend():
            return self.function(*self.inputs)

    def forward(self) -> Tensor:
        """A forward pass with gradients."""
        with self._backend():
            return self.function(*self.inputs)

    def train(self) -> None:
        """A forward and a backward pass from empty gradients, and a step of the optimiser if there is one."""
        for leaf in self.leaves():
            leaf.grad = None
        with self._backend():
            y = self.function(*self.inputs)
            if self.grad is None:
                self.grad = torch.ones_like(y) if y.dim() == 0 else torch.randn_like(y)
            torch.autograd.backward(y, self.grad)
        if self.optimiser is not None:
            self.optimiser.step()

    def first_sample(self) -> Tensor:
        """An uncompiled forward pass of one sample, for counting operations."""
        with torch.no_grad(), self._backend():
            return (self.counted or self.function)(*(tensor[:1] for tensor in self.inputs))

    def leaves(self) -> list[Tensor]:
        """The tensors that receive gradients."""
        return [*(t for t in self.inputs if t.requires_grad), *self.parameters()]

    def parameters(self) -> list[nn.Parameter]:
        """The parameters of the module, if any."""
        return [] if self.module is None else list(self.module.parameters())

    def constants(self) -> list[Tensor]:
        """Tensors that exist with or without a backward pass: parameters, buffers and fixed inputs."""
        buffers = [] if self.module is None else self.module.buffers()
        return [*self.fixed, *self.parameters(), *buffers]

    def _backend(self) -> AbstractContextManager[None]:
        return nullcontext() if self.backend is None else use_backend(self.backend)


def build(variant: Variant, workload: Workload, options: BenchmarkOptions) -> Contender:
    """The variant with weights and inputs from seed 0."""
    torch.manual_seed(0)
    kinds = {
        "operator": _operator,
        "exchange": _exchange,
        "sample": _sample,
        "layer": _layer,
        "encoder": _encoder,
        "classifier": _classifier,
    }
    contender = kinds[workload.kind](variant, workload, options)
    contender.backend = variant.backend
    contender.counted = contender.function
    if options.compile:
        torch._dynamo.config.fail_on_recompile_limit_hit = True  # else it silently runs uncompiled
        contender.function = torch.compile(contender.function)
    return contender


def _tokens(workload: Workload, options: BenchmarkOptions, *, train: bool = True) -> Tensor:
    shape = (workload.batch, workload.tokens, workload.channels)
    x = torch.randn(shape).to(options.device, getattr(torch, options.dtype))
    return x.requires_grad_(train)


def _operator(variant: Variant, workload: Workload, options: BenchmarkOptions) -> Contender:
    size = workload.group_size or workload.tokens
    steps = torch.tensor(shift_steps("linear_window", workload.channels, workload.tokens))  # of the published code
    steps = steps.to(options.device)
    index = shift_index(steps, workload.tokens)
    functions: dict[str, Function] = {
        "shift_sort": lambda v: shift_sort(v, steps, group_size=size),
        "published_csp": lambda v: published_csp(v, index, size),
        "published_sliceformer": published_sort,
        "copy": torch.clone,
    }
    return Contender(functions[variant.method], (_tokens(workload, options),), fixed=(steps, index))


def _exchange(variant: Variant, workload: Workload, options: BenchmarkOptions) -> Contender:
    if variant.node is None:
        function = published_exchange if variant.method == "published_exchange" else torch.clone
        return Contender(function, (_tokens(workload, options),))
    layer = cast(PermutationAttention, _attention(variant, workload, options))
    return Contender(lambda v: layer.permute(v, None), (_tokens(workload, options),))


def _sample(variant: Variant, workload: Workload, options: BenchmarkOptions) -> Contender:
    """SAMSA's sampling of slots from keys, values and scores, or its lower bounds: a copy, or the top-k alone."""
    k, v = _tokens(workload, options), _tokens(workload, options)
    scores = torch.randn(workload.batch, workload.tokens, workload.heads).to(v).requires_grad_()
    if variant.method == "copy":
        return Contender(lambda k, v: torch.cat([k, v], dim=-1), (k, v))
    if variant.method == "topk":
        return Contender(lambda scores: scores.topk(min(SLOTS, workload.tokens), dim=1).values, (scores,))
    layer = cast(SAMSA, _attention(variant, workload, options))

    def sample(k: Tensor, v: Tensor, scores: Tensor) -> Tensor:
        slots = layer.sample(k, v, scores)
        return torch.cat([slots.keys, slots.values], dim=-1)

    return Contender(sample, (k, v, scores), layer)


def _layer(variant: Variant, workload: Workload, options: BenchmarkOptions) -> Contender:
    layer = _attention(variant, workload, options)
    return Contender(layer, (_tokens(workload, options, train=False),), layer)


def _encoder(variant: Variant, workload: Workload, options: BenchmarkOptions) -> Contender:
    encoder = _on(_build_encoder(variant, workload), options)
    return Contender(encoder, (_tokens(workload, options, train=False),), encoder)


def _classifier(variant: Variant, workload: Workload, options: BenchmarkOptions) -> Contender:
    """A byte-level text classifier with two classes, its loss and Adam, as in Sliceformer's Table 3."""
    model = _on(_TextClassifier(_build_encoder(variant, workload), workload.channels, workload.mlp), options)
    text = torch.randint(1, BYTES, (workload.batch, workload.tokens), device=options.device)
    labels = torch.randint(2, (workload.batch,), device=options.device)
    return Contender(model, (text, labels), model, optimiser=torch.optim.Adam(model.parameters(), lr=1e-4))


class _TextClassifier(nn.Module):
    """LRA's classifier, mean pooling and one hidden layer: bytes (B, N) and labels (B,) -> loss ()."""

    def __init__(self, encoder: Encoder, dim: int, hidden: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(BYTES, dim)
        self.encoder = encoder
        self.head = nn.Sequential(nn.Linear(dim, hidden), nn.ReLU(), nn.Linear(hidden, 2))

    def forward(self, text: Tensor, labels: Tensor) -> Tensor:
        logits = self.head(self.encoder(self.embed(text)).mean(dim=1))
        return F.cross_entropy(logits.float(), labels)


def _build_encoder(variant: Variant, workload: Workload) -> Encoder:
    encoder = {
        "_target_": "sliceformer_lab.encoder.encoder_options.EncoderOptions",
        "dim": workload.channels,
        "depth": workload.depth,
        "num_heads": workload.heads,
        "mlp_dim": workload.mlp,
        "position": "learned",
    }
    return build_encoder(encoder, load_option("block", "transformer"), variant.node or {}, workload.tokens)


def _attention(variant: Variant, workload: Workload, options: BenchmarkOptions) -> Attention:
    spec = LayerSpec(dim=workload.channels, num_heads=workload.heads, max_len=workload.tokens)
    return _on(build_layer(variant.node or {}, spec), options)


def _on(module: Module, options: BenchmarkOptions) -> Module:
    return module.to(options.device, getattr(torch, options.dtype))
