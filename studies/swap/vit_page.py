"""The section of the study of a ViT: swap and heal, or train from the start?"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from intervals import format_mean
from run_experiment import unpacked

from sliceformer_lab.commands.compare.sentences import format_p
from sliceformer_lab.commands.swap.swap_verdict import format_points
from sliceformer_lab.measures.statistics import LEVEL, estimate_crossed, holm
from sliceformer_lab.runs.plain_text import markdown_table

FOLDER = Path(__file__).resolve().parent
Arm = tuple[str, str]  # attention, arm
ARMS = ("scratch", "swapped", "healed", "healed, fine-tuned", "fine-tuned")  # of the ViT
BEST = "healed, fine-tuned"
VIT_FAMILY = tuple(
    (("csp", BEST), other)
    for other in (
        ("csp", "scratch"),
        ("csp", "fine-tuned"),
        ("random_permutation", BEST),
        ("identity", BEST),
        ("mha", "scratch"),
    )
)
SEEDS, NUM_TEST = (0, 1, 2), 10_000


def vit_results() -> str:
    """The section of the study of a ViT: its comparisons, and the accuracy of every arm."""
    found: dict[Arm, dict[int, np.ndarray]] = {}
    for line in map(json.loads, (FOLDER / "vit.jsonl").read_text("utf-8").splitlines()):
        found.setdefault((line["attention"], line["arm"]), {})[line["seed"]] = unpacked(line, NUM_TEST)
    tables = {arm: np.stack([scores[seed] for seed in SEEDS]) for arm, scores in found.items()}
    less = {pair: estimate_crossed(tables[pair[0]] - tables[pair[1]]) for pair in VIT_FAMILY}
    p_values = dict(zip(less, holm([one.p() for one in less.values()]), strict=True))
    rows = [
        [_arm_name(ours), _arm_name(theirs), format_points(one), format_p(p_values[ours, theirs])]
        for (ours, theirs), one in less.items()
    ]
    accuracies = [
        [f"`{attention}`", *(format_mean(tables.get((attention, arm))) for arm in ARMS)]
        for attention in dict.fromkeys(attention for attention, _ in tables)
    ]
    ours = _arm_name(("csp", BEST))
    shown = [pair for pair, p in p_values.items() if p is not None and p < LEVEL]
    decided = [(pair[1], less[pair].mean) for pair in shown]
    sentences = [f"{'above' if mean > 0 else 'below'} {_arm_name(theirs)}" for theirs, mean in decided]
    undecided = [_arm_name(theirs) for _, theirs in less if theirs not in dict(decided)]
    finding = f"**{ours} is {', '.join(sentences) or 'decided against no other arm'}**"
    finding += f", and not shown to differ from {', '.join(undecided)}." if undecided else "."
    return "\n\n".join(
        [
            finding,
            markdown_table(["", "less", "points", "p (Holm)"], *rows),
            "Test accuracy, %:",
            markdown_table(["", *ARMS], *accuracies),
        ]
    )


def _arm_name(arm: Arm) -> str:
    return f"`{arm[0]}` {arm[1]}"
