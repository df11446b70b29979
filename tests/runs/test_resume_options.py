"""What the command line may change in a run that is resumed."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser

from sliceformer_lab.config.compose import compose_job
from sliceformer_lab.errors import ConfigError
from sliceformer_lab.runs.folder import write_config
from sliceformer_lab.runs.names import register_resolvers
from sliceformer_lab.runs.resume import list_differences, resumed_config
from sliceformer_lab.runs.sweep import resume_word

RUN = ("task=digits", "attention=mha", "callbacks=minimal", "hydra.run.dir=unused")


def resumed(folder: Path, saved: tuple[str, ...], given: tuple[str, ...]) -> dict[str, Any]:
    """The configuration of a run with the words `saved` that is resumed with the words `given`."""
    register_resolvers()
    write_config(folder, compose_job([*RUN, *saved]))
    words = [f"resume={folder}", *given]
    return resumed_config(compose_job(words), given)


@pytest.mark.parametrize(
    ("saved", "given"),
    [
        *[((), (word,)) for word in ("trainer.precision=bf16-mixed", "trainer.compile=true", "trainer.fast_dev_run=1")],
        *[((), (word,)) for word in ("trainer.limit_train_batches=2", "trainer.overfit_batches=2")],
        *[((), (word,)) for word in ("callbacks=ema", "callbacks=early_stop", "~callbacks.guard")],
        (("callbacks=ema",), ("callbacks=default",)),
    ],
)
def test_an_option_that_can_change_the_result_is_refused_in_one_sentence(
    saved: tuple[str, ...], given: tuple[str, ...], tmp_path: Path
) -> None:
    with pytest.raises(ConfigError) as error:
        resumed(tmp_path, saved, given)
    said = "other callbacks" if given[0].startswith("callbacks=") else "a resumed run keeps its configuration, except "
    assert re.match(rf"{re.escape(given[0])}: (the run has )?{said}", str(error.value))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("folder", ["/out/run", "/my out/run a", "/a  b", "/it's (1), {x}=$HOME", " /out"])
def test_advice_names_a_folder_as_a_shell_and_hydra_read_it(folder: str) -> None:
    (word,) = shlex.split(resume_word(Path(folder)))
    assert OverridesParser.create().parse_override(word).value() == folder
    assert resume_word(Path("/out/run")) == "resume=/out/run"


def test_other_callbacks_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^callbacks=default: the run has other callbacks \(ema\); leave"):
        resumed(tmp_path, ("callbacks=ema", "~callbacks.early_stop"), ("callbacks=default",))


def test_another_trainer_computes_elsewhere_with_the_precision_and_the_batches_of_the_run(tmp_path: Path) -> None:
    saved = ("trainer.limit_train_batches=3",)
    found = resumed(tmp_path, saved, ("trainer=fsdp", "trainer.devices=1"))["trainer"]
    assert (found["accelerator"], found["strategy"], found["devices"], found["num_nodes"]) == ("gpu", "fsdp", 1, 1)
    assert (found["precision"], found["limit_train_batches"]) == ("32-true", 3)
    back = resumed(tmp_path, ("trainer=fsdp", *saved), ("trainer=cpu",))["trainer"]
    assert (back["precision"], back["limit_train_batches"]) == ("bf16-mixed", 3) and "num_nodes" not in back


def test_an_option_with_the_value_of_the_run_is_no_change(tmp_path: Path) -> None:
    given = ("trainer=fsdp", "trainer.devices=1", "trainer.precision=32-true", "optim.epochs=7")
    found = resumed(tmp_path, ("optim.epochs=7",), given)
    assert (found["trainer"]["strategy"], found["trainer"]["precision"], found["optim"]["epochs"]) == (
        "fsdp",
        "32-true",
        7,
    )


def test_callbacks_that_only_look_on_may_change(tmp_path: Path) -> None:
    found = resumed(tmp_path, ("callbacks=ema",), ("callbacks.throughput.warmup_batches=2", "~callbacks.spectrum"))
    assert found["callbacks"]["throughput"]["warmup_batches"] == 2 and found["callbacks"]["ema"]["decay"] == 0.999
    assert "spectrum" in resumed(tmp_path, (), ("callbacks=default",))["callbacks"]


def test_a_restart_differs_in_options_that_change_a_result_only() -> None:
    register_resolvers()
    one = compose_job(RUN)
    assert list_differences(one, compose_job([*RUN, "trainer.benchmark=true", "logger=wandb", "pictures=false"])) == []
    assert list_differences(one, compose_job([*RUN, "callbacks=ema", "trainer.overfit_batches=2"])) == [
        "callbacks",
        "trainer",
    ]
