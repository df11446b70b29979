"""Our attentions in models of Hugging Face Transformers, through its AttentionInterface.

The model projects queries, keys, values and outputs; only what is between them is exchanged. Needs transformers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import bidirectional_mask_function, sdpa_mask

from sliceformer_lab.attention import Attention, LayerSpec, build_layer
from sliceformer_lab.attention.base import BlockInputs
from sliceformer_lab.batch import Padding
from sliceformer_lab.config.compose import load_option
from sliceformer_lab.encoder.swap_checks import chosen_layers, refuse_hooks, refuse_meta, suffix_padding

NOTE = "swapped_attention"  # in a model's configuration: layer -> arguments of its swap
SWAPPED = "sliceformer_lab"  # the implementation that mixes in a module with a mixer, and attends in the others
_PREFIX = ("cls_token", "class_embedding", "distillation_token", "register_tokens")  # parameters in front of patches
_PROJECTIONS = (("query", "key", "value"), ("q_lin", "k_lin", "v_lin"), ("q_proj", "k_proj", "v_proj"), ("Wqkv",))


def is_model(model: nn.Module) -> bool:
    """Whether this is a model of Transformers."""
    return isinstance(model, PreTrainedModel)


def swap_mixers(
    model: Any,
    name: str,
    overrides: Mapping[str, object],
    layers: Iterable[int] | None,
    *,
    keep_qk: bool,
    max_len: int | None,
) -> None:
    """Gives the attention modules of `layers` a mixer, and the model the implementation that calls it.

    Notes the swap in the model's configuration. Raises ValueError for a model that is no encoder of this kind.
    """
    note = {"name": name, "overrides": dict(overrides), "keep_qk": keep_qk, "max_len": max_len}
    notes = {str(index): note for index in chosen_layers(layers, len(attention_modules(model)))}
    _put_mixers(model, notes, _build_mixers(model, notes))


def _build_mixers(model: Any, notes: Mapping[str, Any]) -> dict[int, Attention]:
    """The mixer of each noted layer. No layer is changed before all are known to fit."""
    found = attention_modules(model)
    if not hasattr(model.config, "hidden_size"):
        raise ValueError(f"{type(model).__name__} is made of several models; swap one of them, such as model.encoder")
    if not (found and model._can_set_attn_implementation() and model._supports_sdpa):
        raise ValueError(
            f"{type(model).__name__} cannot be swapped: its attention does not call Transformers' AttentionInterface "
            "with projections that swap knows, or is more than scaled_dot_product_attention, which other layers keep"
        )
    mixers = {}
    for index, note in ((int(layer), note) for layer, note in notes.items()):
        node = load_option("attention", note["name"]) | dict(note["overrides"])
        spec = _spec_of(model.config, len(found), note["max_len"], _count_prefix(model))
        mixers[index] = _mixer_for(note["name"], model, found[index], node, replace(spec, index=index))
        for projection in _find_needless_projections(found[index], mixers[index], note["keep_qk"]):
            refuse_hooks(getattr(found[index], projection), index)
    return mixers


def _put_mixers(model: Any, notes: Mapping[str, Any], mixers: Mapping[int, Attention]) -> None:
    """Gives each layer its mixer, and the model the implementation that calls it."""
    found = attention_modules(model)
    for index, mixer in mixers.items():
        module = found[index]
        if not hasattr(module, "mixer"):
            module.register_forward_pre_hook(_refuse_other_implementation)
        module.mixer = mixer
        for projection in _find_needless_projections(module, mixer, notes[str(index)]["keep_qk"]):
            setattr(module, projection, nn.Identity())
    model.set_attn_implementation(SWAPPED)
    for module in found:  # a part of an encoder-decoder has a configuration that its layers do not share
        module.config._attn_implementation = SWAPPED
    model.config.swapped_attention = getattr(model.config, NOTE, {}) | dict(notes)


def _find_needless_projections(module: Any, mixer: Attention, keep_qk: bool) -> tuple[str, ...]:
    """The projections that a mixer makes needless: queries and keys, but none of a joint projection."""
    *of_scores, of_values = _projections_of(module)
    rows, columns = getattr(module, of_values).weight.shape
    return () if keep_qk or mixer.needs_qk or rows != columns else tuple(of_scores)


def _refuse_other_implementation(module: Any, inputs: object) -> None:
    """Raises ValueError if the model was set to an implementation that calls no mixer since its swap."""
    del inputs
    if (chosen := module.config._attn_implementation) != SWAPPED:
        raise ValueError(
            f"set_attn_implementation({chosen!r}) undid a swap: this {type(module).__name__} mixes with "
            f"{module.mixer.name}; call set_attn_implementation({SWAPPED!r}), or load the model anew to attend again"
        )


def _mixer_for(name: str, model: Any, module: Any, node: Mapping[str, object], spec: LayerSpec) -> Attention:
    """The mixer of an attention module. Raises ValueError if the module is causal, or not of the mixer's width."""
    if getattr(module, "is_causal", False) or getattr(module, "is_decoder", False):
        raise ValueError(f"layer {spec.index} of {type(model).__name__} is causal; swap takes encoders")
    projections = _projections_of(module)
    mixer = build_layer(node, spec)
    if mixer.needs_qk and isinstance(getattr(module, projections[0]), nn.Identity):
        raise ValueError(f"layer {spec.index} lost its queries and keys, which {name} needs; swap the original model")
    weight = getattr(module, projections[-1]).weight
    refuse_meta(weight)
    width = weight.shape[0] // (3 if len(projections) == 1 else 1)
    if mixer.width != width or mixer.qk_width not in (0, width):
        raise ValueError(
            f"{name} mixes values of {mixer.width} and queries of {mixer.qk_width} channels, but layer "
            f"{spec.index} of {type(model).__name__} has {width} of each; choose other overrides or another attention"
        )
    return mixer.to(weight.device, weight.dtype).train(module.training)


