"""The contract of an attention: what the encoder gives to a layer, what an operator implements, its projections."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Self

import torch
from torch import Tensor, nn

from sliceformer_lab.attention.rotary import rotate
from sliceformer_lab.batch import Edges, Padding, fill_padding

NEVER = -3e4  # a score whose weight is exactly 0 after softmax, finite in every float type, fp16 included

Observer = Callable[[Tensor, Tensor], None]


@dataclass(frozen=True, kw_only=True)
class LayerSpec:
    """The arguments that the encoder gives to one layer; an attention's own options are keyword-only arguments.

    Raises ValueError for sizes below 1, and if `num_heads` does not divide `dim` and `head_dim` is None.
    """

    dim: int  # residual width
    num_heads: int
    index: int = 0  # this layer, 0-based
    depth: int = 1  # number of layers
    max_len: int | None = None  # longest sequence, CLS or graph token included
    head_dim: int | None = None  # None: dim / num_heads (Dogs-vs-Cats has 128 -> 8 x 64)
    num_prefix: int = 0  # tokens in front of the data: CLS, graph token
    grid: tuple[int, int] | None = None  # patches of an image (rows, columns), prefix tokens not counted
    token_order: tuple[int, ...] | None = None  # the patch, counted row by row, of each token; None: row by row
    rope: bool = False  # rotate queries and keys by position
    causal: bool = False  # no token receives anything from a later one
    attention_dropout: float = 0.0  # on the attention's own weights; residual dropout is the block's
    value_bias: bool = True  # of value, and of query and key where they exist
    out_bias: bool = True
    project: bool = True  # False: the caller (MEGA) projects and calls `mix`

    def __post_init__(self) -> None:
        if self.dim < 1 or self.num_heads < 1:
            raise ValueError(f"dim and num_heads must be at least 1, got {self.dim} and {self.num_heads}")
        if self.head_dim is None and self.dim % self.num_heads:
            raise ValueError(
                f"num_heads={self.num_heads} does not divide dim={self.dim}; "
                "choose another number of heads or set head_dim"
            )
        together, channels = 2 if self.grid is None else 4, self.width // self.num_heads  # sine and cosine of each axis
        if self.rope and channels % together:
            raise ValueError(
                f"position=rope turns {together} channels together, but a head has {channels}; "
                "choose another dim, num_heads or head_dim"
            )

    @property
    def width(self) -> int:
        """Channels of all heads together, H * D."""
        return self.num_heads * (self.head_dim or self.dim // self.num_heads)


@dataclass
class LayerState:
    """The state of one forward pass through the layers. The encoder makes one and passes it to every block."""

    value: Tensor | None = None  # (B, S, width) of the last attention with `passes_state`; None before the first
    edge_features: Tensor | None = None  # (E, C) edges of the graphs, changed by the layers so far; None before them


class BlockInputs(NamedTuple):
    """What the encoder gives a block besides the tokens, and the block its attention."""

    padding: Padding | None = None
    bias: Tensor | None = None  # (B, H, N, N); None for an attention that does not accept one
    edges: Edges | None = None  # for a block that convolves
    state: LayerState | None = None
    tokens: Tensor | None = None  # (B, N, C) before the block's norm; None for the block, and without a norm

    def zero_padding(self, x: Tensor) -> Tensor:
        """x (B, N, C) with zeros at padded tokens."""
        return fill_padding(x, self.padding)


ALONE = BlockInputs()  # the tokens alone: no padding, no bias


class ComputedBuffers(nn.Module):
    """A module whose constructor computes buffers that no checkpoint holds. `to_empty` would leave them undefined."""

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Raises ValueError where memory is given to a computed buffer whose values the meta device has dropped."""
        for name in self._non_persistent_buffers_set:
            buffer = self._buffers[name]
            if buffer is not None and buffer.is_meta and not fn(buffer).is_meta:
                raise ValueError(
                    f"{type(self).__name__} computes {name} when it is built, and no state_dict holds them, so a layer "
                    "on the meta device has lost them; build the layer on another device, then call load_state_dict"
                )
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        return self


