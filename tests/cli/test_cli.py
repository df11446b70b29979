"""The command line: its help, its commands, and how it refuses wrong options."""

from __future__ import annotations

import logging
import shlex
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from support.runs import TINY, last_of_each

from sliceformer_lab import commands
from sliceformer_lab.__main__ import COMMANDS, load, main
from sliceformer_lab.cli.train import EXAMPLES
from sliceformer_lab.config.compose import compose_root, option_names
from sliceformer_lab.config.schema import ConfigError, locate
from sliceformer_lab.sweeps.plan import plan_sweep

HEAVY = ("torch", "pandas", "matplotlib", "scipy", "sklearn", "wandb", "pytorch_lightning", "timm")


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str
    outputs: Path


@pytest.fixture
def lab(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Callable[..., Outcome]:
    """The command line in this process, its runs in a temporary folder."""

    def call(*arguments: str) -> Outcome:
        capfd.readouterr()
        code = main(last_of_each([*arguments, f"paths.outputs={tmp_path / 'outputs'}"]))
        return Outcome(code, *capfd.readouterr(), tmp_path / "outputs")

    return call


def refusal(outcome: Outcome) -> str:
    """The one sentence of a refused command, which wrote nothing else and left no run folder."""
    assert outcome.code == 1
    assert outcome.err.count("\n") == 1 and outcome.err.startswith("sliceformer-lab: ")
    assert "Traceback" not in outcome.out + outcome.err
    assert list(outcome.outputs.glob("digits/*/*")) == []
    return outcome.err.removeprefix("sliceformer-lab: ").rstrip()


def test_help_lists_every_task_and_attention_with_a_line_and_examples(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    for name in option_names("task") + option_names("attention"):
        assert [line for line in lines if line.split()[:1] == [name] and len(line.split()) > 3], name
    assert all(any(example in line for line in lines) for example in EXAMPLES)


@pytest.mark.parametrize("example", [e for e in EXAMPLES if "FOLDER" not in e and "--cfg" not in e])
def test_every_example_of_the_help_composes(example: str) -> None:
    words = shlex.split(example)
    if "-m" in words:
        assert plan_sweep([word for word in words if word != "-m"], multirun=True) is not None
    else:
        compose_root(words)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    {
        "attention=cps": "attention=cps: there is no such option; did you mean csp?",
        "block=zzz": "block=zzz: there is no such option; there are ",
        "recipe=table3_cifar10": "did you mean csp/table3_cifar10?",
        "attention.groupsize=4 atention=csp": "attention.groupsize: there is no such key in attention; did you mean "
        "group_size?; atention: there is no such key; did you mean attention?",
        "attention=mha attention.group_size=4": "there is no such key in attention; there are gate, qk_norm",
        "-m seed=0,1 launcher.jobs=1": "launcher.jobs: there is no such key in launcher, but launcher=local has it",
        "sed=1 trainer.precison=32": "did you mean seed?; trainer.precison: there is no such key in trainer; did you",
        "-m attention=csp,mha attention.group_size=4": "no such key in attention; there are gate, qk_norm",
        "+attention.group_size=4": "there is such a key already; leave out the +",
        "+attention=mha": "+attention=mha: attention has a choice already; leave out the +",
        "attention=[mha,csp]": "name one option of attention",
        "seed=1,2": "seed=1,2: several values; add -m to run each of them, or write [...] for a list",
        "attention.order=[": "attention.order=[: not understood; write KEY=VALUE",
        "attention": "attention is neither a command nor KEY=VALUE; there are audit, benchmark, check, export, inspect",
        "reprot outputs": "reprot is neither a command nor KEY=VALUE; did you mean report?",
        "seed=1 attention": "attention: not understood; write KEY=VALUE",
        "--foo": "unrecognized arguments: --foo; see --help",
        "mode=eval": "mode=eval scores a finished run again: name it with resume=FOLDER",
        "hydra.foo=3": "hydra.foo: of Hydra's own options a command line has hydra.run.dir, hydra.sweep.dir",
        "trainer.max_epochs=3 lr=1": "in trainer; did you mean optim.epochs?; lr: there is no such key; did you "
        "mean optim.lr?",
        "+attention.foo=1": "attention.foo: there is no such option; there are bias_formula",
        "attention.group_size=${foo}": "Interpolation key 'foo' not found",
        "trainer.precision=foo attention.order=": "given 'foo', should be '32-true', 'bf16-mixed', "
        "'16-mixed', '64-true', 'bf16-true', '16-true' or 'auto'; "
        "attention.order: given '', should be 'ascend', 'descend' or 'random'",
        "paths.data=null": "paths.data: given None, should be a valid string",
        "attention._target_=sliceformer_lab.nope.A": "cannot be loaded (No module named 'sliceformer_lab.nope')",
        "allow_targets=os. attention._target_=os.system": "allow_targets: given 'os.', should be a list of packages",
    }.items(),
)
def test_wrong_option_is_refused_in_one_sentence_before_anything_is_written(
    lab: Callable[..., Outcome], arguments: str, sentence: str
) -> None:
    assert sentence in refusal(lab(*arguments.split()))


def test_wrong_values_are_reported_all_at_once(lab: Callable[..., Outcome]) -> None:
    nodes = ("attention.group_size=two", "optim.lr=-1")
    assert refusal(lab(*nodes, "seed=-1", "mode=foo", "selection=x")).split("; ") == [
        "seed: given -1, should be greater than or equal to 0",
        "mode: given 'foo', should be 'train' or 'eval'",
        "selection: given 'x', should be 'best_val', 'last' or 'best_test'",
    ]
    assert refusal(lab(*nodes)).split("; ") == [  # which classes check, whose import takes seconds
        "attention.group_size: given 'two', should be a valid integer",
        "optim.lr: given -1, should be greater than 0",
    ]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    {
        "encoder.dim=130 encoder.num_heads=4": "encoder: num_heads=4 does not divide dim=130",
        "attention=sparse attention.num_summary=50": "attention: num_summary must be within 0..block_size-1 = 49",
        "task.patch_size=3": "task: patch_size=3 does not divide the image of 8 x 8 pixels",
        "trainer.devices=0": "trainer: `Trainer(devices=0)` value is not a valid input",
        "published={paper:csp,table:table9,task:cifar10,metric:test/accuracy}": "published: no paper prints",
    }.items(),
)
def test_sizes_that_do_not_fit_are_refused_in_one_sentence(
    lab: Callable[..., Outcome], arguments: str, sentence: str
) -> None:
    outcome = lab(*TINY, "attention=mha", *arguments.split())
    assert (outcome.code, outcome.err.count("\n")) == (1, 1) and sentence in outcome.err
    assert "Traceback" not in outcome.out


