"""Swaps in models of Transformers, timm and torch keep the contract: each hook against a reference of its own."""

from __future__ import annotations

import math
import subprocess
import sys
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import timm
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from sliceformer_lab import register_attentions, swap
from sliceformer_lab.permute.exported import decomposed

SMALL = {"hidden_size": 24, "num_hidden_layers": 3, "num_attention_heads": 3, "intermediate_size": 32}
MAX_LEN = 40
# name -> class of the model, options of its configuration besides SMALL
TEXTS: dict[str, dict[str, Any]] = {
    "Bert": {},
    "Roberta": {},
    "DistilBert": {"dim": 24, "n_layers": 3, "n_heads": 3, "hidden_dim": 32},
    "ModernBert": {"local_attention": 6, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2},
    "Esm": {"pad_token_id": 1, "mask_token_id": 3, "position_embedding_type": "rotary", "token_dropout": False},
}
IMAGES = {  # the tokens in front of the patches: CLS, distillation, registers
    **{"ViT": 1, "Dinov2": 1, "Dinov2WithRegisters": 5, "CLIPVision": 1},
    **{"SiglipVision": 0, "IJepa": 0, "DeiT": 2},
}


def text_model(kind: str, **options: Any) -> Any:
    transformers = pytest.importorskip("transformers")
    common = {} if kind == "DistilBert" else SMALL
    sizes = common | {"vocab_size": 50, "max_position_embeddings": MAX_LEN, **TEXTS[kind], **options}
    torch.manual_seed(0)
    model = getattr(transformers, f"{kind}Model")(getattr(transformers, f"{kind}Config")(**sizes))
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.3)
    return model.eval()


def ids(*lengths: int, num_tokens: int | None = None) -> dict[str, Tensor]:
    """Token ids (B, N) and the mask of the real ones."""
    size = num_tokens or max(lengths)
    tokens = torch.randint(5, 50, (len(lengths), 16), generator=torch.Generator().manual_seed(1))[:, :size]
    tokens = nn.functional.pad(tokens, (0, size - tokens.shape[1]), value=1)
    mask = torch.arange(size) < torch.tensor(lengths)[:, None]
    return {"input_ids": tokens, "attention_mask": mask.long()}


def hidden(model: Any, inputs: dict[str, Tensor]) -> Tensor:
    states: Tensor = model(**inputs).last_hidden_state
    return states


def mixers_of(model: Any) -> list[Any]:
    return [module.mixer for module in model.modules() if hasattr(module, "mixer")]


def rolled_and_sorted(v: Tensor, length: int, max_len: int) -> Tensor:
    """CSP by its definition, one channel and one pair at a time. (N, C) -> (N, C), zeros behind `length`."""
    channels = v.shape[1]
    result = torch.zeros_like(v)
    for c in range(channels):
        step = (c + 1) * math.ceil(max_len / channels) % max_len
        column = [float(v.detach()[(i - step) % length, c]) for i in range(length)]
        for i in range(0, length - 1, 2):
            column[i : i + 2] = sorted(column[i : i + 2])
        result[:length, c] = torch.tensor(column)
    return result


@pytest.mark.parametrize("kind", TEXTS)
def test_a_swapped_layer_mixes_as_csp_is_defined_whatever_the_padding(kind: str) -> None:
    model = swap(text_model(kind), "csp", layers=[1])
    seen: list[tuple[Tensor, Tensor]] = []
    module = [m for m in model.modules() if hasattr(m, "mixer")]
    (mixer,) = (m.mixer for m in module)
    plain = mixer.permute
    mixer.permute = lambda v, padding: seen.append((v, plain(v, padding))) or seen[-1][1]
    alone = hidden(model, ids(7))
    for num_tokens in (9, 16):
        batch = hidden(model, ids(7, num_tokens, num_tokens=num_tokens))
        assert_close(batch[:1, :7], alone, atol=1e-4, rtol=1e-4)
    v, mixed = seen[-1]
    for row, length in enumerate((7, 16)):
        assert_close(mixed[row], rolled_and_sorted(v[row], length, MAX_LEN))


