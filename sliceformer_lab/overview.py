"""The text of --help: what can be chosen, with a line on each, and commands to start from."""

from __future__ import annotations

from sliceformer_lab.compose import CONF_DIR, option_names

EXAMPLES = {
    "sliceformer-lab": "train CSP on real 8 x 8 digits, two minutes",
    "sliceformer-lab task=cifar10 attention=mha": "another task, another attention (downloads 170 MB once)",
    "sliceformer-lab task=mnist encoder=small attention.group_size=4": "change options; any key of --cfg job",
    "sliceformer-lab experiment=csp/table3_cifar10_csp": "a published setting, its number set beside yours",
    "sliceformer-lab -m attention=mha,csp,identity seed=0,1,2": "every combination, one after the other",
    "sliceformer-lab resume=FOLDER": "go on with a run that was stopped",
    "sliceformer-lab mode=eval resume=FOLDER": "score a finished run again",
    "sliceformer-lab debug=fast": "one batch of everything: does it run?",
    "sliceformer-lab --cfg job": "print the whole configuration, every option with its value",
}


def help_text() -> str:
    """Tasks, attentions and the other groups, then example commands."""
    lines = [
        "Train and compare replacements of multi-head attention.",
        "",
        "usage: sliceformer-lab [-m] [KEY=VALUE ...]",
        "",
    ]
    lines += ["Examples"]
    width = max(map(len, EXAMPLES)) + 2
    lines += [f"  {command:<{width}}{what}" for command, what in EXAMPLES.items()]
    for title, group in (("Tasks (task=)", "task"), ("Attentions (attention=)", "attention")):
        names = option_names(group)
        width = max(map(len, names)) + 2
        lines += ["", title, *(f"  {name:<{width}}{first_comment(group, name)}" for name in names)]
    lines += ["", "Other groups"]
    lines += [
        f"  {g + '=':<12}{', '.join(option_names(g))}" for g in ("encoder", "block", "optim", "trainer", "callbacks")
    ]
    lines += [f"  {g + '=':<12}{', '.join(option_names(g))}" for g in ("logger", "debug")]
    lines += ["", "Experiments (experiment=)", *(f"  {name}" for name in experiment_names())]
    return "\n".join(lines)


def first_comment(group: str, name: str) -> str:
    """What the first comment line of an option's file says of it."""
    for line in (CONF_DIR / group / f"{name}.yaml").read_text(encoding="utf-8").splitlines():
        if line.startswith("# ") and not line.startswith("# @"):
            return line[2:]
    return ""


def experiment_names() -> list[str]:
    """The experiments as `experiment=` takes them, such as csp/table3_cifar10_csp."""
    root = CONF_DIR / "experiment"
    return sorted(str(file.relative_to(root).with_suffix("")) for file in root.rglob("*.yaml"))
