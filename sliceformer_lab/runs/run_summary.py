"""summary.json as a type. Others may have written the files that reports read, so their content is checked here."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, ValidationError


def _check_scalar(value: Any) -> Any:
    if isinstance(value, dict | list):
        raise ValueError("should be one value")
    return value


Scalar = Annotated[Any, AfterValidator(_check_scalar)]  # a union of types would appear in the place of an error


class _Facts(BaseModel):
    """Facts of a run. One that a file lacks has its default; further ones are kept."""

    model_config = ConfigDict(strict=True, frozen=True, extra="allow")

    def recorded(self) -> dict[str, Any]:
        """The facts as the file has them."""
        return self.model_dump(exclude_unset=True)


class Scored(_Facts):
    """The epoch or step that was scored, and the metric that chose it, on validation."""

    epoch: int | None = None
    step: int | None = None
    metric: str | None = None
    value: float | None = None


class Start(_Facts):
    """One start of a run; a resumed run has several."""

    time: str = ""
    git_commit: str | None = None
    precision: str | None = None
    status: str = ""
    seconds: float = 0.0
    from_step: int | None = None  # None: it never trained
    changed_data: list[str] | None = None  # splits with other examples than at the previous start


class Gap(_Facts):
    """The run's score less that of a reference, with its interval."""

    place: str
    value: float
    low: float
    high: float


class ReferenceModel(_Facts):
    """A simple model that was fitted on the run's splits."""

    name: str
    metrics: dict[str, float | None] | None = None
    seconds: float | None = None  # to fit it
    skipped: str | None = None  # why it has no score
    difference: Gap | None = None


class ChosenOption(_Facts):
    """An option that followed from the data."""

    option: str


class Steps(_Facts):
    """The steps of a training."""

    planned: int | None = None
    trained: int | None = None


class PredictionSpeed(_Facts):
    """Measured times of the forward pass."""

    latency_ms: float
    inputs_per_second: float
    batch: int


class RunProtocol(_Facts):
    """What a result depends on besides the options."""

    data: str | None = None
    official: bool | None = None  # whether the data are those that the benchmark publishes
    sha256: str | None = None
    num_train: int | None = None
    num_val: int | None = None
    num_test: int | None = None
    sequence_length: int | None = None
    selection: str | None = None
    epochs: int | None = None
    steps: int | None = None
    limit_train: Scalar = None
    limit_val: Scalar = None
    limit_test: Scalar = None
    limit_train_batches: Scalar = None
    limit_val_batches: Scalar = None
    score_test: bool = True

    @property
    def is_recorded(self) -> bool:
        """Whether the run has been scored; before that nothing is known."""
        return bool(self.model_fields_set)


class RunSummary(_Facts):
    """The content of summary.json."""

    task: str
    attention: str
    status: str
    name: str = ""
    recipe: str | None = None
    study: str | None = None
    scale: str | None = None
    error: str | None = None
    started: str | None = None
    starts: list[Start] = []
    seed: int | None = None
    split_seed: int | None = None
    tags: list[str] = []
    published: dict[str, Scalar] | None = None  # the cell of a paper that the run repeats
    budget: str | None = None
    options: dict[str, dict[str, Any]] = {}
    choices: list[ChosenOption] = []
    digests: dict[str, str] = {}  # of the data, by split
    sources: dict[str, str] = {}  # of the user's own files, by path
    pretrain: dict[str, Any] = {}  # the pretraining that it started from
    machine: dict[str, Scalar] = {}
    versions: dict[str, str] = {}
    git_commit: str | None = None
    command: list[str] | None = None
    wall_seconds: float | None = None  # of all starts
    processor_seconds: float | None = None  # of the last start
    steps: Steps = Steps()
    protocol: RunProtocol = RunProtocol()  # this and the facts below: of a run that has been scored
    data_about: str | None = None
    data_remarks: list[str] = []
    unit: str | None = None
    best: Scored = Scored()
    metrics: dict[str, float | None] = {}
    chance: float | None = None
    bag_level: float | None = None
    accuracy_at_length: dict[str, float | None] = {}
    steps_to_stop_at: int | None = None
    warnings: list[str] = []
    parameters: int | None = None
    cost_per_sample: dict[str, int] = {}
    cost_of_longest: dict[str, int] = {}
    mean_length: int | None = None
    samples_per_second: float | None = None
    prediction: PredictionSpeed | None = None
    peak_memory_gb: float | None = None
    references: list[ReferenceModel] = []

    def metric(self, name: str) -> float | None:
        """A metric; one on the test set may come from the epoch that the test set selected."""
        return self.metrics.get(name, self.metrics.get(f"{name}_best_test_epoch"))

    @property
    def answers_tokens(self) -> bool:
        """Whether the task asks for answers at single tokens, which have a bag level, known or not."""
        return "bag_level" in self.model_fields_set


def parse_summary(content: object) -> RunSummary:
    """The summary of a run. Raises ValueError with what is wrong with the content, in a few words."""
    try:
        return RunSummary.model_validate(content)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(str(part) for part in first["loc"]) or "the file"
        raise ValueError(
            f"it lacks {place}" if first["type"] == "missing" else f"{place} is {first['input']!r:.60}"
        ) from error
