"""The text of --help: what can be chosen, with a line on each, and commands to start from."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from sliceformer_lab.config.compose import CONF_DIR, option_names

EXAMPLES = {
    "sliceformer-lab": "train CSP on real 8 x 8 digits, two minutes",
    "sliceformer-lab task=cifar10 attention=mha": "another task, another attention (downloads 170 MB once)",
    "sliceformer-lab task=mnist encoder=small attention.group_size=4": "change options; any key of --cfg job",
    "sliceformer-lab recipe=csp/table3_cifar10 attention=csp": "a row of a paper's table, its number set beside yours",
    "sliceformer-lab -m attention=mha,csp,identity seed=0,1,2": "every combination, one after the other",
    "sliceformer-lab study=csp_table1 scale=small": "a paper's table in minutes a run, every run below outputs/sweeps",
    "sliceformer-lab resume=FOLDER": "go on with a run that was stopped",
    "sliceformer-lab mode=eval resume=FOLDER": "score a finished run again",
    "sliceformer-lab debug=fast": "one batch of everything: does it run?",
    "sliceformer-lab --cfg job": "print the whole configuration, every option with its value",
}
OTHER_GROUPS = ("data", "encoder", "block", "optim", "trainer", "callbacks", "logger", "debug")


def help_text() -> str:
    """Example commands, then what can be chosen."""
    sections = {
        "Examples": EXAMPLES,
        "Tasks (task=)": explained("task"),
        "Attentions (attention=)": explained("attention"),
        "Other groups": {f"{group}=": ", ".join(option_names(group)) for group in OTHER_GROUPS},
        "Studies (study=), multiruns of recipes": explained("study"),
        "Scales (scale=)": explained("scale"),
        "Recipes (recipe=)": _by_table(option_names("recipe")),
    }
    return page(
        "Train and compare replacements of multi-head attention.", "sliceformer-lab [-m] [KEY=VALUE ...]", sections
    )


def page(said: str, usage: str, sections: Mapping[str, Mapping[str, str]]) -> str:
    """The help of a command: what it does, how it is called, and titled lists in two columns."""
    lines = [said, "", f"usage: {usage}"]
    for title, rows in sections.items():
        width = max(map(len, rows)) + 2
        lines += ["", title, *(f"  {left:<{width}}{right}" for left, right in rows.items())]
    return "\n".join(lines)


def root_options(config_name: str) -> dict[str, str]:
    """The options at the root of conf/`config_name`.yaml, each with its default, and what their comments say."""
    lines = (CONF_DIR / f"{config_name}.yaml").read_text(encoding="utf-8").splitlines()
    return dict(line.partition(" # ")[::2] for line in lines if line and line[0].isalpha() and " # " in line)


def _by_table(names: list[str]) -> dict[str, str]:
    """The names by their first word, a paper's table: hundreds would hide everything else."""
    tables: dict[str, list[str]] = {}
    for name in names:
        table, _, rest = name.partition("_")
        tables.setdefault(f"{table}_" if rest else table, []).append(rest)
    return {
        table: ", ".join(rest) if len(rest) < 10 else f"{rest[0]} ... {rest[-1]} ({len(rest)}; see conf/recipe)"
        for table, rest in tables.items()
    }


def explained(group: str) -> dict[str, str]:
    """The options of a group with the first comment of their files."""
    return {name: _first_comment(CONF_DIR / group / f"{name}.yaml") for name in option_names(group)}


def _first_comment(file: Path) -> str:
    lines = file.read_text(encoding="utf-8").splitlines()
    return next((line[2:] for line in lines if line.startswith("# ") and not line.startswith("# @")), "")
