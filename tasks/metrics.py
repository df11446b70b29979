"""Metrics of tasks with several targets, some of them missing, and scores of ranks."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import torch
from torch import Tensor
from torchmetrics import MeanAbsoluteError, Metric
from torchmetrics.classification import BinaryAccuracy, MulticlassConfusionMatrix
from torchmetrics.functional.classification import binary_auroc, binary_average_precision
from torchmetrics.functional.regression import spearman_corrcoef
from torchmetrics.utilities.data import dim_zero_cat

Score = Callable[[Tensor, Tensor], Tensor]  # outputs (n,), targets (n,) -> scalar, NaN if these have no score


class KnownMeanAbsoluteError(MeanAbsoluteError):
    """Mean absolute error over the targets that are known (not NaN). (B, T), (B, T) -> scalar."""

    def update(self, preds: Tensor, target: Tensor) -> None:
        known = ~target.isnan()
        super().update(preds[known], target[known])


class KnownAccuracy(BinaryAccuracy):
    """Share of the known labels (not NaN) that the signs of the logits predict. (B, T), (B, T) -> scalar."""

    def update(self, preds: Tensor, target: Tensor) -> None:
        known = ~target.isnan()
        if known.any():  # torchmetrics refuses none
            super().update((preds[known] > 0).long(), target[known].long())


class MeanOverTargets(Metric):
    """Mean over targets of a score of each target's known values (not NaN). (B, T), (B, T) -> scalar.

    Targets whose score is NaN are left out, as in the evaluator of the Open Graph Benchmark; NaN if none remains.
    """

    full_state_update = False
    outputs: list[Tensor]
    targets: list[Tensor]

    def __init__(self, score: Score) -> None:
        super().__init__()
        self.score = score
        self.add_state("outputs", [], dist_reduce_fx="cat")
        self.add_state("targets", [], dist_reduce_fx="cat")

    def update(self, preds: Tensor, target: Tensor) -> None:
        self.outputs.append(preds)
        self.targets.append(target)

    def compute(self) -> Tensor:
        columns = zip(dim_zero_cat(self.outputs).T, dim_zero_cat(self.targets).T, strict=True)
        scores = [self.score(output[~target.isnan()], target[~target.isnan()]) for output, target in columns]
        return torch.stack(scores).nanmean()


class MeanOfValues(Metric):
    """Mean of all values that `add` receives. A subclass says what an update adds."""

    full_state_update = False
    summed_as: ClassVar[torch.dtype] = torch.float64
    total: Tensor
    count: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.add_state("total", torch.zeros((), dtype=self.summed_as), dist_reduce_fx="sum")
        self.add_state("count", torch.zeros((), dtype=torch.long), dist_reduce_fx="sum")

    def add(self, values: Tensor) -> None:
        """Adds values of any shape."""
        self.total += values.sum(dtype=self.summed_as)
        self.count += values.numel()

    def compute(self) -> Tensor:
        """The mean; NaN without values."""
        return (self.total / self.count).float()


class MeanLoss(MeanOfValues):
    """Mean of a loss over the known targets of all batches; NaN if it is NaN in one.

    Written because torchmetrics' MeanMetric ignores the weights of batches where it lets NaN pass (1.9).
    """

    summed_as = torch.float32

    def update(self, loss: Tensor, known: Tensor) -> None:
        """Adds the mean loss of a batch's `known` targets; nothing if none is known."""
        count = known.sum()
        self.total += torch.where(count > 0, loss.to(self.summed_as) * count, 0.0)
        self.count += count


class BatchPrecision(MeanOfValues):
    """Average precision of all labels together at five thresholds, averaged over batches. (B, T), (B, T) -> scalar.

    The metric of SAMSA's published code on Peptides-func. It depends on the batches, and is not the benchmark's, the
    mean over labels of the exact average precision. Batches without a true label are left out; NaN if none remains.
    """

    summed_as = torch.float32

    def update(self, preds: Tensor, target: Tensor) -> None:
        known = ~target.isnan()
        labels = target[known].long()
        if labels.any():
            self.add(binary_average_precision(preds[known].sigmoid(), labels, thresholds=5))


class OneVsRestAUC(MeanOverTargets):
    """Mean over classes of the area under the ROC curve of each class's log-odds. (B, classes), (B,) -> scalar."""

    def __init__(self) -> None:
        super().__init__(auc)

    def update(self, preds: Tensor, target: Tensor) -> None:
        super().update(log_odds(preds), torch.nn.functional.one_hot(target, preds.shape[1]).float())


class MeanClassAccuracy(MulticlassConfusionMatrix):
    """Mean of the accuracies of the classes that occur. (B, classes), (B,) -> scalar.

    The macro accuracy of torchmetrics (1.9) also counts an absent class that was predicted, as 0.
    """

    def compute(self) -> Tensor:
        counts = self.confmat.sum(dim=1)
        return (self.confmat.diagonal() / counts)[counts > 0].mean()


