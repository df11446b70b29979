"""The comparisons of each suite: workloads and variants, as plain data for the measuring process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from sliceformer_lab.attention.permutation import PermutationAttention
from sliceformer_lab.commands.benchmark import peers
from sliceformer_lab.commands.benchmark.benchmark_options import BenchmarkOptions
from sliceformer_lab.config.compose import load_option, no_such_option, option_names
from sliceformer_lab.config.hybrid import attention_nodes
from sliceformer_lab.config.schema import ConfigError
from sliceformer_lab.permute import available_backends

Shapes = Mapping[int, tuple[int, int]]  # tokens -> samples, channels

CUSTOM = {"cpu": "cpu", "cuda": "triton"}  # device -> the backend with our kernel
# About the same number of tokens in a batch for every length; channels as in the papers' models.
LAYER_SHAPES: Shapes = {
    64: (64, 512),
    256: (32, 256),
    512: (16, 256),
    1024: (8, 256),
    2048: (4, 256),
    4096: (2, 256),
    8192: (1, 256),
    16384: (1, 128),
}
OPERATOR_SHAPES: Shapes = {
    64: (64, 512),
    196: (64, 384),
    1024: (8, 256),
    2048: (8, 256),
    4096: (8, 256),
    16384: (1, 128),
}
GROUP_SIZES = {"cpu": (1, 2, 4, 8, 32, None), "cuda": (2, 32, None)}  # None: a complete sort
CUDA_TOKENS = 2**19  # in a batch; with 2^16 an H100 computes a layer faster than Python launches it
MAX_PLAIN_MAP_TOKENS = {"cpu": 4096, "cuda": 1024}  # longer maps, B H N^2 values several times over, fill the memory
PADDED_ATTENTIONS = ("samsa", "sliceformer", "csp")
LAYER_ATTENTIONS = ("torch_mha", "samsa", "published_sliceformer", "published_csp", "sliceformer", "csp")
PEERS: dict[str, type] = {
    "torch_mha": peers.TorchMHA,
    "published_csp": peers.PublishedCSP,
    "published_sliceformer": peers.PublishedSliceformer,
}


@dataclass(frozen=True)
class Workload:
    """The sizes of the input and the layer that all variants of a comparison share."""

    name: str
    kind: Literal["operator", "layer"]
    tokens: int
    batch: int
    channels: int
    heads: int = 8
    group_size: int | None = None  # of the operator; None: complete sort
    padded: bool = False  # samples have a quarter to all of the tokens


@dataclass(frozen=True)
class Variant:
    """A method with one of its implementations."""

    method: str
    way: str = ""  # a backend of the permutation library, or fused | plain softmax
    node: Mapping[str, Any] | None = None  # of the attention
    backend: str | None = None

    @property
    def name(self) -> str:
        """The name in tables and figures."""
        return f"{self.method} ({self.way})" if self.way else self.method


@dataclass(frozen=True)
class SpeedComparison:
    """Variants that one process measures in turns on one workload."""

    workload: Workload
    variants: tuple[Variant, ...]
    against: Variant  # the denominator of ratios, one of the variants


def comparisons(options: BenchmarkOptions) -> list[SpeedComparison]:
    """The comparisons of a suite. Raises ConfigError for an attention whose options do not fit."""
    if options.suite == "layers":
        return [_compare_layers(options, tokens) for tokens in options.sizes or LAYER_SHAPES]
    sizes = [(tokens, size) for tokens in options.sizes or OPERATOR_SHAPES for size in GROUP_SIZES[options.device]]
    return [_compare_operators(options, tokens, size) for tokens, size in sizes if size is None or tokens % size == 0]


def _compare_operators(options: BenchmarkOptions, tokens: int, group_size: int | None) -> SpeedComparison:
    """The permutation alone: a complete sort against Sliceformer's published code, others against CSP's."""
    batch, channels = _choose_shape(OPERATOR_SHAPES, tokens, options)
    size = tokens if group_size is None else group_size
    title = "complete" if group_size is None else f"G={group_size}"
    workload = Workload(f"operator {title}", "operator", tokens, batch, channels, group_size=size)
    published = Variant("published_csp")
    against = Variant("published_sliceformer") if group_size is None else published
    ways = ("reference", *_list_backends(options)) if options.device == "cpu" else _list_backends(options)
    ours = [Variant("shift_sort", way, backend=way) for way in ways]
    return SpeedComparison(workload, tuple(dict.fromkeys((against, published, *ours, Variant("copy")))), against)


def _compare_layers(options: BenchmarkOptions, tokens: int) -> SpeedComparison:
    """The named attentions, in all implementations, against fused softmax attention."""
    batch, channels = _choose_shape(LAYER_SHAPES, tokens, options)
    name = "padded layer" if options.padded else "layer"
    workload = Workload(name, "layer", tokens, batch, channels, padded=options.padded)
    usual = PADDED_ATTENTIONS if options.padded else LAYER_ATTENTIONS
    names = usual if options.attentions is None else options.attentions
    fused = Variant("mha", "fused", _node_of(peers.FusedSoftmax))
    plain = Variant("mha", "plain", _node_of(peers.PlainSoftmax))
    softmax = [fused] if tokens > MAX_PLAIN_MAP_TOKENS[options.device] else [fused, plain]
    if options.padded and options.device == "cuda" and options.dtype != "float32":
        softmax.append(Variant("mha", "packed", _node_of(peers.PackedSoftmax)))
    others = [v for name in dict.fromkeys((*names, "identity")) for v in variants(name, options)]
    return SpeedComparison(workload, (*softmax, *(v for v in others if v.method != "mha")), fused)


def variants(name: str, options: BenchmarkOptions) -> list[Variant]:
    """An attention in every implementation for this device. Raises ConfigError if its options do not fit."""
    names = sorted([*option_names("attention"), *PEERS])
    if name not in names:
        raise ConfigError(no_such_option("attentions", name, names))
    node = _node_of(PEERS[name]) if name in PEERS else load_option("attention", name)
    kinds = [layer.target for layer in attention_nodes(node)]
    if options.padded and not all(kind.accepts_padding for kind in kinds):
        raise ConfigError(f"attentions: {name} accepts no padding; leave it out, or set padded=false")
    if not any(issubclass(kind, PermutationAttention) for kind in kinds):
        return [Variant(name, node=node)]
    return [Variant(name, way, node, backend=way) for way in _list_backends(options)]


def _list_backends(options: BenchmarkOptions) -> list[str]:
    """The backends to compare on the device: plain torch, and our kernel if this machine has it."""
    names = ("plain", CUSTOM[options.device])
    return [name for name in names if name in available_backends()]


def _node_of(cls: type) -> dict[str, str]:
    return {"_target_": f"{cls.__module__}.{cls.__name__}"}


def _choose_shape(shapes: Shapes, tokens: int, options: BenchmarkOptions) -> tuple[int, int]:
    """Samples and channels at this length: those of the next smaller length in `shapes`, or of the first."""
    if options.device == "cuda":
        shapes = {64: (max(1, CUDA_TOKENS // tokens), 512)}
    nearest = max((length for length in shapes if length <= tokens), default=min(shapes))
    batch, channels = shapes[nearest]
    return options.batch or batch, channels
