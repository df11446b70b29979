"""Loads the weights of a ViT of timm or of a BERT into our encoder. Translates names, and refuses what does not fit."""

from __future__ import annotations

import json
import logging
import pickle
import re
from collections.abc import Mapping
from pathlib import Path

import timm
import torch
from safetensors import SafetensorError
from timm.layers.pos_embed import resample_abs_pos_embed
from timm.models import load_state_dict
from torch import Tensor, nn

from sliceformer_lab.encoder.embed import ImageEmbedding, TokenEmbedding
from sliceformer_lab.encoder.encoder_options import BERT, EncoderOptions
from sliceformer_lab.encoder.factory import Encoder
from sliceformer_lab.errors import ConfigError

log = logging.getLogger(__name__)

Weights = Mapping[str, Tensor]

_PLACES = {  # timm's name -> ours; `norm` is the encoder's or the head's
    "patch_embed.": "embedding.patches.",
    "cls_token": "embedding.cls",
    "pos_embed": "encoder.position.table",
    "blocks.": "encoder.blocks.",
    "norm.": "norm.",
    "fc_norm.": "norm.",
}
_BERT_PLACES = {  # the name in Transformers' BertModel, without "encoder.layer.I." -> ours, without "encoder.blocks.I."
    "embeddings.LayerNorm": "encoder.embed_norm",
    **{f"attention.self.{layer}": f"attention.{layer}" for layer in ("query", "key", "value")},
    "attention.output.dense": "attention.out",
    "attention.output.LayerNorm": "norm1",
    "intermediate.dense": "mlp.fc1",
    "output.dense": "mlp.fc2",
    "output.LayerNorm": "norm2",
}
_BERT_LAYER = re.compile(r"encoder\.layer\.(\d+)\.(.+)\.(weight|bias)")
_WORDS, _TYPES, _PLACE_TABLE = (f"embeddings.{name}_embeddings.weight" for name in ("word", "token_type", "position"))


def initialise_images(embedding: ImageEmbedding, encoder: Encoder, head_norm: nn.Module) -> None:
    """Loads the weights of `encoder.init`, which may download. Call it for a new model, not before a checkpoint.

    The attention keeps its own weights; `init_attention` copies those of its layers that the pretrained one has by name
    and size. Raises ConfigError if the weights cannot be loaded or do not fit.
    """
    options = encoder.options
    if options.init == BERT:
        raise ConfigError(f"encoder.init={BERT}: a BERT reads texts; name a ViT, as timm:vit_small_patch16_224")
    weights = read_weights(options)
    try:
        copy_vit(weights, embedding, encoder, head_norm, with_attention=options.init_attention)
    except ValueError as error:
        raise ConfigError(f"encoder.init={options.init}: {error}") from error


def initialise_texts(embedding: TokenEmbedding, encoder: Encoder) -> None:
    """Loads the weights of a BERT from the folder `encoder.init_file`, under the rules of `initialise_images`."""
    options = encoder.options
    if options.init != BERT:
        raise ConfigError(f"encoder.init={options.init}: a ViT reads pictures; texts take {BERT}")
    folder = Path(str(options.init_file)).expanduser()
    try:
        weights = read_bert(folder, options.num_heads)
        copy_bert(weights, embedding, encoder, with_attention=options.init_attention)
    except ValueError as error:
        raise ConfigError(f"encoder.init_file={folder}: {error}") from error


def read_bert(folder: Path, num_heads: int) -> Weights:
    """The weights in a folder of Transformers, under BertModel's names. Raises ValueError for another kind of model."""
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        file = next(f for f in (folder / "model.safetensors", folder / "pytorch_model.bin") if f.is_file())
    except (OSError, ValueError, StopIteration):
        raise ValueError("has no config.json with model.safetensors or pytorch_model.bin of a model") from None
    wanted = {"model_type": "bert", "hidden_act": "gelu", "num_attention_heads": num_heads}
    for name, value in wanted.items():
        if config.get(name) != value:
            raise ValueError(f"its {name} is {config.get(name)}, and this encoder has {value}")
    return {name.removeprefix("bert."): value for name, value in _from_file(str(file)).items()}


def copy_bert(weights: Weights, embedding: TokenEmbedding, encoder: Encoder, *, with_attention: bool) -> None:
    """Copies the weights of a BertModel, its pooler and heads aside. All tokens are of the first type.

    Raises ValueError, and changes nothing, if a weight is missing, left over or of another shape.
    """
    if missing := [name for name in (_WORDS, _TYPES, _PLACE_TABLE) if name not in weights]:
        raise ValueError(f"the pretrained model has no {missing[0]}")
    new = {
        "embedding.tokens.weight": weights[_WORDS] + weights[_TYPES][0],
        "encoder.position.table": weights[_PLACE_TABLE][None, : encoder.max_len],
    }
    for name, value in weights.items():
        layer = _BERT_LAYER.fullmatch(name)
        index, part, kind = layer.groups() if layer else (None, *name.rpartition(".")[::2])
        if part in _BERT_PLACES:
            place = _BERT_PLACES[part] if index is None else f"encoder.blocks.{index}.{_BERT_PLACES[part]}"
            new[f"{place}.{kind}"] = value
    model = nn.ModuleDict({"embedding": embedding, "encoder": encoder})
    _copy_weights(model.state_dict(), new, with_attention=with_attention)


def read_weights(options: EncoderOptions) -> Weights:
    """The weights of `encoder.init`, under timm's names. Raises ConfigError if they cannot be loaded."""
    name = str(options.init).removeprefix("timm:")
    if not timm.is_model(name.split(".")[0]):
        raise ConfigError(f"encoder.init={options.init}: timm has no model of this name")
    return _download_weights(name) if options.init_file is None else _from_file(options.init_file)