def repeat_swap(model: Any) -> None:
    """Makes the noted swap of a model that was loaded again, and reads the weights that only its mixers have.

    Raises ValueError for a model without a note, and if those weights were not saved.
    """
    noted = getattr(model.config, NOTE, None)
    if not noted:
        raise ValueError(f"the configuration of this {type(model).__name__} notes no earlier swap; name an attention")
    mixers, modules = _build_mixers(model, noted), attention_modules(model)
    head = f"{model.base_model_prefix}."  # a model with a task's head has it in its names, one without has not
    paths = {module: name.removeprefix(head) for name, module in model.named_modules()}
    own = {
        index: {name: f"{paths[modules[index]]}.mixer.{name}" for name in m.state_dict()} for index, m in mixers.items()
    }
    names = {saved_as for of_mixer in own.values() for saved_as in of_mixer.values()}
    folder = model.name_or_path  # empty for a part of a larger model
    files = sorted(Path(folder).glob("*.safetensors")) if names and folder else []
    saved = {name.removeprefix(head): weight for file in files for name, weight in load_file(file).items()}
    if lost := sorted(names - saved.keys()):
        raise ValueError(f"{lost[0]} of the swapped attention is in no *.safetensors of the model's folder, {folder!r}")
    for index, mixer in mixers.items():
        mixer.load_state_dict({name: saved[in_file] for name, in_file in own[index].items()})
    _put_mixers(model, noted, mixers)  # the model stays as it was until everything is there


def attention_modules(model: nn.Module) -> list[Any]:
    """The self-attentions of a model in the order of its layers."""
    return [
        m for m in model.modules() if hasattr(m, "config") and _projections_of(m) and "Cross" not in type(m).__name__
    ]


def _projections_of(module: nn.Module) -> tuple[str, ...]:
    """The names of a module's projections, values last; () if it is no attention."""
    children = dict(module.named_children())
    return next((names for names in _PROJECTIONS if all(name in children for name in names)), ())


