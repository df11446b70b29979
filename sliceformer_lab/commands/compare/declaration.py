"""What a comparison declares before its first run: the comparisons, their margin, the seeds, trials and operators."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from sliceformer_lab.attention import Attention
from sliceformer_lab.commands.compare.compare_options import CompareOptions
from sliceformer_lab.config.hybrid import attention_nodes
from sliceformer_lab.measures.metric_scale import factor_of, less_is_better
from sliceformer_lab.measures.statistics import Estimate, seeds_needed, smallest_difference
from sliceformer_lab.runs.commit import git_commit
from sliceformer_lab.runs.files import digest_of, digest_of_json
from sliceformer_lab.runs.plain_text import counted
from sliceformer_lab.runs.recorded_plan import record_plan

PROTOCOL = 2  # of declarations; folders of another protocol are refused
WANTED_SPREADS = 2.0  # a true difference of so many spreads over seeds should be found
PROBE_MARGIN, GENERATED_MARGIN, SCORE_MARGIN = 0.02, 0.01, 0.005  # of accuracies: probes, generated tasks, others
PRECISION_MARGIN = 0.01  # of average precision, area under the curve and F1
ERROR_SHARE = 0.02  # of the error of the row compared with
GENERATED = ("lra_listops", "listops_quick", "lra_pathfinder", "lra_pathx")


@dataclass(frozen=True)
class Margin:
    """The difference that counts as none: an amount in the metric's unit, or a share of the other row's score."""

    amount: float | None
    share: float | None = None

    def of(self, other: float | None) -> float | None:
        """The amount for a comparison with a row of this mean score; None: there is none."""
        if self.share is None:
            return self.amount
        return None if other is None else self.share * abs(other)


def default_margin(options: CompareOptions, task: str, metric: str) -> Margin:
    """The margin of the options, in the metric's own unit, or that of the kind of task."""
    if options.margin is not None:
        return Margin(options.margin / factor_of(metric))
    if "accuracy" in metric or "iou" in metric:
        generated = GENERATED_MARGIN if task in GENERATED else SCORE_MARGIN
        return Margin(PROBE_MARGIN if task.startswith("probe_") else generated)
    if less_is_better(metric):
        return Margin(None, ERROR_SHARE)
    return Margin(PRECISION_MARGIN if re.search("precision|auc|f1", metric) else None)


def declare(
    folder: Path,
    word: str,
    options: CompareOptions,
    metric: str,
    margin: Margin,
    facts_of_rows: Mapping[str, Any],
    operators: Mapping[str, str],
) -> dict[str, Any]:
    """Write WORD.json, or check that it declares the same; returns its content with its time and a digest of the rest.

    Raises ConfigError.
    `facts_of_rows` are the task, the recipe's own learning rates and the digests of the data; `operators` are the
    digests of the rows' attentions.
    """
    chosen = {key: value for key, value in asdict(options).items() if key not in ("folder", "force_time", "retry")}
    chosen["words"] = sorted(word for word in options.words if not word.startswith("paths."))
    facts: dict[str, Any] = {
        "protocol": PROTOCOL,
        "metric": metric,
        "margin": asdict(margin),
        "comparisons": [[options.subject, other] for other in options.others],
        "reporting_seeds": list(options.reporting_seeds),
        "options": json.loads(json.dumps(chosen)),
        **facts_of_rows,
    }
    digest = digest_of_json([facts, dict(operators)])[:12]
    now = datetime.now().astimezone().isoformat(timespec="seconds")
    of_this_start = {"digest": digest, "time": now, "commit": git_commit()}
    return record_plan(folder / f"{word}.json", facts, of_this_start, operators)


def operator_digest(node: Mapping[str, Any]) -> str:
    """sha256 of an attention's node and of the files of its classes; a folder of runs goes on with the same only."""
    return digest_of_json([node, source_digests(node)])


def source_digests(node: Mapping[str, Any]) -> dict[str, str]:
    """sha256 of the files of an attention's classes by module, without the one that all attentions share."""
    kinds = {kind for layer in attention_nodes(node) for kind in layer.target.__mro__ if issubclass(kind, Attention)}
    files = {kind.__module__: inspect.getfile(kind) for kind in kinds - {Attention}}
    return {module: digest_of(Path(file)) for module, file in sorted(files.items())}


def seeds_warning(options: CompareOptions) -> str | None:
    """A warning that so few seeds find only differences far larger than their spread; None if they suffice."""
    count, seeds = len(options.others), len(options.reporting_seeds)
    needed = seeds_needed(count, WANTED_SPREADS)
    if seeds >= needed:
        return None
    found = smallest_difference(Estimate(0.0, 1 / seeds, seeds - 1, "seeds"), count)
    return (
        f"{seeds} seeds and {counted(count, 'comparison')} find a difference of {found:.1f} times its spread over "
        f"seeds in 4 of 5 audits, no smaller one; seeds={needed} would find {WANTED_SPREADS:g} times"
    )