@pytest.mark.parametrize("kind", TEXTS)
def test_softmax_attention_swapped_in_leaves_a_text_model_unchanged(kind: str) -> None:
    inputs = ids(9, 4)
    before = hidden(text_model(kind), inputs)
    model, layers = text_model(kind), None
    if kind == "ModernBert":  # a mixer has no window, as its other layers have
        layers = [i for i, kind_of in enumerate(model.config.layer_types) if kind_of == "full_attention"]
    real = inputs["attention_mask"].bool()
    assert_close(hidden(swap(model, "mha", layers), inputs)[real], before[real], atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("kind", IMAGES)
def test_image_models_are_swapped(kind: str) -> None:
    transformers = pytest.importorskip("transformers")
    register_attentions()
    config = getattr(transformers, f"{kind}Config")(**SMALL, image_size=16, patch_size=4, mlp_ratio=2)
    torch.manual_seed(0)
    model = getattr(transformers, f"{kind}Model")(config).eval()
    pictures, named = torch.randn(2, 3, 16, 16), deepcopy(model)
    before = model(pictures).last_hidden_state
    assert_close(swap(model, "mha", keep_qk=True)(pictures).last_hidden_state, before, atol=1e-4, rtol=1e-4)
    swap(model, "csp")
    assert (model(pictures).last_hidden_state - before).abs().max() > 1e-3
    specs = {(m.spec.grid, m.spec.num_prefix, m.spec.max_len) for m in mixers_of(model)}
    assert specs == {((4, 4), IMAGES[kind], IMAGES[kind] + 16)}
    named.set_attn_implementation("csp")
    assert_close(named(pictures).last_hidden_state, model(pictures).last_hidden_state)


def test_a_model_of_videos_or_spectra_needs_its_longest_input() -> None:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.VideoMAEConfig(**SMALL, image_size=16, patch_size=4, num_frames=4, tubelet_size=2)
    model = transformers.VideoMAEModel(config).eval()
    spectra = transformers.ASTModel(transformers.ASTConfig(**SMALL, max_length=48, num_mel_bins=32))
    for other in (model, spectra):
        with pytest.raises(ValueError, match=r"has no longest input.*give max_len"):
            swap(other, "csp")
    assert mixers_of(swap(spectra, "csp", max_len=20))[0].spec.grid is None
    swap(model, "csp", max_len=31, keep_qk=True)
    videos = torch.randn(1, 4, 3, 16, 16)
    with pytest.raises(ValueError, match=r"got 32 tokens, but csp was built for at most 31; swap .* max_len=32"):
        model(videos)
    assert swap(model, "csp", max_len=32)(videos).last_hidden_state.isfinite().all()


@pytest.mark.parametrize(("name", "overrides"), [("mega", {"z_dim": 48}), ("matrix_low_rank", {}), ("csp_wide", {})])
def test_an_attention_of_another_width_than_the_model_is_refused(name: str, overrides: dict[str, Any]) -> None:
    model = text_model("Bert")
    with pytest.raises(ValueError, match=rf"{name} mixes values of .* channels, but layer 0 of BertModel has 24"):
        swap(model, name, overrides=overrides)
    assert mixers_of(model) == []


def test_padding_of_a_sound_does_not_change_it() -> None:
    transformers = pytest.importorskip("transformers")
    convolutions = {"conv_dim": (8, 8), "conv_stride": (5, 2), "conv_kernel": (10, 3)}
    positions = {"num_conv_pos_embeddings": 4, "num_conv_pos_embedding_groups": 2}
    config = transformers.Wav2Vec2Config(**SMALL, **convolutions, **positions, feat_extract_norm="layer")
    torch.manual_seed(0)
    model = transformers.Wav2Vec2Model(config).eval()
    swap(model, "csp", max_len=50)
    sound = torch.randn(2, 240)
    mask = torch.arange(240) < torch.tensor([240, 120])[:, None]
    padded = model(sound * mask, attention_mask=mask.long()).last_hidden_state
    longer = nn.functional.pad(sound * mask, (0, 80)), nn.functional.pad(mask.long(), (0, 80))
    again = model(longer[0], attention_mask=longer[1]).last_hidden_state
    assert_close(again[:, :8], padded[:, :8], atol=1e-4, rtol=1e-4)


def test_the_registered_name_equals_a_swap_of_all_layers() -> None:
    register_attentions()
    inputs = ids(9, 4)
    expected = hidden(swap(text_model("Bert"), "csp", keep_qk=True), inputs)
    model = text_model("Bert")
    model.set_attn_implementation("csp")
    assert_close(hidden(model, inputs), expected)


def test_other_masks_are_refused_in_one_sentence() -> None:
    model = swap(text_model("Bert"), "csp")
    inputs = ids(6, 6)
    with pytest.raises(ValueError, match=r"pad on the right \(padding_side='right'\)"):
        model(**inputs | {"attention_mask": inputs["attention_mask"] * (torch.arange(6) > 1)})
    with pytest.raises(ValueError, match="not one of pairs of tokens"):
        model(**inputs | {"attention_mask": torch.zeros(2, 1, 6, 6)})


def test_queries_and_keys_leave_the_model_unless_they_are_kept() -> None:
    whole = sum(p.numel() for p in text_model("Bert").parameters())
    without, kept = swap(text_model("Bert"), "csp"), swap(text_model("Bert"), "csp", keep_qk=True)
    assert whole - sum(p.numel() for p in without.parameters()) == 3 * 2 * (24 * 24 + 24)
    assert sum(p.numel() for p in kept.parameters()) == whole
    assert_close(hidden(without, ids(6)), hidden(kept, ids(6)))
    with pytest.raises(ValueError, match="layer 0 lost its queries and keys, which mha needs"):
        swap(without, "mha")
    swap(kept, "mha")


def test_gradients_reach_every_weight_and_half_precision_runs() -> None:
    model = swap(text_model("Bert"), "csp").train()
    model.zero_grad()
    hidden(model, ids(9, 4)).square().sum().backward()
    missing = [n for n, p in model.named_parameters() if p.grad is None and "pooler" not in n]
    assert missing == []
    assert hidden(model.to(torch.bfloat16).eval(), ids(9, 4)).isfinite().all()


@pytest.mark.parametrize("name", ["csp", "depthwise_conv"])
def test_a_saved_model_is_swapped_again_without_a_name(name: str, tmp_path: Path) -> None:
    model = swap(text_model("Bert"), name, layers=[0, 2])
    model.save_pretrained(tmp_path)
    loaded = swap(type(model).from_pretrained(tmp_path))
    assert_close(loaded.state_dict(), model.state_dict())
    assert_close(hidden(loaded, ids(9, 4)), hidden(model, ids(9, 4)))
    with pytest.raises(ValueError, match="notes no earlier swap"):
        swap(text_model("Bert"))


def test_a_model_with_another_head_reads_the_weights_of_the_mixers(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    base = swap(text_model("Bert"), "depthwise_conv", layers=[0, 2])
    nn.init.normal_(mixers_of(base)[1].conv.weight)
    base.save_pretrained(tmp_path / "base")
    headed = swap(transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "base"))
    assert_close(hidden(headed.bert, ids(9, 4)), hidden(base, ids(9, 4)))
    headed.save_pretrained(tmp_path / "headed")
    again = swap(transformers.AutoModel.from_pretrained(tmp_path / "headed"))
    assert_close(hidden(again, ids(9, 4)), hidden(base, ids(9, 4)))
    loaded = transformers.AutoModel.from_pretrained(tmp_path / "base")
    before = list(loaded.state_dict()), loaded.config._attn_implementation
    (tmp_path / "base" / "model.safetensors").unlink()
    with pytest.raises(
        ValueError, match=r"layer.0.*mixer.conv.weight of the swapped attention is in no \*.safetensors"
    ):
        swap(loaded)
    assert (list(loaded.state_dict()), loaded.config._attn_implementation) == before


def test_the_encoder_of_an_encoder_decoder_mixes() -> None:
    transformers = pytest.importorskip("transformers")
    decoder = transformers.BertLMHeadModel(text_model("Bert", is_decoder=True, add_cross_attention=True).config)
    model = transformers.EncoderDecoderModel(encoder=text_model("Bert"), decoder=decoder).eval()
    inputs = ids(9, 4)
    expected = hidden(swap(text_model("Bert"), "csp"), inputs)
    swap(model.encoder, "csp")
    whole = model(**inputs, decoder_input_ids=inputs["input_ids"])
    assert_close(whole.encoder_last_hidden_state, expected)
    with pytest.raises(ValueError, match=r"EncoderDecoderModel is made of several models; swap one of them"):
        swap(model, "csp")


@pytest.mark.slow
def test_another_implementation_of_a_swapped_model_is_refused() -> None:
    model, inputs = swap(text_model("Bert"), "csp", layers=[1]), ids(9, 4)
    before = hidden(model, inputs)
    for name in ("sdpa", "eager"):
        model.set_attn_implementation(name)
        with pytest.raises(ValueError, match=rf"set_attn_implementation\('{name}'\) undid a swap.*mixes with csp"):
            hidden(model, inputs)
    model.set_attn_implementation("sliceformer_lab")
    assert_close(hidden(model, inputs), before)


def test_a_swapped_model_is_opened_from_its_pickle_in_another_process(tmp_path: Path) -> None:
    model, inputs = swap(text_model("Bert"), "csp"), ids(9, 4)
    torch.save((model, inputs, hidden(model, inputs)), tmp_path / "model.pt")
    code = (
        "import sys, torch; model, inputs, before = torch.load(sys.argv[1], weights_only=False); "
        "torch.testing.assert_close(model(**inputs).last_hidden_state, before)"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "model.pt")], check=True)