def _download_weights(name: str) -> Weights:
    try:
        weights: Weights = timm.create_model(name, pretrained=True).state_dict()
    except (OSError, RuntimeError) as error:
        raise ConfigError(
            f"encoder.init=timm:{name}: timm could not get its weights ({str(error).splitlines()[0]}); "
            "without network, give a checkpoint of this model as encoder.init_file=<file>"
        ) from error
    return weights


def _from_file(file: str) -> Weights:
    if not Path(file).is_file():
        raise ConfigError(f"encoder.init_file={file}: there is no such file")
    try:
        weights: Weights = load_state_dict(file, weights_only=True)
    except (OSError, RuntimeError, ValueError, pickle.UnpicklingError, SafetensorError) as error:
        raise ConfigError(f"encoder.init_file={file}: is not a file of plain weights") from error
    return weights


def copy_vit(
    weights: Weights, embedding: ImageEmbedding, encoder: Encoder, head_norm: nn.Module, *, with_attention: bool
) -> None:
    """Copies a timm ViT's weights, except for its classifier, into the parts of ours.

    Its last norm goes to the encoder's final norm, or to the head's if the encoder has none. Learned positions are
    resampled to the embedding's grid. Raises ValueError, and changes nothing, if a weight is missing, left over or of
    another shape.
    """
    norm = head_norm if encoder.norm is None else encoder.norm
    model = nn.ModuleDict({"embedding": embedding, "encoder": encoder, "norm": norm})
    # The encoder's norm is in this dictionary twice; the translation fills the second place.
    own = {name: value for name, value in model.state_dict().items() if not name.startswith("encoder.norm.")}
    new = translate(weights)
    for name in ("embedding.cls", "encoder.position.table"):
        if name not in own:
            new.pop(name, None)
    if "encoder.position.table" in own and "encoder.position.table" in new:
        has_cls = "cls_token" in weights
        new["encoder.position.table"] = _resample_positions(new["encoder.position.table"], has_cls, embedding)
    _copy_weights(own, new, with_attention=with_attention)


def _copy_weights(own: Weights, new: Weights, *, with_attention: bool) -> None:
    """Copies into `own` what has the same name in `new`, attentions only with `with_attention` and where they fit.

    Raises ValueError, and changes nothing, if another weight is missing, left over or of another shape.
    """
    attention = {name for name in {**own, **new} if ".attention." in name}
    shared = attention & own.keys() & new.keys() if with_attention else set()
    left_out = attention - {name for name in shared if own[name].shape == new[name].shape}
    kept = left_out & own.keys()
    own, new = ({n: value for n, value in side.items() if n not in left_out} for side in (own, new))
    _check_fit(own, new)
    with torch.no_grad():
        for name, value in own.items():
            value.copy_(new[name])
    log.info(f"encoder.init: copied {len(own):,} pretrained tensors; {len(kept):,} tensors of the attentions are new")


def translate(weights: Weights) -> dict[str, Tensor]:
    """timm's names -> ours, without the classifier, each fused qkv split in three."""
    new: dict[str, Tensor] = {}
    for name, value in weights.items():
        block, is_attention, part = name.partition(".attn.")
        if is_attention:
            split = split_attention({part: value})
            new |= {f"encoder.{block}.attention.{own}": weight for own, weight in split.items()}
        elif not name.startswith(("head.", "head_dist.")):
            place = next((p for p in _PLACES if name.startswith(p)), None)
            new[name if place is None else _PLACES[place] + name.removeprefix(place)] = value
    return new


def split_attention(weights: Weights) -> dict[str, Tensor]:
    """The weights of a timm attention (qkv.*, proj.*, ...) under the names of ours (query.*, key.*, value.*, out.*)."""
    new: dict[str, Tensor] = {}
    for name, value in weights.items():
        layer, _, kind = name.partition(".")
        if layer == "qkv":
            new |= {f"{p}.{kind}": w for p, w in zip(("query", "key", "value"), value.chunk(3), strict=True)}
        else:
            new[f"out.{kind}" if layer == "proj" else name] = value
    return new


def _resample_positions(table: Tensor, has_cls: bool, embedding: ImageEmbedding) -> Tensor:
    """Positions (1, N, C) of a square grid, resampled to the embedding's grid; the row of CLS is kept or dropped."""
    needs_cls = embedding.cls is not None
    if needs_cls and not has_cls:
        return table  # _check_fit refuses it next, because the CLS token is missing
    if has_cls and not needs_cls:
        table = table[:, 1:]
    new: Tensor = resample_abs_pos_embed(table, list(embedding.grid), num_prefix_tokens=int(needs_cls))
    if embedding.order is None:
        return new
    return torch.cat([new[:, : int(needs_cls)], new[:, int(needs_cls) :][:, embedding.order]], dim=1)


def _check_fit(own: Weights, new: Weights) -> None:
    for name, value in own.items():
        if name not in new:
            raise ValueError(f"the pretrained model has no {name}, which this one needs")
        if new[name].shape != value.shape:
            raise ValueError(
                f"{name} is {tuple(new[name].shape)} in the pretrained model and {tuple(value.shape)} here; "
                "choose its sizes, as encoder=vit_s block=vit_timm for a ViT-S, encoder=minilm block=bert for MiniLM-L6"
            )
    if left := sorted(new.keys() - own.keys()):
        raise ValueError(f"this model has no parameter for {left[0]} of the pretrained one, which has another form")
