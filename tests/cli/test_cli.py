"""The command line: its help, its commands, and how it refuses wrong options."""

from __future__ import annotations

import logging
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from support.other_process import run_python

from sliceformer_lab import commands
from sliceformer_lab.__main__ import COMMANDS, load, main
from sliceformer_lab.cli.help import WIDTH
from sliceformer_lab.cli.train import EXAMPLES, train_command
from sliceformer_lab.config.compose import compose_root, option_names
from sliceformer_lab.sweeps.plan import plan_sweep

HEAVY = ("torch", "pandas", "matplotlib", "scipy", "sklearn", "wandb", "pytorch_lightning", "timm")


def test_help_lists_every_command_task_and_attention_with_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    for name in (*COMMANDS, *option_names("task"), *option_names("attention")):
        assert [line for line in lines if line.split()[:1] == [name] and len(line.split()) > 3], name


@pytest.mark.parametrize("example", [e for e in EXAMPLES if "FOLDER" not in e and "--cfg" not in e])
def test_every_example_of_the_help_composes(example: str) -> None:
    words = shlex.split(example)
    if "-m" in words:
        assert plan_sweep([word for word in words if word != "-m"], multirun=True) is not None
    else:
        compose_root(words)


def test_a_shell_is_told_how_to_complete(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["sliceformer-lab"])
    assert main(["--shell-completion", "install=bash"]) == 0
    assert "complete -o nospace" in capsys.readouterr().out


@pytest.mark.parametrize("word", ["", *COMMANDS])
def test_a_help_has_every_example_breaks_lines_and_gives_a_computed_default_by_its_name(
    word: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*word.split(), "--help"]) == 0
    out, command = capsys.readouterr().out, load(word) if word else train_command()
    first, *rows = out.splitlines()
    assert first == command.summary and all(example in out for example in command.examples)
    commands_and_usage = ("  sliceformer-lab ", "usage: ")
    assert max(len(row) for row in rows if not row.startswith(commands_and_usage)) <= WIDTH
    assert ":..." in out or "${comparison_folder" not in out


def test_every_folder_of_commands_is_a_word() -> None:
    folders = [file.parent.name for file in Path(commands.__path__[0]).glob("*/command.py")]
    assert sorted(folders) == sorted(COMMANDS) == sorted(load(word).word for word in COMMANDS)


def test_flags_and_options_may_come_before_a_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--cfg", "job", "reference=csp", "report", "sweep"]) == 0  # sweep is a folder here
    assert "folder: sweep\nby: []\nreference: csp" in capsys.readouterr().out
    assert main(["--help", "report"]) == 0
    assert capsys.readouterr().out.startswith(load("report").summary)


def test_help_can_be_read_in_part() -> None:
    command = [sys.executable, "-m", "sliceformer_lab", "--help"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout and process.stderr
        process.stdout.close()  # before a word is written
        assert (process.stderr.read(), process.wait()) == ("", 0)


def test_help_and_refusals_import_nothing_heavy() -> None:
    calls = ["--help", "--foo", "reprot outputs", *(f"{word} --help" for word in COMMANDS)]
    refused = ["attention=cps", "attention.groupsize=4", "sed=1", "attention.order=[", "report outputs metrc=x"]
    code = (
        "import sys; from sliceformer_lab.__main__ import main;"
        f"codes = [main(call.split()) for call in {calls + refused}];"
        f"found = sorted(set({HEAVY}) & set(sys.modules)); print(codes, found, file=sys.stderr); sys.exit(len(found))"
    )
    done = run_python("-c", code)
    assert done.returncode == 0, done.stderr
    codes = [0, 1, 1, *(0 for _ in COMMANDS), *(1 for _ in refused)]
    assert done.stderr.splitlines()[-1] == f"{codes} []"


def test_a_command_leaves_the_callers_log_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    assert main(["attention=nope"]) == 1 and main(["debug=fast", "attention.group_size=0"]) == 1
    assert (root.handlers, root.level) == (before, level)
