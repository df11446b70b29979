"""Our attentions in models of timm, of Hugging Face Transformers and of torch."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

import torch
from timm.layers import attention as timm_attention
from timm.models import vision_transformer
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn

from sliceformer_lab.attention import Attention, LayerSpec, build_layer
from sliceformer_lab.config.compose import load_option
from sliceformer_lab.encoder.pretrained import split_attention
from sliceformer_lab.encoder.swap_checks import chosen_layers, refuse_hooks, refuse_meta, suffix_padding

log = logging.getLogger(__name__)

Model = TypeVar("Model", bound=nn.Module)

READY = ("csp", "csp_shift_only", "sliceformer", "mean", "identity")  # no weights, nothing random, one for all layers
HIDES = -1e3  # a number that is added to a score, below which the token has no weight
_REFUSED = {  # classes of timm whose attention cannot be exchanged alone
    "NaFlexVit": "it masks images of several sizes, and its patches have no fixed number",
    "Eva": "rotary positions enter through queries and keys, which the swap would lose",
    "SwinTransformer": "it attends in windows of patches that overlap from layer to layer",
}


def swap(
    model: Model,
    name: str | None = None,
    layers: Iterable[int] | None = None,
    *,
    keep_qk: bool = False,
    max_len: int | None = None,
    overrides: Mapping[str, object] | None = None,
) -> Model:
    """`model` with the attention of `layers` (None: all) replaced in place by that of conf/attention/<name>.yaml.

    Takes plain timm ViTs, encoders of Transformers that call its AttentionInterface, and modules with
    nn.MultiheadAttention as self-attention, such as nn.TransformerEncoder. Values and output projections keep the
    model's weights, and so do queries and keys if the new attention has them. Otherwise they are removed, unless
    `keep_qk`: then they stay, unused. Parameters that the model lacks, or has in another shape, which a warning names,
    start from new values. `max_len` is the longest
    input, from which shifts are computed: by default the model's own, never a batch's. `overrides` are options of the
    attention. A layer with a sliding window, as of ModernBERT, loses it: the new attention has a reach of its own, and
    rotary positions reach only an attention with queries and keys.
    Without a name, the swap that a saved model of Transformers has noted in its configuration is made again.
    Raises ValueError for a model or layer that cannot be swapped, ConfigError for options that do not fit.
    """
    if "transformers" in sys.modules:
        from sliceformer_lab.encoder import transformers_hook

        if transformers_hook.is_model(model):
            if name is None:
                transformers_hook.repeat_swap(model)
            else:
                transformers_hook.swap_mixers(model, name, overrides or {}, layers, keep_qk=keep_qk, max_len=max_len)
            return model
    if name is None:
        raise ValueError(f"{type(model).__name__} notes no earlier swap; name an attention")
    node = load_option("attention", name) | dict(overrides or {})
    places = _places_of(model)
    chosen = chosen_layers(layers, len(places))
    new_of: dict[nn.Module, nn.Module] = {}  # one for an attention that two layers share
    for index in chosen:
        owner, attribute = places[index]
        old = getattr(owner, attribute, owner)  # timm's parallel blocks have no attention of that name
        if old in new_of:
            continue
        if isinstance(model, VisionTransformer):
            new_of[old] = _timm_replacement(model, old, index, node, max_len, keep_qk)
        else:
            new_of[old] = _torch_replacement(old, index, len(places), node, max_len, keep_qk)
    for owner, attribute in (places[index] for index in chosen):  # none is changed before all are known to fit
        setattr(owner, attribute, new_of[getattr(owner, attribute)])
    for module in model.modules():
        if isinstance(module, nn.TransformerEncoder):
            module.use_nested_tensor = False  # a fast path that passes no padding, and asks for torch's own weights
    return model


def _places_of(model: nn.Module) -> list[tuple[nn.Module, str]]:
    """The owner and the name of each attention. Raises ValueError for a model without one, or of a refused class."""
    if isinstance(model, VisionTransformer):
        return [(block, "attn") for block in model.blocks]
    owners = [m for m in model.modules() if not isinstance(m, TorchAttention)]  # swapped layers keep their numbers
    places = [(m, n) for m in owners for n, c in m.named_children() if isinstance(c, nn.MultiheadAttention)]
    reasons = [reason for kind in type(model).__mro__ if (reason := _REFUSED.get(kind.__name__))]
    if reasons or not places:
        why = reasons[0] if reasons else "it has no attention that swap knows"
        raise ValueError(
            f"{type(model).__name__} cannot be swapped: {why}; choose a timm VisionTransformer, an encoder of "
            "Transformers or a module with nn.MultiheadAttention, before DataParallel or torch.compile wraps it"
        )
    return places


class SwappedAttention(nn.Module):
    """An attention in the interface of another library."""

    def __init__(self, attention: Attention, kept: nn.Module | None) -> None:
        nn.Module.__init__(self)  # not that of torch's own attention, which has other weights
        self.attention = attention
        self.kept = kept  # the old attention, unused, so that its queries and keys stay in the state

    def refuse_longer(self, num_tokens: int) -> None:
        """Raises ValueError for more tokens than the attention was built for."""
        max_len = self.attention.spec.max_len
        if max_len is not None and num_tokens > max_len:
            raise ValueError(
                f"{self.attention.name} was swapped in for at most {max_len} tokens, got {num_tokens}; give swap the "
                "largest number as max_len"
            )


class TimmAttention(SwappedAttention):
    """Stands in a timm block. (B, N, C) -> (B, N, C)."""

    def __init__(self, attention: Attention, kept: nn.Module | None, dropout: nn.Module) -> None:
        super().__init__(attention, kept)
        self.dropout = dropout

    def forward(self, x: Tensor, attn_mask: Tensor | None = None, is_causal: bool = False) -> Tensor:
        """Raises ValueError for a mask, which timm's plain ViT never passes."""
        if attn_mask is not None or is_causal:
            raise ValueError("a swapped attention takes no attention mask")
        self.refuse_longer(x.shape[1])
        dropped: Tensor = self.dropout(self.attention(x))
        return dropped


