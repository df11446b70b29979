"""Random command lines, from the types of the options: each ends with one sentence or is a run that makes sense."""

from __future__ import annotations

import random
import shlex
import time
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import pytest
from support.run_folders import write_run

from sliceformer_lab.__main__ import COMMANDS, main
from sliceformer_lab.config.checked import RunPlan
from sliceformer_lab.config.compose import compose_root, option_names
from sliceformer_lab.config.schema import locate, schema
from sliceformer_lab.training import run as training
from sliceformer_lab.training.build import build_task
from sliceformer_lab.training.interfaces import DataModule

NUM_LINES = 200
MAX_SECONDS = 60  # of a line
NODES = ("task", "data", "encoder", "block", "attention", "optim", "trainer", "pretrain")
GROUPS = ("task", "attention", "encoder", "block", "optim", "pretrain", "trainer", "callbacks", "debug", "scale")
WRONG = {bool: "3", int: "1.5", float: "x", str: "[a]", type(None): "{a: 1}", list: "7", tuple: "7", dict: "7"}
ODD = (  # words that no schema gives: unreadable, of Hydra's grammar, of Hydra itself
    *("=", "seed", "seed=", "'a b=c'", "encoder.dim=[", '"seed=\'1"', "seed==1", "seed=0x10", "seed={}", "seed=[[]]"),
    *(
        "'seed=${oops}'",
        "'seed=${oc.env:NO_SUCH}'",
        "'tags=[${oc.env:NO_SUCH}]'",
        "'seed=${seed}'",
        "seed=" + 400 * "9",
    ),
    *("~seed", "~encoder", "~encoder.dim", "~nope", "+seed=1", "++seed=x", "+encoder.x.y=1", "encoder.dim.x=1"),
    *("encoder=[tiny]", "encoder={a:1}", "attention=", "attention=../mha", "attention=csp/x", "attention@x=csp"),
    *("--nope", "--cfg", "--cfg nope", "--resolve", "--join", "--join=x", "-m", "-cd"),
    *(
        "seed=choice()",
        "seed=range()",
        "seed=range(3)",
        "'seed=interval(0,1)'",
        "'seed=glob(*)'",
        "'attention=glob(x*)'",
    ),
    *("'zip()'", "'zip(seed=[1,2],x)'", "'skip(seed=1)'", "'skip()'", "'zip(seed=[1'", "sweep.rows=x", "sweep=3"),
    *("hydra.mode=nope", "hydra.job.name=", "hydra.run.dir=[]", "hydra=3", "hydra.sweep.dir=3", "hydra/launcher=nope"),
    *("names.task=x", "names=3", "paths=3", "paths.outputs=", "paths.data=null", "callbacks=null", "logger=nope"),
    *("resume=", "resume=.", "mode=eval", "budget=x", "budget=params:0", "budget=params:mha", "published={a:1}"),
    *("launcher=nope", "launcher.jobs=0", "recipe=nope", "study=nope", "scale=nope", "debug=nope", "task=text_csv"),
)


def types_of(hint: object) -> list[Any]:
    """The plain types and literals that an option accepts."""
    if get_origin(hint) is Annotated:
        return types_of(get_args(hint)[0])
    if get_origin(hint) in (Union, types.UnionType):
        return [kind for part in get_args(hint) for kind in types_of(part)]
    return [hint if get_origin(hint) is Literal else get_origin(hint) or hint]