def test_code_named_by_a_file_is_refused_unless_the_command_line_allows_it(
    lab: Callable[..., Outcome], tmp_path: Path
) -> None:
    (tmp_path / "recipe").mkdir()
    (tmp_path / "recipe" / "mine.yaml").write_text(
        "# @package _global_\nallow_targets: [json.]\nattention:\n  _target_: json.loads\n"
    )
    mine = ("--config-dir", str(tmp_path), "recipe=mine")
    assert "attention._target_: json.loads is code outside the allowed packages" in refusal(lab(*mine))
    allowed = refusal(lab(*mine, "allow_targets=[json.]"))  # found, and checked like any other target
    assert allowed.startswith("attention._target_: json.loads is not a subclass of")
    assert "code outside the allowed packages" in refusal(lab(*mine)), "what one command allows, the next does not"


def test_error_next_to_an_option_of_the_users_own_folder_is_explained(
    lab: Callable[..., Outcome], tmp_path: Path
) -> None:
    (tmp_path / "attention").mkdir()
    (tmp_path / "attention" / "mine.yaml").write_text("_target_: my_package.Mine\nwidth: 3\n")
    sentence = refusal(lab("--config-dir", str(tmp_path), "attention=mine", "attention.widht=4"))
    assert sentence == "attention.widht: there is no such key in attention; did you mean width?"


@pytest.mark.parametrize(
    "target",
    ["sliceformer_lab.cli.main.os", "sliceformer_lab.runs.resume.Path", "pytorch_lightning.trainer.trainer.os"],
)
def test_what_an_allowed_module_has_merely_imported_is_refused(target: str) -> None:
    with pytest.raises(ConfigError, match=r"is not a class or function that is defined|cannot be loaded"):
        locate(target)


def test_configuration_can_be_printed(lab: Callable[..., Outcome]) -> None:
    outcome = lab("--cfg", "job")
    assert outcome.code == 0 and "group_size: 2" in outcome.out


def test_a_shell_is_told_how_to_complete(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["sliceformer-lab"])
    assert main(["--shell-completion", "install=bash"]) == 0
    assert "complete -o nospace" in capsys.readouterr().out


def test_only_training_is_swept(lab: Callable[..., Outcome]) -> None:
    assert refusal(lab("check", "-m", "attention=mha,csp")) == (
        "-m: runs of training are swept; give this command once for each value"
    )


def test_every_command_has_a_line_in_the_help_and_a_help_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    program = capsys.readouterr().out
    for word in COMMANDS:
        command = load(word)
        assert f"  {word:<{max(map(len, COMMANDS))}}  {command.summary}\n" in program
        assert main([word, "--help"]) == 0
        out = capsys.readouterr().out
        assert out.startswith(command.summary) and all(example in out for example in command.examples), word


def test_every_folder_of_commands_is_a_word() -> None:
    folders = [file.parent.name for file in Path(commands.__path__[0]).glob("*/command.py")]
    assert sorted(folders) == sorted(COMMANDS) == sorted(load(word).word for word in COMMANDS)


def test_flags_may_come_before_a_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--cfg", "job", "report"]) == 0
    assert "reference: mha" in capsys.readouterr().out
    assert main(["--help", "report"]) == 0
    assert capsys.readouterr().out.startswith(load("report").summary)


def test_help_and_refusals_import_nothing_heavy() -> None:
    calls = ["--help", "--foo", "reprot outputs", *(f"{word} --help" for word in COMMANDS)]
    refused = ["attention=cps", "attention.groupsize=4", "sed=1", "attention.order=[", "report outputs metrc=x"]
    code = (
        "import sys; from sliceformer_lab.__main__ import main;"
        f"codes = [main(call.split()) for call in {calls + refused}];"
        f"found = sorted(set({HEAVY}) & set(sys.modules)); print(codes, found, file=sys.stderr); sys.exit(len(found))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    codes = [0, 1, 1, *(0 for _ in COMMANDS), *(1 for _ in refused)]
    assert done.stderr.splitlines()[-1] == f"{codes} []"


def test_a_command_leaves_the_callers_log_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    assert main(["attention=nope"]) == 1 and main(["debug=fast", "attention.group_size=0"]) == 1
    assert (root.handlers, root.level) == (before, level)