class TorchAttention(SwappedAttention, nn.MultiheadAttention):
    """Stands in place of nn.MultiheadAttention as self-attention. (B, N, C) or (N, B, C) -> the same.

    It is a subclass of nn.MultiheadAttention, because PyG's GPSConv skips any other attention.
    """

    in_proj_bias = None  # type: ignore[assignment]  # or nn.TransformerEncoderLayer's fused path would call no attention

    def __init__(self, attention: Attention, kept: nn.Module | None, batch_first: bool) -> None:
        super().__init__(attention, kept)
        self.batch_first = batch_first
        self.num_heads = attention.spec.num_heads

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, None]:
        """Raises ValueError for cross-attention, a mask of pairs, and padding that is not a suffix."""
        del need_weights, average_attn_weights
        if key is not query or value is not query or query.dim() != 3:
            got = f"got {query.dim()} dimensions" if key is query and value is query else "got several tensors"
            raise ValueError(
                "a swapped attention is self-attention: query, key and value must be one tensor of three dimensions, "
                f"{got}; leave cross-attention out of layers"
            )
        if attn_mask is not None or is_causal:
            raise ValueError("a swapped attention takes no attention mask, only key_padding_mask")
        x = query if self.batch_first else query.transpose(0, 1)
        self.refuse_longer(x.shape[1])
        mixed = self.attention(x, suffix_padding(_real_tokens(key_padding_mask, x.shape[:2])))
        return mixed if self.batch_first else mixed.transpose(0, 1), None


def _real_tokens(key_padding_mask: Tensor | None, shape: torch.Size) -> Tensor | None:
    """The tokens (B, N) bool that torch's mask leaves.

    Raises ValueError for another shape or type, and for numbers that only weaken a token.
    """
    if key_padding_mask is None:
        return None
    is_bool = key_padding_mask.dtype == torch.bool
    if key_padding_mask.shape != shape or not (is_bool or key_padding_mask.is_floating_point()):
        raise ValueError(
            f"a swapped attention takes key_padding_mask {tuple(shape)} of bool, or of 0 and -inf, got "
            f"{tuple(key_padding_mask.shape)} of {key_padding_mask.dtype}"
        )
    if is_bool:
        return ~key_padding_mask
    real = key_padding_mask == 0
    if not torch.compiler.is_compiling() and bool((key_padding_mask[~real] > HIDES).any()):
        raise ValueError(
            "a swapped attention takes key_padding_mask as bool, or as 0 and -inf; torch adds other numbers"
        )
    return real


def _timm_replacement(
    model: VisionTransformer, old: nn.Module, index: int, node: Mapping[str, object], max_len: int | None, keep_qk: bool
) -> TimmAttention:
    if not isinstance(old, timm_attention.Attention):
        raise ValueError(f"layer {index} has no timm attention to swap, it has {type(old).__name__}")
    if extra := sorted({n.split(".")[0] for n, _ in old.named_parameters()} - {"qkv", "proj"}):
        raise ValueError(f"layer {index}: the swap would lose {', '.join(extra)} of timm's attention")
    grid = model.patch_embed.grid_size
    spec = LayerSpec(
        dim=model.embed_dim,
        num_heads=old.num_heads,
        index=index,
        depth=len(model.blocks),
        max_len=max_len or model.num_prefix_tokens + grid[0] * grid[1],
        head_dim=old.head_dim,
        num_prefix=model.num_prefix_tokens,
        grid=grid,
        attention_dropout=old.attn_drop.p,
        value_bias=getattr(old.qkv, "bias", None) is not None,
        out_bias=getattr(old.proj, "bias", None) is not None,
    )
    new = _with_weights(build_layer(node, spec), split_attention(old.state_dict()), old)
    return TimmAttention(new, old if keep_qk else None, old.proj_drop)


