"""The YAML file of a command lists every option with its default and explains it, and so does its help."""

from __future__ import annotations

import re
from typing import Any

import pytest
from support.yaml_options import as_yaml

from sliceformer_lab.__main__ import load
from sliceformer_lab.commands.benchmark.benchmark_options import BenchmarkOptions
from sliceformer_lab.commands.compare.compare_options import CompareOptions
from sliceformer_lab.commands.inspect.inspect_options import InspectOptions
from sliceformer_lab.commands.map.map_options import MapOptions
from sliceformer_lab.commands.report.report_options import ReportOptions
from sliceformer_lab.commands.swap.swap_options import SwapOptions
from sliceformer_lab.commands.wandb.wandb_options import WandbOptions
from sliceformer_lab.config.compose import CONF_DIR, compose_root
from sliceformer_lab.config.schema import schema

NODES = ("hydra", "paths", "analysis", "launcher", "logger", "attention", "data", "labelled", "allow_targets")
COMMANDS: dict[str, tuple[type, dict[str, Any]]] = {  # options, and the values that only this file gives them
    "benchmark": (BenchmarkOptions, {}),
    "inspect": (InspectOptions, {"runs": "${paths.outputs}"}),
    "report": (ReportOptions, {"folder": "${paths.outputs}"}),
    "wandb": (WandbOptions, {}),
    "map": (MapOptions, {}),
    "swap": (SwapOptions, {"model": "???"}),
    "audit": (CompareOptions, {"subject": "csp", "against": None, "axes": ["params", "time"]}),
    "tune": (
        CompareOptions,
        {"subject": "mha", "against": ["csp", "sliceformer", "identity"], "trials": 10, "seeds": 6},
    ),
}


@pytest.mark.parametrize("word", COMMANDS)
def test_yaml_and_help_list_every_option_with_its_default_and_explain_it(word: str) -> None:
    options_class, own = COMMANDS[word]
    defaults = {name: as_yaml(default) for name, (_, default) in schema(options_class).items()} | own
    composed = {name: value for name, value in compose_root([], word).items() if name not in NODES}
    if re.match(rf"\$\{{({word}_folder|comparison_folder):", str(composed.get("folder"))):  # named by the options
        defaults["folder"] = composed["folder"]
    assert composed == defaults
    written = (CONF_DIR / f"{word}.yaml").read_text(encoding="utf-8")
    text = load(word).help_text()
    for option in defaults:
        assert re.search(rf"^{option}:.* # \S", written, re.M), option
        assert re.search(rf"^  {option}: ", text, re.M), option
