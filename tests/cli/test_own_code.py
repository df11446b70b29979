"""A user's own code, in a file beside where the program is started: it trains, resumes and opens, only if allowed."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.run_folders import read_summary
from support.runs import last_of_each

from sliceformer_lab import load_run
from sliceformer_lab.cli.arguments import open_arguments
from sliceformer_lab.cli.run_sweep import planned_sweep
from sliceformer_lab.cli.train import train_command
from sliceformer_lab.config.compose import CONF_DIR, option_names
from sliceformer_lab.config.schema import ConfigError
from sliceformer_lab.errors import DataError
from sliceformer_lab.runs.folder import read_config
from sliceformer_lab.runs.sources import check_sources
from sliceformer_lab.sweeps.plan import SweepPlan

CODE = '''
import os
import signal

from pytorch_lightning import Callback

from sliceformer_lab.attention import ALONE, Attention, LayerSpec
from sliceformer_lab.data.images.small_images import Digits
from sliceformer_lab.encoder import block
from sliceformer_lab.tasks.image import ImageClassification
from sliceformer_lab.training.context import RunContext


class Reverse(Attention):
    """Gives every token the values of its mirror image."""

    accepts_padding = False
    complexity = "N C"
    source = "example"

    def __init__(self, spec: LayerSpec, *, groups: int = 2):
        super().__init__(spec)
        self.groups = groups

    def mix(self, v, q=None, k=None, given=ALONE):
        if given.padding is not None:
            raise ValueError("reverse does not support padded batches")
        return v.flip(1)


class Block(block.Block):
    pass


class Data(Digits):
    pass


class Task(ImageClassification):
    pass


class StopOnce(Callback):
    """Stops a run like Ctrl-C in its second epoch, unless it was stopped before."""

    def __init__(self, context: RunContext, *, name: str = "stopped"):
        self.flag = context.folder / name

    def on_train_epoch_start(self, trainer, pl_module):
        if trainer.current_epoch == 1 and not self.flag.exists():
            self.flag.touch()
            os.kill(os.getpid(), signal.SIGINT)


class OptionBeforeStar(Attention):
    def __init__(self, spec: LayerSpec, size: int = 2):
        super().__init__(spec)

    mix = Reverse.mix


class NoSpec(Reverse):
    def __init__(self, *, size: int = 2):
        super().__init__(LayerSpec(dim=8, num_heads=2))


class Broken(Reverse):
    source = ""
    accepts_padding = True

    def __init__(self, spec: LayerSpec, *, size: int = 2):
        super().__init__(spec)
'''
OWN = {
    "attention/mine": "# Mirrors the tokens.\n_target_: my_lab.Reverse\ngroups: 2 # of nothing\n",
    "attention/broken": "# Breaks rules.\n_target_: my_lab.Broken\n",
    "callbacks/mine": "# One more.\ndefaults: [minimal, _self_]\nstop:\n  _target_: my_lab.StopOnce\n  name: stopped\n",
    "task/mine": "# @package _global_\n# Digits of my own.\ndefaults: [digits]\ntask:\n  _target_: my_lab.Task\n"
    "data:\n  _target_: my_lab.Data\nblock:\n  _target_: my_lab.Block\n",
}
SMALL = ("encoder=tiny", "encoder.depth=2", "data.limit_train=64", "data.limit_eval=64", "optim.warmup_steps=1")
ALLOW = "allow_targets=[my_lab.]"

Lab = Callable[..., int]


@pytest.fixture
def lab(lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    """The command line in a folder with the user's file `my_lab.py` and the user's options in `conf`."""
    (tmp_path / "my_lab.py").write_text(CODE)
    for option, text in OWN.items():
        file = tmp_path / "conf" / f"{option}.yaml"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path not in ("", str(tmp_path))])
    yield lambda *words: lab(*words, f"paths.outputs={tmp_path / 'outputs'}")
    sys.modules.pop("my_lab", None)


def test_own_attention_block_task_data_and_callback_work_end_to_end(
    lab: Lab, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "outputs" / "run"
    mine = ("--config-dir", "conf", "task=mine", "attention=mine", "callbacks=mine", "attention.groups=3")
    assert lab(*mine, ALLOW, *SMALL, "optim.epochs=2", f"hydra.run.dir={run}") == 130, "stopped by its own callback"
    assert (run / "stopped").is_file() and read_summary(run)["status"] == "interrupted"

    assert read_config(run)["allow_targets"] == ["my_lab."], "which widens nothing:"
    assert lab(f"resume={run}") == 1
    assert "my_lab.Task is code outside the allowed packages" in capsys.readouterr().err
    assert lab(f"resume={run}", ALLOW) == 0, "the run's configuration is enough: no --config-dir"
    summary = read_summary(run)
    assert f"hydra.searchpath=['file://{tmp_path / 'conf'}']" in summary["command"] and ALLOW in summary["command"]
    assert not any(word.startswith("resume") for word in summary["command"]), "it repeats the run"
    assert re.search(r"\+[0-9a-f]{8}$", summary["git_commit"]), "the version of the user's code"
    assert (summary["status"], summary["attention"], summary["options"]["attention"]) == ("ok", "mine", {"groups": 3})

    assert lab("mode=eval", f"resume={run}", ALLOW) == 0
    assert (run / "eval.json").is_file()

    with pytest.raises(ConfigError, match=r"my_lab\.\w+ is code outside the allowed packages"):
        _ = load_run(run).model
    sys.path.append(str(tmp_path))  # as in a notebook in this folder
    opened = load_run(run, allow_targets=["my_lab."])
    assert type(opened.model).__module__ == "my_lab" and opened.model.encoder.attentions[0].groups == 3
    sys.path.remove(str(tmp_path))

    capsys.readouterr()
    inspect = ("inspect", "residual", f"runs={run}", "checkpoint=best", "controls=false", ALLOW)
    changed = f"WARNING: your own code has changed since {run} was trained"
    assert lab(*inspect) == 0 and changed not in capsys.readouterr().out
    (tmp_path / "my_lab.py").write_text((tmp_path / "my_lab.py").read_text() + "# edited\n")
    for words in (("mode=eval", f"resume={run}", ALLOW), ("export", f"resume={run}", ALLOW), inspect):
        assert lab(*words) == 0
        assert changed in capsys.readouterr().out
    assert lab("report", str(tmp_path / "outputs"), "figures=false") == 0
    report = (tmp_path / "outputs" / "report" / "report.md").read_text()
    assert "mine" in report


def test_names_of_own_options_are_known_everywhere(
    lab: Lab, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "outputs" / "run"
    hybrid = ("attention=hybrid", "attention.pattern=[mine,mha]", "budget=params:mine")
    short = (*SMALL, "optim.epochs=1", "callbacks=minimal", "pictures=false", f"hydra.run.dir={run}")
    assert lab("--config-dir", "conf", *hybrid, *short, ALLOW) == 0
    with pytest.raises(ConfigError, match="attention=mine: there is no such option"):
        _ = load_run(run, allow_targets=["my_lab."]).model
    later = tmp_path / "later" / "attention" / "mine.yaml"
    later.parent.mkdir(parents=True)
    later.write_text(OWN["attention/mine"].replace("groups: 2", "groups: 4"))
    sys.path.append(str(tmp_path))
    model = load_run(run, allow_targets=["my_lab."], config_dir=tmp_path / "later").model
    sys.path.remove(str(tmp_path))
    assert [type(layer).__name__ for layer in model.encoder.attentions] == ["Reverse", "MHA"]
    assert model.encoder.attentions[0].groups == 2, "as it was trained, whatever the file says now"
    capsys.readouterr()
    assert lab(f"hydra.searchpath=[file://{tmp_path / 'conf'}]", "--help") == 0
    assert "Mirrors the tokens." in capsys.readouterr().out
    assert lab("--config-dir", "conf", "attention=mien") == 1
    assert "attention=mien: there is no such option; did you mean mine?" in capsys.readouterr().err
    assert "mine" not in option_names("attention"), "what one command adds, the next does not have"


@pytest.mark.parametrize(
    ("edited", "words"),
    [
        ("my_lab.py", ("attention=hybrid", "attention.pattern=[mine,mha]")),
        ("conf/attention/shared.yaml", ("attention=mine",)),
        ("conf/attention/mine.yaml", ("attention=hybrid", "attention.pattern=[mine,mha]")),
        ("conf/attention/shared.yaml", ("attention=hybrid", "attention.pattern=[mine,mha]")),
    ],
)
def test_a_sweep_with_edited_options_or_code_of_the_user_is_another_sweep(
    edited: str, words: tuple[str, ...], lab: Lab, tmp_path: Path
) -> None:
    del lab  # it has written the files
    mine, shared = tmp_path / "conf" / "attention" / "mine.yaml", tmp_path / "conf" / "attention" / "shared.yaml"
    mine.rename(shared)
    mine.write_text("defaults: [shared, _self_]\ngroups: 4\n")
    argv = ("-m", "--config-dir", "conf", *words, "seed=0,1", ALLOW, f"paths.outputs={tmp_path}")

    def planned() -> SweepPlan:
        with open_arguments(train_command(), argv) as arguments:
            return planned_sweep(arguments) or pytest.fail("it is a sweep")

    before = planned()
    (tmp_path / "conf" / "attention" / "other.yaml").write_text("_target_: my_lab.Broken\n")
    assert planned().folder == before.folder, "a file that the sweep does not read"
    (tmp_path / edited).write_text((tmp_path / edited).read_text() + "\n# edited\n")
    assert planned().folder != before.folder
    with pytest.raises(DataError, match=f"{edited} has changed since its runs were planned"):
        check_sources(before.data, argv)


def test_check_shows_every_rule_and_fails_for_a_broken_attention(
    lab: Lab, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert lab("check", "--config-dir", "conf", "attention=mine", ALLOW) == 0
    out = capsys.readouterr().out
    assert "Reverse in" in out and "BROKEN" not in out
    assert lab("check", "--config-dir", "conf", "attention=broken", ALLOW) == 1
    captured = capsys.readouterr()
    assert "attention=broken breaks 6 of 17 rules" in captured.err
    for fault in ("BROKEN: it lacks size", "source is not declared", "ValueError: reverse does not support padded"):
        assert fault in captured.out
    assert not (tmp_path / "outputs" / "check").exists()


def test_a_run_says_before_it_starts_which_rules_of_scores_an_operator_breaks(lab: Lab, tmp_path: Path) -> None:
    words = (
        "--config-dir",
        "conf",
        ALLOW,
        *SMALL,
        "optim.epochs=1",
        "callbacks=minimal",
        "pictures=false",
        "reference=null",
    )
    for name, is_broken in (("mine", False), ("broken", True)):
        run = tmp_path / name
        assert lab(f"attention={name}", *words, f"hydra.run.dir={run}") == 0
        expected = [f"{name} breaks rules of the contract (What a real token receives does not depend on padding.);"]
        found = [line for line in read_summary(run)["warnings"] if "contract" in line]
        assert [line.startswith(*expected) for line in found] == [True] * is_broken
        before_the_end = (run / "sliceformer_lab.log").read_text().partition("the warm-up takes")[0]
        assert ("WARNING: broken breaks" in before_the_end) == is_broken


@pytest.mark.parametrize(
    ("words", "sentence"),
    {
        "attention=identity attention._target_=my_lab.OptionBeforeStar +attention.size=3": "attention.size: "
        "OptionBeforeStar takes it "
        "positionally, as what the framework passes; write * before the options in the constructor",
        "attention=identity attention._target_=my_lab.NoSpec": "my_lab.NoSpec cannot be called as the framework does",
        "attention=identity attention._target_=my_lab.Block": "my_lab.Block is not a subclass of",
        "attention=mine": "attention=mine: there is no such option",
        "hydra.searchpath=[pkg://no_such_package]": "given pkg://no_such_package, should be file://FOLDER or pkg://",
        "allow_targets=[a.],[b.] -m": "cannot be swept",
    }.items(),
)
@pytest.mark.usefixtures("lab")
def test_own_code_that_does_not_fit_is_refused_in_one_sentence(
    refused: Callable[..., str], words: str, sentence: str
) -> None:
    assert sentence in refused(*last_of_each([*SMALL, ALLOW, *words.split()]))


@pytest.mark.usefixtures("lab")
def test_an_option_with_the_name_of_another_is_refused(tmp_path: Path, refused: Callable[..., str]) -> None:
    mine = tmp_path / "conf" / "attention" / "csp.yaml"
    mine.write_text("_target_: my_lab.Reverse\n")
    ours = CONF_DIR / "attention" / "csp.yaml"
    assert f"{ours} and {mine} are options of one name" in refused("--config-dir", "conf")