def _torch_replacement(
    old: nn.Module,
    index: int,
    depth: int,
    node: Mapping[str, object],
    max_len: int | None,
    keep_qk: bool,
) -> TorchAttention:
    if isinstance(old, TorchAttention):
        raise ValueError(f"layer {index} was swapped already, to {old.attention.name}; swap the original model")
    if not isinstance(old, nn.MultiheadAttention) or type(old).forward is not nn.MultiheadAttention.forward:
        raise ValueError(f"layer {index} has no torch attention to swap, it has {type(old).__name__}")
    if old.in_proj_weight is None or old.bias_k is not None or old.add_zero_attn:
        raise ValueError(f"layer {index}: swap takes self-attention without kdim, vdim, add_bias_kv and add_zero_attn")
    biased = old.in_proj_bias is not None
    spec = LayerSpec(
        dim=old.embed_dim,
        num_heads=old.num_heads,
        index=index,
        depth=depth,
        max_len=max_len,
        attention_dropout=old.dropout,
        value_bias=biased,
        out_bias=old.out_proj.bias is not None,
    )
    timm_names = {"in_proj_weight": "qkv.weight", "in_proj_bias": "qkv.bias"}
    weights = {timm_names.get(n, n.replace("out_proj", "proj")): w for n, w in old.state_dict().items()}
    new = _with_weights(build_layer(node, spec), split_attention(weights), old)
    return TorchAttention(new, old if keep_qk else None, bool(old.batch_first))


def _with_weights(new: Attention, weights: Mapping[str, Tensor], old: nn.Module) -> Attention:
    """`new` with those of the weights that fit, on the device and in the type and mode of `old`, frozen if it is.

    A warning names those that do not fit. Raises ValueError for an attention that computes its weights of others.
    """
    like = next(old.parameters())
    refuse_meta(like)
    own = new.state_dict()
    kinds = ("value", "out", "query", "key") if new.needs_qk else ("value", "out")
    if missing := sorted(name for name in own.keys() - weights.keys() if name.partition(".")[0] in kinds):
        raise ValueError(
            f"layer {new.spec.index}: {type(old).__name__} has no plain {missing[0]}, it has "
            f"{', '.join(old.state_dict())}; merge adapters, and remove parametrizations and pruning, before the swap"
        )
    refuse_hooks(old, new.spec.index)
    fitting = {n: w for n, w in weights.items() if n in own and own[n].shape == w.shape}
    if lost := sorted(own.keys() & weights.keys() - fitting.keys()):
        log.warning(
            f"WARNING: layer {new.spec.index}: {', '.join(lost)} of {new.name} start from new values, because "
            "their shapes are not the model's"
        )
    new.load_state_dict(fitting, strict=False)
    for name in fitting if not any(p.requires_grad for p in old.parameters()) else ():
        new.get_parameter(name).requires_grad_(False)
    return new.to(like.device, like.dtype).train(old.training)


def register_attentions(max_len: int | None = None) -> None:
    """Makes READY known by name: to `attn_layer=` of a timm ViT, and to `set_attn_implementation` of Transformers.

    A timm layer does not know the length of its input, so timm gets the names only with `max_len`, the number of tokens
    of its models (CLS included). Models of Transformers know theirs; they get the names if Transformers is installed.
    """
    if max_len is not None:
        for name in READY:
            vision_transformer.ATTN_LAYERS[name] = _timm_layer(name, max_len)
    try:
        from sliceformer_lab.encoder import transformers_hook
    except ImportError:
        return
    transformers_hook.register(READY)


def _timm_layer(name: str, max_len: int) -> type[TimmAttention]:
    """A class that timm constructs as it constructs its own attention."""

    class Layer(TimmAttention):
        def __init__(
            self,
            dim: int,
            num_heads: int = 8,
            qkv_bias: bool = False,
            proj_bias: bool = True,
            proj_drop: float = 0.0,
            device: Any = None,
            dtype: Any = None,
            **options: object,  # timm passes all that its own attention has
        ) -> None:
            if wrong := [key for key in ("qk_norm", "scale_norm") if options.get(key)]:
                raise ValueError(f"attn_layer={name} has no {wrong[0]}")
            spec = LayerSpec(dim=dim, num_heads=num_heads, max_len=max_len, value_bias=qkv_bias, out_bias=proj_bias)
            attention = build_layer(load_option("attention", name), spec).to(device, dtype)
            super().__init__(attention, None, nn.Dropout(proj_drop))

    return Layer
