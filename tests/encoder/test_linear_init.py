"""Initial weights of linear layers and of tables as published codes have them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from support.encoders import make_encoder
from support.plans import build_data, build_task
from torch import Tensor, nn

from sliceformer_lab.config.compose import compose_job, compose_root
from sliceformer_lab.encoder.factory import Encoder
from sliceformer_lab.encoder.graphormer import GraphBias, GraphEmbedding

DIM, MLP = 64, 192


def encoder(attention: str = "mha", **options: Any) -> Encoder:
    sizes = {"dim": DIM, "depth": 2, "num_heads": 4, "mlp_dim": MLP, "position": "none", **options}
    return make_encoder(attention, {}, sizes, kind="lra")


def named_weights(module: nn.Module, ending: str) -> dict[str, Tensor]:
    return {name: weight.detach() for name, weight in module.named_parameters() if name.endswith(ending)}


def test_linear_layers_of_long_range_arena_start_xavier_uniform_with_tiny_biases() -> None:
    built = encoder(linear_init="lra")
    for part in ("query", "key", "value", "out", "fc1", "fc2"):
        for name, weight in named_weights(built, f"{part}.weight").items():
            bound = (6 / sum(weight.shape)) ** 0.5
            assert 0.98 * bound < weight.abs().max() <= bound, name
            assert weight.std() == pytest.approx(bound / 3**0.5, rel=0.05), name
        biases = torch.cat([*named_weights(built, f"{part}.bias").values()])
        assert biases.std() == pytest.approx(1e-6, rel=0.3), part


def test_an_operator_keeps_the_weights_of_its_own_source() -> None:
    for published, ours in zip(
        encoder("mlp_mixer", linear_init="lra").attentions, encoder("mlp_mixer").attentions, strict=True
    ):
        for linear in (published, ours):
            assert linear.inner.weight.detach().std() == pytest.approx(linear.inner.in_features**-0.5, rel=0.3)
            assert not linear.inner.bias.any()


def test_the_default_is_torch_s_and_draws_no_other_random_numbers() -> None:
    weights = encoder().state_dict()
    torch.testing.assert_close(dict(encoder(linear_init="torch").state_dict()), dict(weights), rtol=0, atol=0)
    assert weights["blocks.0.mlp.fc1.bias"].std() > 0.01


def test_the_head_of_long_range_arena_starts_as_in_flax() -> None:
    config = compose_root(
        ["task=lra_listops", "encoder=lra_listops", "task.pool=mean", "task.head=mlp", "encoder.depth=1"]
    )
    torch.manual_seed(0)
    head = build_task(config, build_data(config).spec).head
    for layer in (head[0], head[2]):
        std = layer.in_features**-0.5
        assert layer.weight.detach().std() == pytest.approx(std, rel=0.05)
        assert layer.weight.abs().max() <= 2 * std / 0.8796 + 1e-6
        assert not layer.bias.any()


@pytest.mark.parametrize(
    ("recipe", "expected"),
    {
        "sliceformer/table2_lra_image": "lra",
        "csp/table4a_lra_retrieval": "lra",
        "csp/table4b_lra_text": "torch",  # MEGA, another code
        "samsa/table2_lra_text": "torch",
    }.items(),
)
def test_recipes_of_the_arena_s_code_start_as_it_does(recipe: str, expected: str) -> None:
    assert compose_job([f"recipe={recipe}"])["encoder"]["linear_init"] == expected


def test_linear_layers_of_graphormer_start_small_and_without_biases() -> None:
    for name, weight in encoder(linear_init="graphormer").named_parameters():
        if "norm" in name:
            continue
        if name.endswith("bias"):
            assert not weight.any(), name
        else:
            assert weight.detach().std() == pytest.approx(0.02 / 2**0.5, rel=0.1), name


@pytest.mark.parametrize("zero_padding", [True, False])
def test_tables_of_graphormer_start_small_and_their_row_of_padding_is_zero_unless_as_published(
    zero_padding: bool,
) -> None:
    torch.manual_seed(0)
    tokens, bias = GraphEmbedding(9, 64, zero_padding=zero_padding), GraphBias(64, 3, zero_padding=zero_padding)
    tables = [module for part in (tokens, bias) for module in part.modules() if isinstance(module, nn.Embedding)]
    assert len(tables) == 5
    for table in tables:
        assert table.padding_idx == 0 and bool(table.weight[0].any()) != zero_padding
    for weight in (*(table.weight[1:] for table in tables), tokens.graph_token, bias.hop, bias.virtual):
        assert weight.std().item() == pytest.approx(0.02, rel=0.3)


def test_pcqm4m_is_trained_as_published() -> None:
    config = compose_job(["recipe=sliceformer/table6_pcqm4m"])
    assert config["encoder"]["linear_init"] == "graphormer" and not config["task"]["standardise"]
    assert not config["optim"]["no_decay"]
    assert config["data"]["batch_size"] * config["optim"]["accumulate"] == 512
