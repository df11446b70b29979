"""What the user sets of a report: the schema of conf/report.yaml."""

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field


@dataclass(frozen=True, kw_only=True)
class ReportOptions:
    """The options of `conf/report.yaml`."""

    folder: str = "outputs"
    by: str | tuple[str, ...] = ()  # options with a column of their own; rows that differ in them alone are compared
    reference: str = "mha"  # the attention that the others are compared with where `by` names nothing
    metric: str | None = None  # None: the one that picked the epoch, on the test set
    figures: bool = True  # PNG and PDF of each figure
    resamples: Annotated[int, Field(ge=100)] = 2000  # of seeds and of examples, for the intervals
    seed: Annotated[int, Field(ge=0)] = 0  # of the resampling

    @property
    def factors(self) -> tuple[str, ...]:
        """The options in `by`."""
        return (self.by,) if isinstance(self.by, str) else self.by
