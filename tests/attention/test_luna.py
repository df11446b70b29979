"""Luna: the memory that the encoder passes from layer to layer."""

from __future__ import annotations

import copy
from typing import cast

import pytest
import torch
from torch.testing import assert_close

from sliceformer_lab.attention.base import LayerState
from sliceformer_lab.attention.contract import DIM, HEADS, MAX_LEN, padded, tokens
from sliceformer_lab.attention.luna import Luna
from sliceformer_lab.config.compose import compose_job, load_option
from sliceformer_lab.encoder.factory import Encoder, build_encoder

DEPTH = 3


def encoder(*pattern: str) -> Encoder:
    sizes = {"dim": DIM, "depth": DEPTH, "num_heads": HEADS, "mlp_dim": DIM, "position": "none"}
    attention = load_option("attention", "hybrid") | {"pattern": list(pattern)}
    nodes = load_option("encoder", "tiny") | sizes, load_option("block", "transformer"), attention
    return build_encoder(*nodes, max_len=MAX_LEN).eval()


def test_the_encoder_passes_the_memory_from_layer_to_layer() -> None:
    model = encoder("luna")
    x, padding = padded([tokens(n, batch=1, seed=n)[0] for n in (12, 5)], MAX_LEN)
    h = x.masked_fill(~padding.mask[..., None], 0)
    state = LayerState()
    for block in model.blocks:
        mixed = block.attention(block.norm1(h), padding, state=state)
        h = h + mixed
        h = (h + block.mlp(block.norm2(h))).masked_fill(~padding.mask[..., None], 0)
    expected = model.norm(h)
    assert_close(model(x, padding)[padding.mask], expected[padding.mask])


def test_layers_without_a_memory_leave_it_unchanged() -> None:
    model, x = encoder("luna", "mean", "luna"), tokens(MAX_LEN)
    with torch.no_grad():
        model.blocks[0].attention.out.weight.zero_()  # now layer 0 reaches the tokens through its state alone
        before = model(x)
        model.blocks[0].attention.memory.add_(torch.randn(DIM))
        assert not torch.allclose(model(x), before)


def test_only_layer_0_allocates_the_memory_and_every_parameter_is_used() -> None:
    model = encoder("luna")
    (model(tokens(MAX_LEN)) * tokens(MAX_LEN, seed=2)).sum().backward()
    names = [name for name, _ in model.named_parameters() if name.endswith("memory")]
    assert names == ["blocks.0.attention.memory"]
    assert [name for name, p in model.named_parameters() if p.grad is None or not p.grad.any()] == []


def test_a_pass_leaves_no_state() -> None:
    model, x = encoder("luna"), tokens(MAX_LEN)
    alone = model.blocks[1].attention(x)
    first = model(x)
    assert_close(model.blocks[1].attention(x), alone, rtol=0, atol=0)
    assert_close(copy.deepcopy(model)(x), first, rtol=0, atol=0)
    with pytest.raises(RuntimeError):
        model(torch.zeros(2, MAX_LEN, DIM + 1))
    assert_close(model(x), first, rtol=0, atol=0)


@torch.no_grad()
def test_with_embedding_norms_the_first_layer_reads_normalised_tokens_and_memory() -> None:
    sizes = {"dim": DIM, "depth": 1, "num_heads": HEADS, "mlp_dim": DIM, "position": "sincos", "embed_norm": True}
    attention = load_option("attention", "luna") | {"embed_norm": True}
    nodes = load_option("encoder", "tiny") | sizes, load_option("block", "post_norm"), attention
    model = build_encoder(*nodes, max_len=MAX_LEN).eval()
    torch.nn.init.normal_(model.embed_norm.weight)
    layer, x = cast(Luna, model.blocks[0].attention), tokens(MAX_LEN)
    assert model.position is not None
    embedded = model.embed_norm(model.position(x))
    assert_close(model(x), model.blocks[0](embedded))
    scaled = copy.deepcopy(layer)
    scaled.memory.mul_(5)
    assert_close(scaled(embedded), layer(embedded), atol=1e-4, rtol=1e-4)  # its scale is lost


def test_recipes_of_luna_have_its_norms_and_attention_dropout() -> None:
    for task in ("listops", "text", "retrieval", "image", "pathfinder"):
        config = compose_job([f"recipe=samsa/table2_lra_{task}_luna"])
        assert config["encoder"]["embed_norm"] and config["attention"]["embed_norm"]
        assert config["encoder"]["attention_dropout"] == 0.1
