"""Swaps in modules with torch's own attention."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations, prune
from torch.testing import assert_close

from sliceformer_lab import swap


def encoder(depth: int) -> Any:
    return nn.TransformerEncoder(nn.TransformerEncoderLayer(24, 4, 32, batch_first=True), depth)


class CausalAttention(nn.MultiheadAttention):
    """A user's subclass, whose forward says more than its weights."""

    def forward(self, query: Tensor, key: Tensor, value: Tensor, **options: Any) -> tuple[Tensor, Tensor | None]:
        mask = torch.ones(query.shape[1], query.shape[1], dtype=torch.bool).triu(1)
        return super().forward(query, key, value, attn_mask=mask, **options)


def test_a_subclass_with_a_forward_of_its_own_is_refused_and_nothing_changes() -> None:
    model = encoder(2)
    model.layers[1].self_attn = CausalAttention(24, 4, batch_first=True)
    before = list(model.state_dict())
    with pytest.raises(ValueError, match="layer 1 has no torch attention to swap, it has CausalAttention"):
        swap(model, "mean")
    assert list(model.state_dict()) == before and model.use_nested_tensor


@pytest.mark.parametrize("batch_first", [True, False])
def test_an_encoder_of_torch_is_swapped(batch_first: bool) -> None:
    layer = nn.TransformerEncoderLayer(24, 3, 32, dropout=0, batch_first=batch_first)
    model = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()
    x = torch.randn(2, 9, 24)
    padding = torch.arange(9) >= torch.tensor([[9], [5]])

    def call() -> Tensor:
        given = x if batch_first else x.transpose(0, 1)
        result: Tensor = model(given, src_key_padding_mask=padding)
        return result if batch_first else result.transpose(0, 1)

    before = call()
    swap(model, "mha", max_len=9)
    assert_close(call()[~padding], before[~padding], atol=1e-5, rtol=1e-5)
    with pytest.raises(ValueError, match="takes no attention mask"):
        model(x, mask=torch.zeros(9, 9, dtype=torch.bool))


@pytest.mark.filterwarnings("ignore:.*nested")
@pytest.mark.parametrize("layers", [None, [1]])
def test_csp_in_an_encoder_of_torch_ignores_padding(layers: list[int] | None) -> None:
    layer = nn.TransformerEncoderLayer(24, 4, 32, batch_first=True)
    model = swap(nn.TransformerEncoder(layer, 2).eval(), "csp", max_len=20, layers=layers)
    x = torch.randn(1, 5, 24)
    longer = torch.cat([x, torch.randn(1, 4, 24)], dim=1)
    padding = (torch.arange(9) >= 5)[None]
    assert_close(model(longer, src_key_padding_mask=padding)[:, :5], model(x))
    with pytest.raises(ValueError, match="pad on the right"):
        model(longer, src_key_padding_mask=padding.flip(1))


@pytest.mark.parametrize("keep_qk", [False, True])
def test_a_torch_layer_keeps_its_number_when_another_one_is_swapped(keep_qk: bool) -> None:
    model = encoder(3)
    swap(model, "csp", layers=[0], max_len=9, keep_qk=keep_qk)
    swap(model, "mean", layers=[2])
    assert [getattr(layer.self_attn, "attention", layer).__class__.__name__ for layer in model.layers] == [
        "CSP",
        "TransformerEncoderLayer",
        "Mean",
    ]
    with pytest.raises(ValueError, match="layer 0 was swapped already, to csp; swap the original model"):
        swap(model, "mean")


def test_layers_that_share_an_attention_share_the_new_one() -> None:
    layers: Any = nn.ModuleList(nn.TransformerEncoderLayer(24, 3, batch_first=True) for _ in range(2))
    layers[1].self_attn = layers[0].self_attn
    swap(layers, "mean")
    assert layers[1].self_attn is layers[0].self_attn


def test_an_input_without_a_batch_is_refused() -> None:
    layer = swap(nn.TransformerEncoderLayer(24, 3, batch_first=True), "mean")
    with pytest.raises(ValueError, match="one tensor of three dimensions, got 2"):
        layer(torch.randn(6, 24))


def test_a_mask_of_numbers_hides_tokens_or_is_refused() -> None:
    layer = swap(nn.TransformerEncoderLayer(24, 3, dropout=0, batch_first=True), "csp", max_len=9)
    x, padding = torch.randn(1, 9, 24), (torch.arange(9) >= 5)[None]
    expected = layer(x, src_key_padding_mask=padding)
    for hidden in (-torch.inf, -1e4):
        assert_close(layer(x, src_key_padding_mask=torch.zeros(1, 9).masked_fill(padding, hidden)), expected)
    for other in (1.0, -1.0):
        with pytest.raises(ValueError, match="key_padding_mask as bool, or as 0 and -inf"):
            layer(x, src_key_padding_mask=torch.zeros(1, 9).masked_fill(padding, other))


