"""Whether a token in front of a grid, such as a class token, receives something of the patches."""

from __future__ import annotations

import pytest
import torch
from support.plans import build_data, build_task, prepared
from support.runs import small_config

from sliceformer_lab.attention import LayerSpec, build_layer
from sliceformer_lab.config.compose import load_options

OF_GRIDS = {"csp": {"grid": True}, "shift": {"steps": "s2"}}  # options that act on a grid


def test_every_attention_says_whether_a_class_token_receives_something_of_the_patches() -> None:
    spec = LayerSpec(dim=16, num_heads=2, max_len=17, grid=(4, 4), num_prefix=1, depth=2)
    nodes = {name: node for name, node in load_options("attention").items() if name != "hybrid"}
    nodes |= {f"{name} on a grid": nodes[name] | options for name, options in OF_GRIDS.items()}
    said, found = {}, {}
    for name, node in nodes.items():
        torch.manual_seed(0)
        layer = build_layer(node, spec).eval()
        for parameter in layer.parameters():  # some begin with zeros, which pass nothing on
            torch.nn.init.normal_(parameter, std=0.3)
        one = torch.randn(4, 17, 16)
        two = torch.cat([one[:, :1], torch.randn(4, 16, 16)], dim=1)
        with torch.no_grad():
            torch.manual_seed(1)
            first = layer(one)[:, 0]
            torch.manual_seed(1)
            found[name] = not torch.equal(first, layer(two)[:, 0])
        said[name] = layer.mixes_prefix
    assert said == found
    assert {name for name, mixes in found.items() if not mixes} >= {"identity", "pooling", "csp on a grid"}


@pytest.mark.parametrize(
    ("attention", "pool", "warns"), [("pooling", "cls", True), ("pooling", "mean", False), ("csp", "cls", False)]
)
def test_a_class_token_that_receives_nothing_is_warned_of(
    attention: str, pool: str, warns: bool, caplog: pytest.LogCaptureFixture
) -> None:
    config = small_config(f"attention={attention}", f"task.pool={pool}")
    build_task(config, prepared(build_data(config)).spec)
    assert ("brings information from other tokens to the class token" in caplog.text) == warns
