"""Run folders from strangers: whatever their configuration says, nothing of it runs and no secret is looked up."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.run_folders import write_run
from support.runs import SMALL

from sliceformer_lab import load_run
from sliceformer_lab.__main__ import main
from sliceformer_lab.config.compose import NOT_OF_A_RUN, compose_root
from sliceformer_lab.errors import LabError
from sliceformer_lab.runs.folder import read_config

SECRET = "hunter2-of-the-reader"
MARKER = "it-ran"
CALL = {"_target_": "pytorch_lightning.cli.instantiate_class"}
SHELL = CALL | {"args": [f"touch {MARKER}"], "init": {"class_path": "os.system"}}
IMPORT = {"_target_": "pytorch_lightning.utilities.imports._try_import_module", "module_name": "stranger"}
PARTIAL = {"_target_": "functools.partial", "func": {"_target_": "os.system"}, "args": [f"touch {MARKER}"]}
HYDRA = {"callbacks": {"evil": {"_target_": "os.system", "command": f"touch {MARKER}"}}}


def at(place: str, value: object) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """A change of a configuration: another value at a place such as data.root."""

    def change(config: dict[str, Any]) -> dict[str, Any]:
        *nodes, key = place.split("/")
        node = config
        for name in nodes:
            node = node[name]
        node[key] = deepcopy(value)
        return config

    return change


ATTACKS: Mapping[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    **{
        f"a shell command as {place}": at(place, SHELL)
        for place in ("task", "data", "encoder", "block", "attention", "optim", "trainer", "logger", "callbacks/evil")
    },
    "an import as data": at("data", IMPORT),
    "a partial as callback": at("callbacks/evil", PARTIAL),
    "a shell command in a hybrid": at(
        "attention",
        {"_target_": "sliceformer_lab.config.hybrid.Hybrid", "pattern": ["csp"], "options": {"csp": SHELL}},
    ),
    "a pattern that leaves the folder": at(
        "attention", {"_target_": "sliceformer_lab.config.hybrid.Hybrid", "pattern": ["../../stranger"]}
    ),
    "permission for itself": lambda config: (
        config | {"allow_targets": ["os.", "stranger."], "data": {"_target_": "stranger.Data"}}
    ),
    "a node for Hydra": at("hydra", HYDRA),
    "a defaults list": at("defaults", ["../../stranger"]),
    "a secret as a root": at("data/root", "${oc.env:LAB_SECRET}"),
    "a secret as a name": at("names/recipe", "${oc.env:LAB_SECRET}"),
    "a secret as a key": at("paths", {"data": "data", "${oc.env:LAB_SECRET}": "x", "outputs": "outputs"}),
    "a secret in two steps": at("published", {"a": "${.b}", "b": "${oc.env:LAB_SECRET}"}),
    "a decoded text": at("optim/epochs", "${oc.decode:'${oc.env:LAB_SECRET}'}"),
    "our own resolver": at("tags", ["${run_folder:null,/,a,b,c}"]),
    "a name that is a mapping": at("names/task", {"_target_": "os.system"}),
    "no names": lambda config: {key: value for key, value in config.items() if key != "names"},
    "a node that is a number": at("data", 3),
    "nodes that are lists": at("callbacks", [SHELL]),
    "a seed without end": at("seed", 2**64),
    "a rate that is no number": at("optim/lr", float("nan")),
}

DAMAGED = {
    "an empty file": "",
    "a list": "- 1\n- 2\n",
    "bytes": b"\xff\xfe\x00\x01",
    "an open bracket": "data: [1, 2",
    "a Python object": f"data: !!python/object/apply:os.system ['touch {MARKER}']",
    "a billion values": "a: &a [1,1,1,1,1,1,1,1,1,1]\n"
    + "".join(f"{b}: &{b} [{','.join([f'*{a}'] * 10)}]\n" for a, b in zip("abcdefgh", "bcdefghi", strict=True)),
    "a mapping inside itself": "data: &a\n  again: *a\n",
    "a thousand brackets": "data: " + "[" * 1000 + "]" * 1000,
    "one key twice": "seed: 1\nseed: 2\n",
}


@cache
def honest() -> dict[str, Any]:
    """The configuration of a small run on the digits, resolved."""
    composed = compose_root([*SMALL, "paths.outputs=outputs", "paths.data=data"])
    names = {"task": "digits", "attention": "mha", "recipe": None, "study": None, "scale": "full"}
    plain = {key: value for key, value in composed.items() if key not in NOT_OF_A_RUN}
    return plain | {"format": 1, "names": names, "logger": {}, "published": None}


DOORS: Mapping[str, Callable[[Path], int]] = {
    "resume": lambda run: main([f"resume={run}"]),
    "eval": lambda run: main([f"resume={run}", "mode=eval"]),
    "inspect": lambda run: main(["inspect", "spectrum", f"runs={run}"]),
    "predict": lambda run: main(["predict", f"resume={run}", f"input={run / 'config.yaml'}", "output=out.csv"]),
    "load_run": lambda run: open_parts(run),
}


def open_parts(run: Path) -> int:
    """Opens what a notebook would: the parts that an attack is in are refused with a LabError, the others open."""
    for part in ("config", "data", "model"):
        with suppress(LabError):
            getattr(load_run(run), part)
    return 1


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A finished run folder in the current folder, next to a module and a YAML file that leave a marker if they run."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LAB_SECRET", SECRET)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "stranger.py").write_text(f"open({str(tmp_path / MARKER)!r}, 'w').close()\n")
    (tmp_path / "stranger.yaml").write_text(yaml.safe_dump({"hydra": HYDRA, "_target_": "os.system"}))
    return write_run(tmp_path / "outputs" / "run")


def nothing_ran(folder: Path, printed: str) -> None:
    """Asserts that no attack left its marker, that no secret was written or printed, and that no traceback was."""
    assert not (folder / MARKER).exists() and "stranger" not in sys.modules
    written = b"".join(file.read_bytes() for file in folder.rglob("*") if file.is_file())
    assert SECRET.encode() not in written and SECRET not in printed
    assert "Traceback" not in printed


def test_the_configuration_that_attacks_change_is_itself_in_order(run: Path) -> None:
    (run / "config.yaml").write_text(yaml.safe_dump(honest()))
    assert load_run(run).data.spec.name == "digits"


@pytest.mark.parametrize(
    ("attack", "door"),
    [
        *((attack, "resume") for attack in ATTACKS),
        *((attack, "load_run") for attack in ATTACKS),
        *((f"a shell command as {place}", door) for place in ("data", "callbacks/evil") for door in DOORS),
    ],
)
def test_a_hostile_configuration_is_refused_and_runs_nothing(
    run: Path, attack: str, door: str, capfd: pytest.CaptureFixture[str]
) -> None:
    (run / "config.yaml").write_text(yaml.safe_dump(ATTACKS[attack](deepcopy(honest())), allow_unicode=True))
    if door == "resume":
        (run / "summary.json").unlink()  # it says that the run is finished, so that nothing is left to resume
    code = DOORS[door](run)
    printed = capfd.readouterr()
    nothing_ran(run.parents[1], printed.out + printed.err)
    assert code == 1 or door == "inspect"  # which says what it leaves out, and ends well


@pytest.mark.parametrize("damage", DAMAGED)
def test_a_damaged_configuration_is_named_in_one_sentence(
    run: Path, damage: str, capfd: pytest.CaptureFixture[str]
) -> None:
    content = DAMAGED[damage]
    (run / "config.yaml").write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(LabError, match=r"config\.yaml"):
        read_config(run)
    assert main([f"resume={run}"]) == 1
    printed = capfd.readouterr()
    assert printed.err.count("\n") == 1 and "config.yaml" in printed.err
    nothing_ran(run.parents[1], printed.out + printed.err)


@pytest.mark.parametrize("name", ["../../stranger", "/etc/passwd", "digits,cifar10", "x hydra.mode=RUN", ""])
def test_the_name_of_a_saved_task_is_no_path(run: Path, name: str, capfd: pytest.CaptureFixture[str]) -> None:
    config = deepcopy(honest())
    config["names"]["task"] = name
    config["data"] = SHELL
    (run / "config.yaml").write_text(yaml.safe_dump(config))
    assert main([f"resume={run}"]) == 1
    printed = capfd.readouterr()
    nothing_ran(run.parents[1], printed.out + printed.err)
    assert "data._target_" in printed.err


def test_the_names_of_a_summary_lead_to_no_file(run: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (Path(os.curdir) / "stranger.yaml").write_text("# @package _global_\nseed: ${oc.env:LAB_SECRET}\n")
    depth = "../" * 12
    for key in ("task", "attention", "recipe", "scale"):
        write_run(run.with_name(key), **{key: f"{depth}{Path('stranger').resolve()}"})
    assert main(["report", str(run.parent), "figures=false"]) == 0
    printed = capfd.readouterr()
    nothing_ran(run.parents[1], printed.out + printed.err)