def log_odds(logits: Tensor) -> Tensor:
    """The log-odds (B, classes) of each class's probability, which stay apart where probabilities round to 1."""
    logits = logits.double()
    logs, best = logits.log_softmax(dim=1), logits.argmax(dim=1, keepdim=True)
    rest = logits.scatter(1, best, -torch.inf).logsumexp(dim=1, keepdim=True)
    return (logs - (-logs.exp()).log1p()).scatter(1, best, logits.gather(1, best) - rest)


class MeanBits(MeanOfValues):
    """Mean bits of the targets, -log2 of their probabilities, or with `power` 2 to that mean. (B, N), any -> scalar."""

    def __init__(self, *, power: bool = False) -> None:
        super().__init__()
        self.power = power

    def update(self, preds: Tensor, target: Tensor) -> None:
        """Adds the bits of some targets, which `preds` holds."""
        self.add(preds)

    def compute(self) -> Tensor:
        mean = super().compute()
        return mean.exp2() if self.power else mean


def auc(outputs: Tensor, labels: Tensor) -> Tensor:
    """Area under the ROC curve of labels 0 and 1; NaN if all are equal."""
    return _score_ranks(binary_auroc, outputs, labels)


def average_precision(outputs: Tensor, labels: Tensor) -> Tensor:
    """Average precision of labels 0 and 1; NaN if all are equal."""
    return _score_ranks(binary_average_precision, outputs, labels)


def _score_ranks(score: Callable[[Tensor, Tensor], Tensor], outputs: Tensor, labels: Tensor) -> Tensor:
    if not (labels == 0).any() or not (labels == 1).any():
        return outputs.new_tensor(torch.nan)
    # ranks between 0 and 1, because torchmetrics applies a sigmoid, which rounds, to any other number
    ranks = torch.searchsorted(outputs.sort().values, outputs).double() / len(outputs)
    return score(ranks, labels.long()).to(outputs.dtype)


def best_thresholds(logits: Tensor, labels: Tensor) -> Tensor:
    """For each label the probability above which predicting it has the best F1, from (n, T), (n, T) to (T,).

    It lies in the middle between two probabilities; one half for labels that are never true.
    """
    columns = zip(logits.double().sigmoid().T, labels.T, strict=True)
    return torch.stack(
        [
            _best_threshold(column[known], truth[known] > 0)
            for column, truth, known in ((column, truth, ~truth.isnan()) for column, truth in columns)
        ]
    )


def _best_threshold(probabilities: Tensor, truth: Tensor) -> Tensor:
    if not truth.any():
        return probabilities.new_tensor(0.5)
    ordered, order = probabilities.sort(descending=True, stable=True)
    f1 = 2 * truth[order].cumsum(0) / (torch.arange(1, len(truth) + 1) + truth.sum())  # of the first 1, 2, ... samples
    following = torch.cat([ordered[1:], ordered.new_zeros(1)])
    f1 = f1.where(ordered > following, -1.0)  # equal probabilities are on one side
    best = f1.argmax()
    return (ordered[best] + following[best]) / 2


def f1_scores(logits: Tensor, labels: Tensor, thresholds: Tensor) -> dict[str, float]:
    """Micro and macro F1 of labels (n, T). A label is predicted if its probability is above its threshold (T,).

    `f1_macro` is the mean over labels that are true at least once; unknown labels (NaN) do not count.
    """
    known, predicted = ~labels.isnan(), logits.double().sigmoid() > thresholds
    truth = (labels > 0) & known
    hits, claims, positives = (part.sum(dim=0) for part in (predicted & truth, predicted & known, truth))
    some = positives > 0
    macro = (2 * hits / (claims + positives).clamp_min(1))[some].mean()
    return {"f1_macro": float(macro), "f1_micro": float(2 * hits.sum() / (claims.sum() + positives.sum()).clamp_min(1))}


def rmse(outputs: Tensor, numbers: Tensor) -> Tensor:
    """Root mean squared error; NaN without numbers. In float64, because squares leave the range of float32."""
    return (outputs - numbers).double().square().mean().sqrt().to(outputs.dtype)


def r2(outputs: Tensor, numbers: Tensor) -> Tensor:
    """Coefficient of determination: 1 - squared error / squared deviation from the mean; NaN if all are equal.

    torchmetrics takes squared errors below 1e-4 for zero, which small units have.
    """
    truth = numbers.double()
    deviation = (truth - truth.mean()).square().sum()
    return torch.where(deviation > 0, 1 - (outputs - truth).square().sum() / deviation, torch.nan).to(outputs.dtype)


def spearman(outputs: Tensor, numbers: Tensor) -> Tensor:
    """Spearman's rank correlation; 0 for equal outputs, NaN for fewer than two numbers or equal ones."""
    if not (numbers != numbers[:1]).any():
        return outputs.new_tensor(torch.nan)
    return spearman_corrcoef(outputs, numbers)
