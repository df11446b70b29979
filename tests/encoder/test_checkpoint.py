"""`encoder.checkpoint=true`: the same training with less memory between the passes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from support.encoders import make_encoder
from torch import Tensor

from sliceformer_lab.batch import Padding
from sliceformer_lab.encoder.factory import Encoder
from sliceformer_lab.errors import ConfigError
from sliceformer_lab.measures.call_cost import saved_bytes

TOKENS, DIM = 16, 16
SIZES = {"dim": DIM, "depth": 4, "num_heads": 4, "mlp_dim": 32, "position": "none"}
DROPOUTS = {"dropout": 0.2, "attention_dropout": 0.2, "drop_path": 0.2}
RANDOM_OR_STATEFUL = ("csp", "mha", "differential", "luna", "samsa", "samsa_published", "reformer", "synthesizer")


def make(
    checkpoint: bool,
    attention: str = "csp",
    block: dict[str, Any] | None = None,
    mixer: dict[str, Any] | None = None,
    **sizes: Any,
) -> Encoder:
    encoder = SIZES | sizes | {"checkpoint": checkpoint}
    return make_encoder(attention, block, encoder, TOKENS, kind="transformer", mixer=mixer).train()


def trained(encoder: Encoder, padded: bool) -> list[Tensor]:
    """The output and all gradients of a step in bfloat16, and random numbers drawn after it."""
    torch.manual_seed(1)
    x = torch.randn(3, TOKENS, DIM, requires_grad=True)
    padding = Padding.from_lengths(torch.tensor([5, TOKENS, 9]), TOKENS) if padded else None
    with torch.autocast("cpu", torch.bfloat16):
        out = encoder(x, padding)
    torch.autograd.backward(out.float().square().sum())
    return [out, x.grad, *(p.grad for p in encoder.parameters() if p.grad is not None), torch.rand(3)]


@pytest.mark.parametrize("attention", RANDOM_OR_STATEFUL)
def test_a_step_with_dropout_is_bit_equal(attention: str) -> None:
    padded = attention != "synthesizer"
    plain, kept = (trained(make(checkpoint, attention, **DROPOUTS), padded) for checkpoint in (False, True))
    assert len(plain) == len(kept)
    for one, other in zip(plain, kept, strict=True):
        assert torch.equal(one, other)


def test_between_the_passes_a_block_more_saves_its_input_alone() -> None:
    def saved(checkpoint: bool, depth: int) -> int:
        encoder = make(checkpoint, depth=depth)
        return saved_bytes(lambda: encoder(torch.randn(3, TOKENS, DIM)), encoder.parameters())

    assert saved(True, 4) - saved(True, 2) == 2 * 4 * 3 * TOKENS * DIM
    assert saved(False, 4) - saved(False, 2) > 5 * (saved(True, 4) - saved(True, 2))


def test_evaluation_runs_each_block_once_and_keeps_its_output() -> None:
    x, kept = torch.randn(3, TOKENS, DIM), make(True)
    assert torch.equal(kept.eval()(x), make(False).eval()(x))


def test_batch_norm_and_a_performer_that_counts_steps_are_refused() -> None:
    with pytest.raises(ConfigError, match="TokenBatchNorm would count both"):
        make(True, block={"norm": "batchnorm"})
    with pytest.raises(ConfigError, match="Performer would count both"):
        make(True, "performer", mixer={"redraw_every": 5})
