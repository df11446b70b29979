"""The options of `predict`: the schema of conf/predict.yaml."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class PredictOptions:
    """The options of `conf/predict.yaml`."""

    resume: str  # the folder of a run
    input: str
    output: str = "predictions.csv"
    column: str | None = None  # None: the one that the run was trained on
    overwrite: bool = False
