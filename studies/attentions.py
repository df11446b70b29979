"""Write docs/attentions.md: source, cost and capabilities of each attention, the tasks it runs on, its growth.

A test compares the committed page with what `make docs` writes.

python studies/attentions.py measure    measure the growth, on a quiet machine: 6 minutes
python studies/attentions.py measure NAME ...    measure these alone, and keep what is known of the others
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from textwrap import fill
from typing import Any

import all_attentions
import growth
import torch
from PIL import Image

from sliceformer_lab.attention import Attention, LayerSpec, build_layer
from sliceformer_lab.config.checked import check_model
from sliceformer_lab.config.compose import compose_root, load_option, option_names
from sliceformer_lab.config.schema import ConfigError, build_object, check_node
from sliceformer_lab.runs.plain_text import markdown_table
from sliceformer_lab.training.build import build_model

PAGE = Path(__file__).resolve().parents[1] / "docs" / "attentions.md"
ALSO_MEASURED = ("csp_complete", "mega_chunk")  # presets with another cost than their class
ARXIV = {
    "agent": "2312.08874",
    "bigbird": "2007.14062",
    "cosformer": "2202.08791",
    "csp": "2410.10914",
    "differential": "2410.05258",
    "espformer": "2502.07962",
    "fnet": "2105.03824",
    "gmlp": "2105.08050",
    "hsm": "2601.22852",
    "hydra": "2407.09941",
    "linear": "2006.16236",
    "linformer": "2006.04768",
    "lion": "2502.16249",
    "lion_selective": "2502.16249",
    "local": "2011.04006",
    "longformer": "2004.05150",
    "luna": "2106.01540",
    "matrix_dense": "2407.09941",
    "matrix_low_rank": "2407.09941",
    "matrix_toeplitz": "2407.09941",
    "matrix_toeplitz_data": "2407.09941",
    "mega": "2209.10655",
    "mha": "1706.03762",
    "mlp_mixer": "2105.01601",
    "performer": "2009.14794",
    "polaformer": "2501.15061",
    "pooling": "2111.11418",
    "rala": "2411.07635",
    "random_mixing": "2210.13452",
    "reformer": "2001.04451",
    "s4d": "2206.11893",
    "samsa": "2408.05391",
    "shift": "1811.08383",
    "sinkformer": "2110.11773",
    "sinkhorn": "2002.11296",
    "sliced_relu": "2512.11411",
    "sliceformer": "2310.17683",
    "softpick": "2504.20966",
    "sparse": "1904.10509",
    "synthesizer": "2005.00743",
    "token_reshape": "2507.15551",
}
SPEC = LayerSpec(dim=512, num_heads=8, max_len=1024)
INTRODUCTION = """\
<!-- written by `make docs`: edit studies/attentions.py, studies/growth.py or the classes -->
# Attentions

Each row is a class in `sliceformer_lab/attention/`, listed under the name of its YAML; `attention=NAME` selects it.
Presets are other YAML files of the same class or of a subclass. *Year* is that of the first version on arXiv.
*Controls* are baselines: they mix nothing (`identity`), mix without learning (`mean`, `random_mixing`,
`random_permutation`) or mix neighbours only (`depthwise_conv`, `pooling`). *Cost* is the cost of the mixing alone,
for N tokens, C channels and the sizes among the options. *Parameters* counts one layer with 512 channels, 8 heads and
at most 1,024 tokens, projections included.
"""
CAPABILITIES: Mapping[str, Callable[[Attention], bool]] = {
    "bias": lambda layer: layer.accepts_bias,
    "padding": lambda layer: layer.accepts_padding,
    "causal": lambda layer: layer.accepts_causal,
    "order-sensitive": lambda layer: layer.order_sensitive,
    "mixable": lambda layer: layer.mixable,
    "q, k": lambda layer: layer.needs_qk,
}
LEGEND = """
*bias*: adds a pairwise bias to its weights. *padding*: accepts samples of different lengths. *causal*: can be built
so that no token sees a later one, as `task=text_lm` needs ([causal.md](../studies/causal.md)). *order-sensitive*: a
permutation of the input tokens does more than permute the output. *mixable*: fits into a block that does the
projections itself. *q, k*: has queries and keys, as `encoder.position=rope` needs. `attention=hybrid` uses several of
these attentions, one for each layer.
"""
MATRIX = """\
## What runs where

{names}