class Lines:
    """Draws command lines; each comes with whether one of its values is certainly wrong."""

    def __init__(self) -> None:
        self.draw = random.Random(27)

    def line(self) -> tuple[str, bool]:
        """A line of training, or one in four of another command."""
        if self.draw.random() < 0.25:
            return self._of_command(self.draw.choice(COMMANDS)), False
        words, wrong = [], False
        chosen = {group: self._choice(group) for group in self.draw.sample(GROUPS, self.draw.randint(0, 3))}
        words += [f"{group}={name}" for group, name in chosen.items()]
        root = compose_root(words)
        for node in self.draw.sample(NODES, self.draw.randint(0, 3)):
            word, is_wrong = self._option(node, root[node])
            words += [word]
            wrong |= is_wrong
        if self.draw.random() < 0.3:
            words.insert(self.draw.randint(0, len(words)), self.draw.choice(ODD))
        if self.draw.random() < 0.15:
            words += ["-m", "seed=0,1"]
        return " ".join(words), wrong and not any(odd in words for odd in ODD)

    def _choice(self, group: str) -> str:
        names = [name for name in option_names(group) if group != "trainer" or name == "cpu"]
        return self.draw.choice(names)

    def _option(self, node: str, options: Mapping[str, Any]) -> tuple[str, bool]:
        """An option of a node with its own value, another value of its type, or one of no type that it has."""
        if "_target_" not in options:
            return f"{node}.nope=1", True
        fields = {key: kind for key, (kind, _) in schema(locate(options["_target_"])).items() if key in options}
        if not fields or self.draw.random() < 0.15:
            return f"{node}.{self.draw.choice([*fields, 'nope'])[:-1]}q=1", True
        key = self.draw.choice([*fields])
        kinds = types_of(fields[key])
        if self.draw.random() < 0.5:
            known = [WRONG[kind] for kind in WRONG if kind not in kinds and not (kind is float and str in kinds)]
            plain = [kind for kind in kinds if kind in WRONG]
            is_sure = len(plain) == len(kinds) == 1 and plain[0] in (bool, int)
            return f"{node}.{key}='{WRONG[plain[0]] if is_sure else self.draw.choice(known or ['x'])}'", is_sure
        kind = self.draw.choice(kinds)
        if get_origin(kind) is Literal:
            return f"{node}.{key}={self.draw.choice(get_args(kind))}", False
        values = {bool: ["true", "false"], int: ["0", "1", "2", "3", "-1"], float: ["0", "0.1", "1", "1e-9", "-1"]}
        values |= {type(None): ["null"], str: ["x", "''"], tuple: ["[]", "[1]", "[x]"], dict: ["{}", "{a: 1}"]}
        return f"{node}.{key}={shlex.quote(self.draw.choice(values.get(kind, ['null', '[]', '2'])))}", False

    def _of_command(self, word: str) -> str:
        """A command with one of its own keys; `--cfg job` composes those that would start runs."""
        own = [key for key in compose_root([], word) if key not in ("hydra", "paths")]
        key = self.draw.choice([*own, "nope", "paths.outputs", "attention", "seed"])
        value = self.draw.choice(["1", "-1", "x", "null", "[]", "[x,x]", "''", "true", "1e400", "runs", "{}", "a,b"])
        words = [f"{word} {self.draw.choice(['', 'runs', 'status runs', 'nope'])}", shlex.quote(f"{key}={value}")]
        words += ["--cfg job"] if word in ("benchmark", "tune", "audit", "map", "check", "wandb") else []
        return " ".join(words + [self.draw.choice(ODD)] * (self.draw.random() < 0.3))


def fault_of(line: str, wrong: bool, capfd: pytest.CaptureFixture[str]) -> str | None:
    """What is wrong with the end of a line; None if it is as it should be."""
    began = time.monotonic()
    try:
        code = main(shlex.split(line))
    except BaseException as error:  # no exception leaves the program
        return f"{type(error).__name__}: {error}"
    out, err = capfd.readouterr()
    sentences = [part for part in err.splitlines() if part.startswith("sliceformer-lab: ")]
    if "Traceback" in out + err:
        return next(part for part in reversed((out + err).splitlines()) if part.strip())
    if time.monotonic() - began > MAX_SECONDS:
        return f"took {time.monotonic() - began:.0f} s"
    if code == 0:
        return "a wrong value was accepted" if wrong else None
    return None if code == 1 and len(sentences) == 1 else f"exit code {code}, {err[-300:]!r}"


@pytest.mark.slow
@pytest.mark.timeout(3000)
def test_random_lines_end_with_a_sentence_or_make_sense(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def build_only(plan: RunPlan, data: DataModule, folder: Path) -> None:
        build_task(plan, data.spec)

    monkeypatch.setattr(training, "run", build_only)
    monkeypatch.chdir(tmp_path)
    write_run(tmp_path / "runs" / "one")
    lines = Lines()
    faults = {}
    for line, wrong in (lines.line() for _ in range(NUM_LINES)):
        if fault := fault_of(line, wrong, capfd):
            faults[line] = fault
    assert faults == {}