def _count_prefix(model: nn.Module) -> int:
    """The number of tokens in front of the patches of an image model: CLS, distillation, registers."""
    own = [weight for name, weight in model.named_parameters() if name.rpartition(".")[2] in _PREFIX]
    return sum(weight.numel() // weight.shape[-1] for weight in own)


def _grid_of(config: Any) -> tuple[int, int] | None:
    """The patches of one square image (rows, columns); None for a model of something else, such as videos."""
    patch, size = getattr(config, "patch_size", None), getattr(config, "image_size", None)
    if isinstance(patch, int) and isinstance(size, int) and not hasattr(config, "num_frames"):
        return size // patch, size // patch
    return None


def _spec_of(config: Any, depth: int, max_len: int | None, num_prefix: int) -> LayerSpec:
    """What a mixer is built for; the longest input is a constant of the model, never of a batch.

    `num_prefix` counts for images only. Raises ValueError for a model without a longest input if `max_len` is None.
    """
    grid = _grid_of(config)
    if grid is None:
        num_prefix = 0
    else:
        max_len = max_len or num_prefix + grid[0] * grid[1]
    max_len = max_len or getattr(config, "max_position_embeddings", None)
    if max_len is None:
        raise ValueError(f"{config.model_type} has no longest input, from which shifts are computed; give max_len")
    return LayerSpec(
        dim=config.hidden_size,
        num_heads=config.num_attention_heads,
        depth=depth,
        max_len=max_len,
        num_prefix=num_prefix,
        grid=grid,
        attention_dropout=float(
            getattr(config, "attention_probs_dropout_prob", getattr(config, "attention_dropout", 0))
        ),
        project=False,
    )


@cache
def register(names: tuple[str, ...]) -> None:
    """Makes the implementation of swapped models known to Transformers, and one for each name: all layers mix."""
    everywhere: dict[str, Callable[..., Any]] = {name: partial(mix_everywhere, name) for name in names}
    for name, function in {SWAPPED: attend_or_mix, **everywhere}.items():
        AttentionInterface.register(name, function)
        AttentionMaskInterface.register(name, pack_mask)


def pack_mask(
    batch_size: int,
    q_length: int,
    kv_length: int,
    q_offset: int = 0,
    kv_offset: int = 0,
    mask_function: Callable[..., Any] = bidirectional_mask_function,
    attention_mask: Tensor | None = None,
    **options: Any,  # of Transformers' other masks
) -> Tensor | None:
    """The mask that attentions get: (B, N) bool of real tokens, (B, 1, N, N) for a window, None without padding."""
    if mask_function is not bidirectional_mask_function:
        mask: Tensor | None = sdpa_mask(
            batch_size, q_length, kv_length, q_offset, kv_offset, mask_function, attention_mask, **options
        )
        return mask
    if attention_mask is None:
        return None
    real = attention_mask.bool()
    suffix_padding(real)  # once for all layers
    if not torch.compiler.is_compiling() and bool(real.all()):
        return None
    return real


def attend_or_mix(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    **options: Any,  # of Transformers' other implementations
) -> tuple[Tensor, None]:
    """Mixes with the module's mixer, or attends if it has none. (B, H, N, D) each -> (B, N, H, D)."""
    mixer = getattr(module, "mixer", None)
    if mixer is None:
        if attention_mask is not None and attention_mask.dim() == 2:
            attention_mask = attention_mask[:, None, None]
        attended, _ = sdpa_attention_forward(
            module, query, key, value, attention_mask, dropout=dropout, scaling=scaling, **options
        )
        return attended, None
    _refuse_options(module, options)
    return _mix_values(mixer, module, query, key, value, attention_mask, scaling), None


def mix_everywhere(
    name: str,
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    **options: Any,
) -> tuple[Tensor, None]:
    """The implementation that `set_attn_implementation(name)` chooses. (B, H, N, D) each -> (B, N, H, D)."""
    del dropout
    _refuse_options(module, options)
    spec = _spec_of(module.config, 1, None, _prefix_among(value.shape[2], module.config))
    mixer = _shared_mixer(name, spec, value.device)
    return _mix_values(mixer, module, query, key, value, attention_mask, scaling), None


def _prefix_among(num_tokens: int, config: Any) -> int:
    """The tokens in front of the patches, where the model is out of reach: those that a whole image leaves over.

    An image of another size would leave over a row or more; then it is CLS and the registers.
    """
    rows, columns = _grid_of(config) or (0, 0)
    left_over = num_tokens - rows * columns
    return left_over if 0 <= left_over < columns else 1 + getattr(config, "num_register_tokens", 0)


def _refuse_options(module: Any, options: Mapping[str, Any]) -> None:
    """Raises ValueError if a call is causal, as those of CLIP's text model, or adds a bias to scores."""
    if getattr(module, "is_causal", False) or options.get("is_causal"):
        raise ValueError(f"{type(module).__name__} is causal; a swapped attention is for encoders")
    if lost := [name for name in ("position_bias", "s_aux", "softcap") if options.get(name) is not None]:
        raise ValueError(f"{type(module).__name__} passes {lost[0]}, which a swapped attention would lose")


@cache
def _shared_mixer(name: str, spec: LayerSpec, device: torch.device) -> Attention:
    return build_layer(load_option("attention", name), spec).to(device).eval()


def _mix_values(
    mixer: Attention,
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    scaling: float | None,
) -> Tensor:
    if key.shape != query.shape:
        raise ValueError("a swapped attention is self-attention; it takes no other sequence and no cache")
    heads, num_tokens = value.shape[1:3]
    if num_tokens > (mixer.spec.max_len or num_tokens):
        raise ValueError(
            f"{type(module).__name__} got {num_tokens} tokens, but {mixer.name} was built for at most "
            f"{mixer.spec.max_len}; swap the model with max_len={num_tokens} or more"
        )
    v, q, k = (x.transpose(1, 2).flatten(2) for x in (value, query, key))
    if not mixer.needs_qk:
        mixed = mixer.mix(v, given=BlockInputs(_padding_of(module, mask)))
    else:
        scale = 1 if scaling is None else scaling * (q.shape[2] // heads) ** 0.5  # ours divides by the root of D itself
        mixed = mixer.mix(v, q * scale, k, BlockInputs(_padding_of(module, mask)))
    return torch.unflatten(mixed, 2, (heads, -1))


def _padding_of(module: Any, mask: Tensor | None) -> Padding | None:
    """The padding of a mask from `pack_mask`. Of a sliding window only the padding counts: a mixer has no window."""
    if mask is not None and mask.dim() == 4:
        if getattr(module, "sliding_window", None) is None or mask.dtype != torch.bool:
            raise ValueError("a swapped attention takes a mask (B, N) of real tokens, not one of pairs of tokens")
        mask = mask[:, 0].diagonal(dim1=1, dim2=2)
    return suffix_padding(mask)


register(())  # at import, so that a swapped model that is unpickled finds its implementation