def test_a_swapped_model_is_compiled_and_exported() -> None:
    model, inputs = swap(text_model("Bert"), "csp", layers=[0]), ids(9, 4)
    expected = hidden(model, inputs)
    assert_close(hidden(torch.compile(model, fullgraph=True, backend="aot_eager"), inputs), expected)
    program = torch.export.export(model, (), inputs)
    plain = program.run_decompositions({torch.ops.sliceformer_lab.shift_sort.default: decomposed})
    assert not [node for node in plain.graph.nodes if "sliceformer_lab" in str(node.target)]
    assert_close(plain.module()(**inputs).last_hidden_state, expected)


def test_timm_builds_its_vit_with_our_names() -> None:
    register_attentions(max_len=17)
    options: dict[str, Any] = {"img_size": 64, "patch_size": 16, "embed_dim": 24, "depth": 2, "num_heads": 3}
    model = timm.models.VisionTransformer(**options, attn_layer="csp").eval()
    pictures = torch.randn(2, 3, 64, 64)
    swapped = swap(timm.models.VisionTransformer(**options), "csp").eval()
    swapped.load_state_dict(model.state_dict())
    assert_close(model(pictures), swapped(pictures))


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("naflexvit_base_patch16_gap", "masks images of several sizes"),
        ("eva02_tiny_patch14_224", "rotary positions"),
        ("swin_tiny_patch4_window7_224", "windows of patches"),
    ],
)
def test_what_cannot_be_swapped_in_timm_is_refused_with_the_reason(name: str, reason: str) -> None:
    with torch.device("meta"):
        model = timm.create_model(name)
    with pytest.raises(ValueError, match=f"cannot be swapped: .*{reason}"):
        swap(model, "csp")