class Attention(ComputedBuffers, ABC):
    """Mixes the tokens of a set, sequence or graph. (B, N, dim) -> (B, N, dim).

    What a real token receives never depends on padding, nor on how much of it there is. Values at padded
    positions are arbitrary but finite, in forward and backward. Keys are masked, query rows never.

    A subclass implements `mix` and sets the class attributes below. Its constructor takes the `LayerSpec` positionally
    and the user's options keyword-only. That signature is the schema of its YAML, so the constructor does not repeat
    the ranges in it. The constructor raises ValueError for rope without queries and keys, for a causal layer of a
    class that looks ahead, and for a layer without projections of a class that is not mixable.
    """

    needs_qk: ClassVar[bool] = False  # allocates query and key projections and passes q, k to `mix`
    rotated_parts: ClassVar[int] = 1  # parts of a head's queries and keys; rope rotates each of them alone
    accepts_bias: ClassVar[bool] = False  # adds a (B, H, N, N) bias to its weights
    accepts_causal: ClassVar[bool] = False  # under spec.causal, reads no later token
    mixable: ClassVar[bool] = True  # `mix` is meaningful alone, so a block may do the projections
    passes_state: ClassVar[bool] = False  # `attend_in_block` reads and changes the state that the layers pass on
    reads_padding: ClassVar[bool] = False  # padded rows reach real tokens, as in a published code
    accepts_padding: bool = True
    maps_channels: ClassVar[bool] = False  # `mix` multiplies the values of each channel by a matrix of its own
    maps_heads: bool = False  # `mix` multiplies the values of a head, however many channels it has, by one matrix
    counts_steps: bool = False  # a forward pass in training changes a buffer, so it must not be repeated
    random_evaluation: bool = False  # evaluation draws random numbers too, as in a published code
    mixes_prefix: bool = True  # a token in front of a grid, such as a class token, receives something of the patches
    order_sensitive: bool = True  # without rope, a permutation of the tokens changes more than the order of the outputs
    complexity: str  # of `mix`, in N tokens, C channels, G group size ...; an operator of quadratic cost names N^2
    source: ClassVar[str]  # paper and equation
    deviation: ClassVar[str] = ""  # known differences of the published code

    def __init__(self, spec: LayerSpec, inner_mult: float = 1, qk_width: int | None = None) -> None:
        super().__init__()
        if spec.rope and not self.needs_qk:
            raise ValueError("rope rotates queries and keys, but this attention has none; choose another position")
        if spec.causal and not self.accepts_causal:
            raise ValueError(
                f"{type(self).__name__} reads later tokens, which a causal layer must not; choose mha or csp_causal"
            )
        if not (spec.project or self.mixable):
            raise ValueError(
                f"{type(self).__name__} needs more than values, queries and keys that are already computed, so a block "
                "or model that projects these itself has no place for it; choose mha or csp"
            )
        self.spec = spec
        self.head_dim = max(1, round(inner_mult * spec.width / spec.num_heads))
        self.width = spec.num_heads * self.head_dim  # channels that `mix` sees, H * D
        self.qk_width = (qk_width or self.width) if self.needs_qk else 0  # channels of queries, and of keys
        self.value = self._projection(spec.dim, self.width, spec.value_bias)
        self.query = self._projection(spec.dim, self.qk_width, spec.value_bias) if self.needs_qk else None
        self.key = self._projection(spec.dim, self.qk_width, spec.value_bias) if self.needs_qk else None
        self.out = self._projection(self.width, spec.dim, spec.out_bias)
        self._observers: list[Observer] = []

    @property
    def depends_on_order(self) -> bool:
        """Whether a permutation of the tokens changes more than the order of the outputs, with rope as configured."""
        return self.spec.rope or self.order_sensitive

    def _projection(self, inputs: int, outputs: int, bias: bool) -> nn.Module:
        return nn.Linear(inputs, outputs, bias=bias) if self.spec.project else nn.Identity()

    @abstractmethod
    def mix(self, v: Tensor, q: Tensor | None = None, k: Tensor | None = None, given: BlockInputs = ALONE) -> Tensor:
        """The operator alone: values (B, N, H*D), queries and keys (B, N, qk_width) -> (B, N, H*D)."""

    @property
    def name(self) -> str:
        """The name of this attention's file."""
        return type(self).__module__.rpartition(".")[2]

    @property
    def max_len(self) -> int:
        """The longest sequence. Raises ValueError without spec.max_len, for an attention that depends on it."""
        if self.spec.max_len is None:
            raise ValueError(f"{self.name} is built for the longest sequence, so it needs max_len")
        return self.spec.max_len

    def refuse_longer(self, num_tokens: int) -> None:
        """Raises ValueError for more tokens than `max_len`."""
        if num_tokens > self.max_len:
            raise ValueError(f"{self.name} was built for at most {self.max_len} tokens, got {num_tokens}")

    def queries_and_keys(self, q: Tensor | None, k: Tensor | None) -> tuple[Tensor, Tensor]:
        """q and k. Raises ValueError without them."""
        if q is None or k is None:
            raise ValueError(f"{self.name} mixes with queries and keys: mix(v, q, k)")
        return q, k

    def project(self, x: Tensor) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """Values (B, N, H*D), queries and keys (B, N, qk_width) of the tokens (B, N, dim), rotated under rope."""
        v = self.value(x)
        if self.query is None or self.key is None:
            return v, None, None
        return v, self.rotated(self.query(x)), self.rotated(self.key(x))

    def rotated(self, x: Tensor) -> Tensor:
        """Queries or keys (B, N, H*D), rotated by position if the spec asks for rope."""
        if not self.spec.rope:
            return x
        spec = self.spec
        parts = self.rotated_parts * spec.num_heads
        return rotate(x, parts, grid=spec.grid, num_prefix=spec.num_prefix, order=spec.token_order)

    def forward(self, x: Tensor, padding: Padding | None = None, bias: Tensor | None = None) -> Tensor:
        """(B, N, dim) -> (B, N, dim); bias (B, H, N, N) is ignored unless `accepts_bias`.

        Raises ValueError for a mix of another shape than the values, which a residual sum might broadcast.
        """
        v, q, k = self.project(x)
        mixed = self.mix(v, q, k, self.check_inputs(x, padding, bias))
        if mixed.shape != v.shape:
            raise ValueError(f"{type(self).__name__}.mix gave {tuple(mixed.shape)} for values {tuple(v.shape)}")
        return self.project_out(v, mixed)

    def check_inputs(self, x: Tensor, padding: Padding | None, bias: Tensor | None) -> BlockInputs:
        """Checks tokens (B, N, dim), padding and bias. Raises ValueError, also for what torch would broadcast."""
        if x.dim() != 3 or x.shape[1] == 0:
            raise ValueError(f"{self.name} takes tokens (B, N, dim) with N > 0, got {tuple(x.shape)}")
        if padding is not None and not (isinstance(padding, Padding) and padding.mask.shape == x.shape[:2]):
            got = tuple(padding.mask.shape) if isinstance(padding, Padding) else type(padding).__name__
            raise ValueError(f"{self.name} takes a Padding of {tuple(x.shape[:2])}, as Padding.from_lengths, got {got}")
        wanted = x.shape[0], self.spec.num_heads, x.shape[1], x.shape[1]
        if bias is not None and not (
            bias.dim() == 4 and all(n in (1, m) for n, m in zip(bias.shape, wanted, strict=True))
        ):
            raise ValueError(f"{self.name} takes a bias {wanted}, got {tuple(bias.shape)}")
        return BlockInputs(padding, bias)

    def attend_in_block(self, x: Tensor, given: BlockInputs) -> Tensor:
        """`forward` of a block's attention (B, N, dim) -> (B, N, dim). A subclass may read more of `given`."""
        mixed: Tensor = self(x, given.padding, given.bias)
        return mixed

    def project_out(self, v: Tensor, mixed: Tensor) -> Tensor:
        """Mixed values (B, N, H*D) -> (B, N, dim), called once per forward pass, with the values (B, N, H*D) as well.

        Every forward pass ends here, also of a block that does the projections, so observers see v and mixed.
        """
        for observe in self._observers:
            observe(v, mixed)
        return self.out(mixed)

    @contextmanager
    def observed(self, observe: Observer) -> Iterator[None]:
        """Calls `observe(v, mixed)` with the operator's input and output (B, N, H*D) in every forward pass."""
        self._observers.append(observe)
        try:
            yield
        finally:
            self._observers.remove(observe)

    def implied_map(self, x: Tensor, padding: Padding | None = None, bias: Tensor | None = None) -> Tensor | None:
        """The token-mixing matrices (B, H or C, N, N) that act on the values of x, or None if there are none."""
        return self.maps(*self.project(x), BlockInputs(padding, bias))

    def maps(
        self, v: Tensor, q: Tensor | None = None, k: Tensor | None = None, given: BlockInputs = ALONE
    ) -> Tensor | None:
        """The token-mixing matrices (B, H or C, N, N) of `mix` for its inputs, or None if there are none.

        They are what `mix` makes of unit vectors, without dropout. A class with `maps_channels` whose `mix` is not
        linear in the values computes them itself.
        """
        batch, num_tokens, _ = v.shape
        unit = torch.eye(num_tokens, dtype=v.dtype, device=v.device)
        if self.maps_channels:  # a row for each sample and token, with a one at the token and zeros elsewhere
            ones = unit[:, :, None].expand(-1, -1, self.width).repeat(batch, 1, 1)  # (B*N, N, C)
            padding = None if given.padding is None else given.padding.repeated(num_tokens)
            columns = self.mix(ones, given=BlockInputs(padding))
            return torch.unflatten(columns, 0, (batch, num_tokens)).permute(0, 3, 2, 1)
        if not self.maps_heads:
            return None
        training, self.training = self.training, False
        try:
            return self.split_heads(self.mix(unit.repeat(1, self.spec.num_heads).expand(batch, -1, -1), q, k, given))
        finally:
            self.training = training

    def split_heads(self, x: Tensor) -> Tensor:
        """(B, N, H*D) -> (B, H, N, D)."""
        return torch.unflatten(x, -1, (self.spec.num_heads, -1)).transpose(1, 2)

    def merge_heads(self, x: Tensor) -> Tensor:
        """(B, H, N, D) -> (B, N, H*D)."""
        return x.transpose(1, 2).flatten(2)
