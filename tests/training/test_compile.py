"""trainer.compile=true: training runs compiled code, all else stays as it is, and a failure is one warning."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest
import pytorch_lightning as pl
import torch
from torch import Tensor, nn

from sliceformer_lab.config.compose import load_option
from sliceformer_lab.config.schema import schema
from sliceformer_lab.training.trainer import Trainer, compile_encoder


def compiles_to(result: Callable[..., Tensor], monkeypatch: pytest.MonkeyPatch) -> None:
    """Puts a function in the place of what torch.compile returns."""
    monkeypatch.setattr(torch, "compile", lambda forward: result)


def test_training_runs_compiled_code_and_evaluation_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    encoder, x = nn.Linear(3, 3), torch.ones(2, 3)
    names, expected = list(encoder.state_dict()), encoder(x)
    compiles_to(lambda x: x + 7, monkeypatch)
    compile_encoder(encoder)
    torch.testing.assert_close(encoder(x), x + 7)
    torch.testing.assert_close(encoder.eval()(x), expected)
    assert list(encoder.state_dict()) == names == ["weight", "bias"]  # a checkpoint needs no compilation to be read


def test_failed_compilation_is_one_warning_and_training_goes_on(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def no_compiler(x: Tensor) -> Tensor:
        raise RuntimeError(f"No working C++ compiler for {tuple(x.shape)}\nmore lines")

    encoder, x = nn.Linear(3, 3), torch.ones(2, 3)
    expected = encoder(x)
    compiles_to(no_compiler, monkeypatch)
    compile_encoder(encoder)
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            torch.testing.assert_close(encoder(x), expected)
    (record,) = caplog.records
    reason = "torch.compile failed (No working C++ compiler for (2, 3)); this run trains without it"
    assert record.getMessage() == f"WARNING: trainer.compile: {reason}"


def test_error_of_code_that_ran_compiled_before_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails_later(x: Tensor) -> Tensor:
        if len(x) > 2:
            raise ValueError("too many rows")
        return x

    encoder = nn.Linear(3, 3)
    compiles_to(fails_later, monkeypatch)
    compile_encoder(encoder)
    encoder(torch.ones(2, 3))
    with pytest.raises(ValueError, match="too many rows"):
        encoder(torch.ones(3, 3))


def test_trainer_has_compile_and_those_of_lightnings_options_that_leave_a_score_what_it_is() -> None:
    assert set(schema(Trainer)) - set(schema(pl.Trainer)) == {"compile"}
    assert not {"limit_test_batches", "gradient_clip_val", "val_check_interval", "callbacks"} & set(schema(Trainer))
    assert schema(Trainer).keys() == load_option("trainer", "ddp").keys() - {"_target_"}
