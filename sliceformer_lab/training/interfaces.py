"""What the library reads of a task. Data modules need no interface here: the library has `data.base.DataModule`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from pytorch_lightning import LightningModule
from torch import Tensor
from torchmetrics import MetricCollection

from sliceformer_lab.batch import Batch
from sliceformer_lab.data.base import DataModule as DataModule  # which the users of a task import from here
from sliceformer_lab.data.spec import Content, DataSpec
from sliceformer_lab.encoder.factory import Encoder
from sliceformer_lab.errors import ConfigError
from sliceformer_lab.measures.simple_models import SimpleModel
from sliceformer_lab.training.optim import OptimOptions
from sliceformer_lab.training.pretraining.pretrain_options import PretrainOptions
from sliceformer_lab.training.results.predicted import Names, PredictedSplits, ScoredSplit, TableRow


class TaskModule(LightningModule, ABC):
    """A model that a run can train and score.

    An abstract class and not a Protocol, because Lightning's trainer only takes LightningModules. `tasks.base.Task`
    implements it; library code, which cannot import tasks, uses it as the type of a task.
    """

    causal: ClassVar[bool] = False  # predicts each token from those before it
    maskable: ClassVar[bool] = False  # whether it has a `pretraining`
    monitor: str  # the metric that selects the best epoch
    monitor_mode: str  # "max" or "min"
    data_spec: DataSpec
    encoder: Encoder
    optim: OptimOptions
    num_steps: int | None  # optimizer steps of the training, known when it starts
    stopped_at: int | None = None  # the step at which validation reached optim.stop_at

    @classmethod
    def passes_bias(cls, options: Mapping[str, Any]) -> bool:
        """Whether a task with these options passes a pairwise bias to the attention."""
        return False

    @abstractmethod
    def forward(self, batch: Batch) -> Tensor:
        """The output for a batch: logits (B, classes), or (B, T) for regression."""

    @abstractmethod
    def loss(self, output: Tensor, target: Tensor) -> Tensor:
        """The training loss, a scalar."""

    @abstractmethod
    def predicted(self, batch: Batch) -> Tensor:
        """The prediction for a batch as predictions.npz holds it."""

    @abstractmethod
    def gathered_predictions(self) -> dict[str, dict[str, Tensor]]:
        """By split, ids (n,), targets (n, ...) and logits (n, ...) of the last scoring, sorted by id.

        All processes must call it, and receive those of all.
        """

    def num_tokens(self) -> int:
        """Longest sequence that reaches the encoder, CLS or graph token included."""
        return self.encoder.max_len

    @abstractmethod
    def example(self) -> Batch:
        """A batch of one sample of the largest size, to count costs with."""

    @abstractmethod
    def chance(self, targets: Tensor) -> float:
        """The monitored metric of a model that predicts the same for every sample."""

    @abstractmethod
    def build_metrics(self) -> MetricCollection:
        """Metrics of one split, updated with (output, target)."""

    def columns(self, names: Names) -> tuple[str, ...]:
        """The columns of `outcomes`; () if a table cannot hold what is predicted of a sample."""
        return ()

    def outcomes(self, outputs: Tensor, names: Names) -> list[TableRow]:
        """What is predicted of each sample, by column, from saved outputs (n, ...)."""
        return []

    def truths(self, targets: Tensor, names: Names) -> list[TableRow]:
        """The target of each sample, by column of predictions.csv; [] if there is no such table."""
        return []

    def thresholds(self, predictions: PredictedSplits) -> tuple[float, ...]:
        """The probability of each label above which it is predicted, chosen on the validation predictions."""
        return ()

    def decided_metrics(self, predictions: PredictedSplits, thresholds: Sequence[float] = ()) -> dict[str, float]:
        """Metrics of decisions such as test/f1_macro, from gathered predictions.

        The decisions follow from `thresholds`, those of a trained model, or from validation if there are none.
        """
        return {}

    def at_input_size(self, outcome: TableRow, content: Content) -> TableRow:
        """The outcome of a new input in the size of the input, such as a mask, from one in the size of the model."""
        return outcome

    def pictures(self, scored: ScoredSplit) -> Mapping[str, Callable[[Path], None]]:
        """What draws the pictures of a scored split that is not empty, by the file's name (lower case, .png)."""
        return {}

    def constant(self, targets: Tensor) -> tuple[str, Tensor] | None:
        """Name and output (...) of the best constant prediction for training targets (n, ...); None: it has none."""
        return None

    def simple_models(self, data: DataModule, num_train: int) -> Sequence[SimpleModel]:
        """The models that learn in seconds from `num_train` of these data, as references; the last is the strongest."""
        return ()

    def more_references(self, data: DataModule, predictions: PredictedSplits) -> list[TableRow]:
        """Rows of further references, as `references` returns them, from data and gathered predictions."""
        return []

    def more_results(self, data: DataModule, predictions: PredictedSplits) -> dict[str, Any]:
        """Facts of this task that the summary gains besides metrics and chance, from data and gathered predictions."""
        return {}

    def pretraining(self, options: PretrainOptions, seed: int) -> TaskModule:
        """A module that trains this task's encoder without targets. Its state has this task's under the prefix task.

        Raises ConfigError if the task has none.
        """
        raise ConfigError(f"{type(self).__name__} has no pretraining")

    def kept_weights(self) -> set[str]:
        """The names of the weights and buffers that a pretraining hands over; all others are new.

        Those of encoder and embedding, without the CLS token.
        """
        parts = ("embedding.", "encoder.")
        return {name for name in self.state_dict() if name.startswith(parts) and not name.endswith(".cls")}

    def initialise(self) -> None:
        """Load the weights of `encoder.init`, if any, into a new model. Raises ConfigError if they do not fit."""
        if (init := self.encoder.options.init) is not None:
            raise ConfigError(f"encoder.init={init}: {type(self).__name__} takes no pretrained weights; set it to null")
