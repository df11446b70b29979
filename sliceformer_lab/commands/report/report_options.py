"""The options of `report`: the schema of conf/report.yaml."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class ReportOptions:
    """The options of `conf/report.yaml`."""

    folder: str = "outputs"
    by: str | tuple[str, ...] = ()  # options with their own columns; rows that differ only in them are compared
    reference: str = "mha"  # the attention that others are compared with if `by` is empty
    metric: str | None = None  # None: the selection metric, on the test set
    figures: bool = False  # PNG and PDF of each figure

    @property
    def factors(self) -> tuple[str, ...]:
        """The options in `by` as a tuple."""
        return (self.by,) if isinstance(self.by, str) else self.by