The table shows which attentions run with the other tasks and blocks. With `task.bias=false` a task that passes a
pairwise bias takes all. Each task has its own encoder here. Blocks and rotary positions were tried on `digits`, graph
blocks on `zinc` with `task.bias=false`.
"""


def page() -> str:
    """The whole page."""
    differences = f"## Differences from published code\n\n{deviations()}\n"
    return "\n".join(
        [INTRODUCTION, table(), LEGEND, differences, matrix(), "", all_attentions.section(), "", growth.section(), ""]
    )


@cache
def node(name: str) -> dict[str, Any]:
    """The options of conf/attention/NAME.yaml."""
    return load_option("attention", name)


@cache
def homes() -> dict[str, str]:
    """The YAML named after the class of each attention."""
    return {name: _home(name) for name in option_names("attention") if name != "hybrid"}


@cache
def presets() -> dict[str, list[str]]:
    """The YAML named after each measured class, with the other YAMLs of that class or of its subclasses."""
    return {
        name: [other for other, home in homes().items() if home == name and other != name]
        for name in dict.fromkeys(homes().values())
        if name in growth.read()["attentions"]
    }


def _home(name: str) -> str:
    """The YAML named after the class of an attention or its nearest base class: the first one that was measured."""
    modules = [kind.__module__.rpartition(".")[2] for kind in type(layer(name)).__mro__]
    homes = [module for module in modules if module in option_names("attention")]
    return next((module for module in homes if module in growth.read()["attentions"]), homes[0])


@cache
def layer(name: str) -> Attention:
    """One layer on the meta device."""
    with torch.device("meta"):
        return build_layer(node(name), SPEC)


def table() -> str:
    """A row for each class: year, paper, cost, parameters, capabilities, presets."""
    header = ["attention", "year", "paper", "cost", "parameters", *CAPABILITIES, "presets"]
    rows = []
    for name, others in presets().items():
        built = layer(name)
        parameters = sum(p.numel() for p in built.parameters())
        marks = [_mark(has(built)) for has in CAPABILITIES.values()]
        rows.append([f"`{name}`", *_paper(name), built.complexity, f"{parameters:,}", *marks, ", ".join(others)])
    return markdown_table(header, *rows)


def _paper(name: str) -> tuple[str, str]:
    """Year and source of an attention; the source links to the paper."""
    source, number = layer(name).source, ARXIV.get(name)
    return (f"20{number[:2]}", f"[{source}](https://arxiv.org/abs/{number})") if number else ("", source)


def deviations() -> str:
    """A row for each class whose published code is known to differ."""
    rows = [[f"`{name}`", layer(name).deviation] for name in presets() if layer(name).deviation]
    return markdown_table(["attention", "the published code, unlike ours"], *rows)


def matrix() -> str:
    """The settings that take every attention, a table of attentions against the others, and the reasons.

    Settings with equal answers share a column.
    """
    refusals = {name: _refusals(choice) for name, choice in _settings().items()}
    columns: dict[tuple[bool, ...], list[str]] = {}
    for name, reasons in refusals.items():
        columns.setdefault(tuple(attention in reasons for attention in presets()), []).append(name)
    take_all = columns.pop((False,) * len(presets()))
    rows = [
        [f"`{attention}`", *(_mark(attention not in refusals[names[0]]) for names in columns.values())]
        for attention in presets()
    ]
    why: dict[str, dict[str, None]] = {}  # reason -> the settings that give it
    for name, reasons in refusals.items():
        for reason in reasons.values():
            why.setdefault(reason, {})[name] = None
    given = sorted(f"- {', '.join(names)}: {reason}." for reason, names in why.items())
    header = ["attention", *(", ".join(names) for names in columns.values())]
    names = fill(f"Every attention of the table runs with {', '.join(take_all)}.", 120)
    return "\n".join([MATRIX.format(names=names), markdown_table(header, *rows), "", "Reasons:\n", *given])


LIKE = {  # tasks that need files, and the task whose encoder and kind of tokens they share
    **dict.fromkeys(("image_csv", "torchvision"), "image_folder"),
    **dict.fromkeys(("series_csv", "series_folder"), "text_csv"),
    "pyg": "molecule_csv",
}


def _settings() -> dict[str, list[str]]:
    """Overrides by name: every task with its own encoder; on digits every block but those of graphs, and rope."""
    tasks = {f"`task={name}`": [f"task={LIKE.get(name, name)}"] for name in option_names("task")}
    blocks = {f"`block={name}`": [f"block={name}", *_data_with_edges(name)] for name in option_names("block")}
    return tasks | blocks | {"`encoder.position=rope`": ["encoder.position=rope"]}


def _data_with_edges(block: str) -> list[str]:
    """The task of a block that convolves along edges, without a bias, so that only the block refuses attentions."""
    is_graph_block = load_option("block", block)["_target_"].endswith(".GPSBlock")
    return ["task=zinc", "task.bias=false"] if is_graph_block else []


def _refusals(overrides: list[str]) -> dict[str, str]:
    """The attentions that cannot be built with these overrides, each with the reason. Reads no real data."""
    with TemporaryDirectory() as empty:
        for own_class in ("a", "b"):
            (Path(empty) / "image_folder" / own_class).mkdir(parents=True)
        composed = compose_root([*overrides, "encoder.depth=1"])
        if "root" in composed["data"]:
            composed["data"]["root"] = f"{empty}/image_folder"
        if composed["data"]["_target_"].endswith(".MaskFolder"):
            composed["data"] |= {"root": _masks(Path(empty) / "masked"), "cache": f"{empty}/cache", "processes": 1}
        for size in ("image_size", "num_points"):  # of own data, where the files would decide them
            if size in composed["data"]:
                composed["data"][size] = composed["data"][size] or 64
        if "file" in composed["data"]:
            composed["data"]["file"] = f"{empty}/table.csv"
            (Path(empty) / "table.csv").write_text("text,label,smiles,target\n" + "a,0,C,1\nb,1,CC,2\n" * 10)
        data = build_object(composed["data"], where="data").spec
    refused, task = {}, check_node(composed["task"], "task")
    for name in presets():
        try:
            with torch.device("meta"):
                build_model(task, check_model(composed | {"attention": node(name)}), data)
        except ConfigError as error:
            reason = re.sub(r", which \w+ cannot take; .*", "", str(error)).removeprefix("attention: ")
            refused[name] = re.sub(r" has no place for \w+;", " has no place for attention;", reason)
    return refused


def _masks(root: Path) -> str:
    """A folder with two images of 48 x 64 pixels and their masks."""
    for part, mode in (("images", "RGB"), ("masks", "L")):
        (root / part).mkdir(parents=True)
        for value in (0, 1):
            Image.new(mode, (64, 48), value if mode == "L" else (value, 0, 0)).save(root / part / f"{value}.png")
    return str(root)


def _mark(holds: bool) -> str:
    return "yes" if holds else "–"


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["measure"]:
            growth.measure(sorted({*homes().values(), *ALSO_MEASURED}))
        case ["measure", *names]:
            growth.measure(sorted(names), keep=True)
        case _:
            sys.exit(__doc__)