def test_a_compiled_program_refuses_padding_in_front_too() -> None:
    layer = swap(nn.TransformerEncoderLayer(24, 3, dropout=0, batch_first=True), "csp", max_len=9)
    x, padding = torch.randn(1, 9, 24), (torch.arange(9) >= 5)[None]
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    behind = compiled(x, src_key_padding_mask=padding)
    assert_close(behind[:, :5], layer(x, src_key_padding_mask=padding)[:, :5])
    with pytest.raises(RuntimeError, match="pad on the right"):
        compiled(x, src_key_padding_mask=padding.flip(1))


def test_a_graph_layer_that_asks_for_torch_s_own_class_calls_the_new_attention() -> None:
    pytest.importorskip("torch_geometric")
    from torch_geometric.nn import GPSConv

    torch.manual_seed(0)
    original = GPSConv(24, None, heads=3, dropout=0).eval()
    x, edges, graph = torch.randn(9, 24), torch.empty(2, 0, dtype=torch.long), torch.tensor([0] * 5 + [1] * 4)
    before = original(x, edges, graph)
    assert_close(swap(deepcopy(original), "mha", max_len=9)(x, edges, graph), before, atol=1e-5, rtol=1e-5)
    swapped = swap(original, "csp", max_len=9)
    assert_close(swapped(x, edges, graph)[:5], swapped(x[:5], edges, graph[:5]))
    assert (swapped(x, edges, graph) - before).abs().max() > 1e-3


@pytest.mark.parametrize("layers", [1, [1.0], "01", [True, False], [-1], [2]], ids=str)
def test_layers_that_the_model_lacks_are_refused_in_one_sentence(layers: Any) -> None:
    with pytest.raises(ValueError, match="the model has layers 0 to 1; give a list of them"):
        swap(encoder(2), "mean", layers=layers)


def test_a_layer_that_is_named_twice_is_swapped_once() -> None:
    model = swap(encoder(2), "mean", layers=[1, 1])
    assert type(model.layers[0].self_attn) is nn.MultiheadAttention
    assert model.layers[1].self_attn.attention.name == "mean"


def test_padding_of_another_shape_or_of_integers_is_refused() -> None:
    mixer, x = swap(encoder(1), "mean").layers[0].self_attn, torch.randn(2, 6, 24)
    for padding in (torch.zeros(2, 4, dtype=torch.bool), torch.zeros(1, 6), torch.zeros(2, 6, dtype=torch.int64)):
        with pytest.raises(ValueError, match=r"takes key_padding_mask \(2, 6\) of bool, or of 0 and -inf, got"):
            mixer(x, x, x, key_padding_mask=padding)


@pytest.mark.parametrize("computed", [parametrizations.weight_norm, lambda m, n: prune.l1_unstructured(m, n, 0.5)])
def test_an_attention_whose_weights_are_computed_is_refused_and_nothing_changes(computed: Any) -> None:
    model = encoder(2)
    computed(model.layers[1].self_attn, "in_proj_weight")
    before = list(model.state_dict())
    with pytest.raises(ValueError, match=r"layer 1: .*MultiheadAttention has no plain value.weight, it has in_proj"):
        swap(model, "mean")
    assert list(model.state_dict()) == before


def test_the_weights_of_a_frozen_model_stay_frozen_and_new_ones_learn() -> None:
    model = swap(encoder(1).requires_grad_(False), "depthwise_conv", max_len=8)
    learns = {name.rpartition("attention.")[2] for name, weight in model.named_parameters() if weight.requires_grad}
    assert learns == {"conv.weight"}


@pytest.mark.parametrize("part", ["self_attn", "self_attn.out_proj"])
@pytest.mark.parametrize("kind", ["register_forward_hook", "register_forward_pre_hook", "register_full_backward_hook"])
def test_an_attention_whose_hooks_would_be_dropped_is_refused_and_nothing_changes(part: str, kind: str) -> None:
    model = encoder(2)
    handle = getattr(model.layers[1].get_submodule(part), kind)(lambda *_: None)
    before = list(model.state_dict())
    with pytest.raises(ValueError, match=r"layer 1: (out_proj|MultiheadAttention) has hooks, which the swap would"):
        swap(model, "mean")
    assert list(model.state_dict()) == before
    handle.remove()
    swap(model, "mean")


def test_a_model_on_the_meta_device_is_refused() -> None:
    with torch.device("meta"):
        model = encoder(1)
    with pytest.raises(ValueError, match="on the meta device cannot be swapped; load its weights first"):
        swap(model, "csp", max_len=8)
