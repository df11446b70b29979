"""Small encoders for tests, from the options of conf."""

from __future__ import annotations

from typing import Any

import torch

from sliceformer_lab.config.compose import load_option
from sliceformer_lab.encoder.factory import Encoder, build_encoder


def make_encoder(
    attention: str = "mha",
    block: dict[str, Any] | None = None,
    encoder: dict[str, Any] | None = None,
    max_len: int = 16,
    *,
    kind: str = "vit",
    mixer: dict[str, Any] | None = None,
    **given: Any,
) -> Encoder:
    """The encoder `tiny` with blocks of a kind and weights of seed 0; options of all three nodes may be changed.

    `given`: what else `build_encoder` takes, such as a grid.
    """
    torch.manual_seed(0)
    return build_encoder(
        load_option("encoder", "tiny") | (encoder or {}),
        load_option("block", kind) | (block or {}),
        load_option("attention", attention) | (mixer or {}),
        max_len,
        **given,
    )