def test_hooks_of_queries_that_a_swap_removes_are_refused_and_those_that_stay_are_kept() -> None:
    model = text_model("Bert")
    own = model.encoder.layer[0].attention.self
    calls: list[str] = []
    handle = own.query.register_forward_hook(lambda *_: calls.append("query"))
    with pytest.raises(ValueError, match="layer 0: Linear has hooks, which the swap would drop"):
        swap(model, "csp")
    handle.remove()
    own.value.register_forward_hook(lambda *_: calls.append("value"))
    hidden(swap(model, "csp"), ids(9))
    assert calls == ["value"]


def test_a_causal_model_is_refused() -> None:
    with pytest.raises(ValueError, match="is causal; swap takes encoders"):
        swap(text_model("Bert", is_decoder=True), "csp")


@pytest.mark.parametrize("kind", ["Splinter", "GPT2"])  # GPT-2 has no layer that swap knows
def test_a_model_whose_other_layers_would_attend_in_another_way_is_refused(kind: str) -> None:
    transformers = pytest.importorskip("transformers")
    config = getattr(transformers, f"{kind}Config")(**SMALL, vocab_size=50, max_position_embeddings=16)
    model = getattr(transformers, f"{kind}Model")(config)
    with pytest.raises(ValueError, match="is more than scaled_dot_product_attention, which other layers keep"):
        swap(model, "csp", layers=[0])


