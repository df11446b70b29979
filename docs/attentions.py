"""Write docs/attentions.md: what each attention is and takes, which tasks take it, how its cost grows.

python docs/attentions.py            write it (`make docs`); a test compares the committed page with what it makes
python docs/attentions.py measure    measure growth first, on a quiet machine: 4 minutes
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import growth
import torch

from sliceformer_lab.attention import Attention, LayerSpec, build_layer
from sliceformer_lab.config.compose import compose_root, load_option, option_names
from sliceformer_lab.config.hybrid import attention_nodes
from sliceformer_lab.config.schema import ConfigError
from sliceformer_lab.training.build import build_data, build_task

PAGE = Path(__file__).with_name("attentions.md")
ALSO_MEASURED = ("csp_complete", "mega_chunk")  # presets whose cost is another than their class's
SPEC = LayerSpec(dim=512, num_heads=8, max_len=1024)
INTRODUCTION = """\
<!-- made by `make docs`: edit docs/attentions.py, docs/growth.py or the classes -->
# Attentions

A row is a class in `sliceformer_lab/attention/`, under the name of its YAML; `attention=NAME` chooses it. Presets are
other YAMLs of the same class. Cost is of the mixing alone, in N tokens, C channels, and the options' own sizes.
Parameters are those of one layer of 512 channels and 8 heads for at most 1,024 tokens, projections included.
"""
CAPABILITIES: Mapping[str, Callable[[Attention], bool]] = {
    "bias": lambda layer: layer.accepts_bias,
    "padding": lambda layer: layer.accepts_padding,
    "order-sensitive": lambda layer: layer.order_sensitive,
    "mixable": lambda layer: layer.mixable,
    "q, k": lambda layer: layer.needs_qk,
}
LEGEND = """
*bias*: adds a pairwise bias to its weights. *padding*: takes samples of several lengths. *order-sensitive*: permuting
the tokens does more than permute the outputs. *mixable*: can fill a block that projects by itself. *q, k*: has queries
and keys, which `encoder.position=rope` rotates.
`attention=hybrid` is a pattern of these over the layers.
"""


def page() -> str:
    """The whole page."""
    return "\n".join(
        [INTRODUCTION, table(), LEGEND, "## Where ours differs\n", deviations(), "", matrix(), "", growth.section(), ""]
    )


@cache
def node(name: str) -> dict[str, Any]:
    """The options of a YAML in conf/attention."""
    return load_option("attention", name)


@cache
def presets() -> dict[str, list[str]]:
    """The YAMLs that are the file of a class, each with the other YAMLs of that class."""
    modules = {name: node(name)["_target_"].split(".")[-2] for name in option_names("attention")}
    own = [name for name, module in modules.items() if name == module and name != "hybrid"]
    return {name: [other for other, module in modules.items() if module == name and other != name] for name in own}


@cache
def layer(name: str) -> Attention:
    """One layer, without memory for its parameters."""
    with torch.device("meta"):
        return build_layer(node(name), SPEC)


def table() -> str:
    """A row for each class: cost, parameters, capabilities, source, presets."""
    header = ["attention", "cost", "parameters", *CAPABILITIES, "source", "presets"]
    rows = []
    for name, others in presets().items():
        built = layer(name)
        parameters = sum(p.numel() for p in built.parameters())
        marks = [_mark(has(built)) for has in CAPABILITIES.values()]
        rows.append([f"`{name}`", built.complexity, f"{parameters:,}", *marks, built.source, ", ".join(others)])
    return growth.markdown(header, rows)


def deviations() -> str:
    """A row for each class whose published code is known to do something else."""
    rows = [[f"`{name}`", layer(name).deviation] for name in presets() if layer(name).deviation]
    return growth.markdown(["attention", "what the published code does, and ours does not"], rows)


def matrix() -> str:
    """Which attention runs where: a column for settings with the same answers, and the reasons of every no."""
    refusals = {name: _refusals(choice) for name, choice in _settings().items()}
    columns: dict[tuple[bool, ...], list[str]] = {}
    for name, reasons in refusals.items():
        columns.setdefault(tuple(attention in reasons for attention in presets()), []).append(name)
    rows = [
        [f"`{attention}`", *(_mark(attention not in refusals[names[0]]) for names in columns.values())]
        for attention in presets()
    ]
    why = sorted({f"- {name}: {reason}." for name, told in refusals.items() for reason in told.values()})
    header = ["attention", *(", ".join(names) for names in columns.values())]
    return "\n".join(["## What runs where\n", growth.markdown(header, rows), "", "What does not:\n", *why])


def _settings() -> dict[str, list[str]]:
    """Every task with its own encoder; then, on the default task, every block and rope."""
    tasks = {f"`task={name}`": [f"task={name}"] for name in option_names("task")}
    blocks = {f"`block={name}`": [f"block={name}"] for name in option_names("block")}
    return tasks | blocks | {"`encoder.position=rope`": ["encoder.position=rope"]}


def _refusals(overrides: list[str]) -> dict[str, str]:
    """The attentions that cannot be built under a choice, and why; one layer tells, and no real data are read."""
    with TemporaryDirectory() as empty:
        for own_class in ("a", "b"):
            (Path(empty) / "image_folder" / own_class).mkdir(parents=True)
        composed = compose_root([*overrides, "encoder.depth=1"])
        if "root" in composed["data"]:
            composed["data"]["root"] = f"{empty}/image_folder"
        if "file" in composed["data"]:
            composed["data"]["file"] = f"{empty}/texts.csv"
            (Path(empty) / "texts.csv").write_text("text,label\n" + "a,0\nb,1\n" * 10)
        data = build_data(composed).spec
    refused = {}
    for name in presets():
        try:
            with torch.device("meta"):
                build_task(composed | {"attention": node(name)}, data)
        except ConfigError as error:
            kind = attention_nodes(node(name))[0].target.__name__
            refused[name] = str(error).partition(f", which {kind}")[0].removeprefix("attention: ")
    return refused


def _mark(holds: bool) -> str:
    return "yes" if holds else "–"


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["measure"]:
            growth.measure(sorted([*presets(), *ALSO_MEASURED]))
        case []:
            pass
        case _:
            sys.exit(__doc__)
    growth.draw()
    PAGE.write_text(page(), encoding="utf-8")
