"""A run's configuration is checked once and its data are built once, before anything runs."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from types import FrameType

import pytest
from support.runs import SMALL

from sliceformer_lab.__main__ import main
from sliceformer_lab.config.checked import check_config
from sliceformer_lab.training.build import build_data


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("optim=auto", "optim.epochs=null", "optim.target_steps=2", "data.batch_size=null"),  # chosen from the data
        ("budget=params:60K",),
    ],
)
def test_a_run_checks_its_configuration_once_and_builds_its_data_once(words: tuple[str, ...], tmp_path: Path) -> None:
    calls: Counter[str] = Counter()
    followed = {check_config.__code__: "check_config", build_data.__code__: "build_data"}

    def count(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code in followed:
            calls[followed[frame.f_code]] += 1

    given = {
        word.partition("=")[0]: word for word in (*SMALL, *words, "optim.max_steps=2", f"paths.outputs={tmp_path}")
    }
    sys.setprofile(count)
    try:
        assert main(list(given.values())) == 0
    finally:
        sys.setprofile(None)
    assert calls == {"check_config": 1, "build_data": 1}


def test_all_faults_of_the_values_are_named_at_once(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    words = ("task=text_csv", "data.file=missing.csv", "seed=-1", "trainer.limit_val_batches=0", "encoder.dim=1000000")
    assert main([*words, f"paths.outputs={tmp_path}"]) == 1
    printed = capfd.readouterr().err
    assert printed.count("\n") == 1
    for fault in ("missing.csv does not exist", "seed: given -1", "limit_val_batches: given 0", "encoder.dim=1,000"):
        assert fault in printed