def test_a_bias_on_scores_that_a_mixer_would_lose_is_refused() -> None:
    transformers = pytest.importorskip("transformers", "5.24", "its LayoutLMv3 has an attention of its own")
    boxes = {"coordinate_size": 4, "shape_size": 4, "visual_embed": False, "has_relative_attention_bias": True}
    config = transformers.LayoutLMv3Config(**SMALL, **boxes, vocab_size=50, max_position_embeddings=16)
    model = swap(transformers.LayoutLMv3Model(config).eval(), "csp")
    with pytest.raises(ValueError, match="LayoutLMv3SelfAttention passes position_bias, which a swapped attention"):
        model(**ids(9), bbox=torch.zeros(1, 9, 4, dtype=torch.long))


def test_a_refused_swap_changes_nothing() -> None:
    transformers = pytest.importorskip("transformers")
    sizes = {"d_model": 24, "encoder_attention_heads": 3, "decoder_attention_heads": 3, "vocab_size": 50}
    model = transformers.BartModel(transformers.BartConfig(**sizes, encoder_layers=1, decoder_layers=1))
    before = list(model.state_dict())
    with pytest.raises(ValueError, match="layer 1 of BartModel is causal"):
        swap(model, "csp")
    assert list(model.state_dict()) == before and not mixers_of(model)


@pytest.mark.parametrize("by_name", [False, True])
def test_a_model_that_is_causal_by_a_keyword_only_is_refused_before_it_mixes(by_name: bool) -> None:
    transformers = pytest.importorskip("transformers")
    register_attentions()
    model = transformers.CLIPTextModel(transformers.CLIPTextConfig(**SMALL, vocab_size=50, max_position_embeddings=16))
    model.set_attn_implementation("csp") if by_name else swap(model, "csp")
    with pytest.raises(ValueError, match="CLIPAttention is causal; a swapped attention is for encoders"):
        hidden(model, ids(9))


def test_a_swapped_attention_takes_no_more_tokens_than_it_was_built_for() -> None:
    options: dict[str, Any] = {"img_size": 32, "patch_size": 16, "embed_dim": 24, "depth": 1, "num_heads": 3}
    model = swap(timm.models.VisionTransformer(**options, dynamic_img_size=True), "csp").eval()
    assert model(torch.randn(1, 3, 32, 32)).shape == (1, 1000)
    with pytest.raises(ValueError, match=r"csp was swapped in for at most 5 tokens, got 17; give swap .* as max_len"):
        model(torch.randn(1, 3, 64, 64))
    layer = swap(nn.TransformerEncoderLayer(24, 3, batch_first=True), "csp", max_len=5)
    with pytest.raises(ValueError, match="at most 5 tokens, got 6"):
        layer(torch.randn(1, 6, 24))
