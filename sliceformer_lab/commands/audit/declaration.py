"""What an audit declares before its first run: the comparisons, their margin, the seeds and the trials."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from sliceformer_lab.commands.audit.audit_options import AuditOptions
from sliceformer_lab.commands.audit.verdicts import pairs_needed
from sliceformer_lab.measures.metric_scale import factor_of, less_is_better
from sliceformer_lab.runs.commit import git_commit
from sliceformer_lab.runs.files import write_json
from sliceformer_lab.runs.recorded_plan import read_same_plan

PLAN = "audit.json"
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


@dataclass(frozen=True)
class Declaration:
    """The content of audit.json."""

    content: Mapping[str, Any]

    @property
    def digest(self) -> str:
        """A hash of everything declared, twelve characters long."""
        return str(self.content["digest"])

    @property
    def time(self) -> str:
        """When it was declared."""
        return str(self.content["time"])


def default_margin(options: AuditOptions, task: str, metric: str) -> Margin:
    """The margin of the options, in the metric's own unit, or that of the kind of task."""
    if options.margin is not None:
        return Margin(options.margin / factor_of(metric))
    if "accuracy" in metric or "iou" in metric:
        generated = GENERATED_MARGIN if task in GENERATED else SCORE_MARGIN
        return Margin(PROBE_MARGIN if task.startswith("probe_") else generated)
    if less_is_better(metric):
        return Margin(None, ERROR_SHARE)
    return Margin(PRECISION_MARGIN if re.search("precision|auc|f1", metric) else None)


def declare(folder: Path, options: AuditOptions, task: str, metric: str, margin: Margin) -> Declaration:
    """Write audit.json, or find that it declares the same. Raises ConfigError."""
    chosen = {key: value for key, value in asdict(options).items() if key not in ("folder", "force_time")}
    chosen["words"] = sorted(word for word in options.words if not word.startswith("paths."))
    facts: dict[str, Any] = {
        "task": task,
        "metric": metric,
        "margin": asdict(margin),
        "comparisons": [[options.subject, other] for other in options.against],
        "reporting_seeds": list(options.reporting_seeds),
        "options": json.loads(json.dumps(chosen)),
    }
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:12]
    file = folder / PLAN
    if not file.exists():
        now = datetime.now().astimezone().isoformat(timespec="seconds")
        write_json(file, {"digest": digest, "time": now, "commit": git_commit(), **facts})
    return Declaration(read_same_plan(file, facts, "an audit"))


def seeds_warning(options: AuditOptions) -> str | None:
    """A warning that so few seeds cannot decide so many comparisons; None if they can."""
    count = len(options.against)
    if options.seeds >= (needed := pairs_needed(count)):
        return None
    most = max((m for m in range(1, count) if pairs_needed(m) <= options.seeds), default=0)
    enough = f"at most {most} declared" if most > 1 else "only one declared" if most else "no"
    return (
        f"with seeds={options.seeds} {enough} comparison{'s' if most > 1 else ''} can become significant under Holm, "
        f"and {count} are declared: nothing can be called better or worse; seeds={needed} would do"
    )
