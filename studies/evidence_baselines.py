"""A constant and a model without a network where the package has none, or a weak or slow one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from sklearn.decomposition import TruncatedSVD
from sklearn.ensemble import RandomForestClassifier
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression, RidgeCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from sliceformer_lab.data.graphs.store import GraphSplit
from sliceformer_lab.data.loader import Split
from sliceformer_lab.data.points.shapenet import NUM_PARTS
from sliceformer_lab.data.sequences.expressions import ids_of, value_of
from sliceformer_lab.training.saved.saved_run import Run

Array = np.ndarray
Named = Mapping[str, Any]  # name, score
ATOMS, BONDS = 128, 8  # no kind has a larger number
GRAPHS = ("zinc", "pcqm4m", "qm9_gap", "molecule_csv", "peptides_func", "peptides_struct")
LSA = 30  # dimensions of a text
EVERY = 8  # of the training points, which the forest of parts sees


def graphs(run: Run, split: str) -> tuple[Named, Named]:
    """The best constant, and ridge or logistic regression of every target on the counts of atom and bond kinds."""
    (train, targets), (others, _) = (_atom_counts(run, stage) for stage in ("train", split))
    if run.model.data_spec.targets == "labels":
        constant = targets.mean(axis=0)
        fits = [make_pipeline(StandardScaler(), LogisticRegression(max_iter=500)).fit(train, c) for c in targets.T]
        found = np.stack([fitted.decision_function(others) for fitted in fits], axis=1)
    else:
        constant = targets.mean(axis=0)
        fitted = make_pipeline(StandardScaler(), RidgeCV(np.logspace(-3, 3, 13))).fit(train, targets)
        found = fitted.predict(others).reshape(len(others), -1)
    constants = np.broadcast_to(constant, found.shape)
    scores = [_score(run, split, outputs) for outputs in (constants, found)]
    return _named("training mean", scores[0]), _named("counts of atoms and bonds + linear model", scores[1])


def lra_retrieval(run: Run, split: str) -> tuple[Named, Named]:
    """The commonest class, and logistic regression on the products of the two texts' LSA vectors.

    A bag of the words of both texts cannot say whether they agree; products of their features can.
    """
    texts: dict[str, list[list[str]]] = {}
    for stage in ("train", split):
        examples = run.data.examples(stage, list(range(len(_split(run, stage)))))  # type: ignore[arg-type]
        texts[stage] = [str(example.content).split("\n\n") for example in examples]
    vectorizer = TfidfVectorizer(min_df=5, sublinear_tf=True, token_pattern=r"(?u)\b\w+\b")
    words = make_pipeline(vectorizer, TruncatedSVD(LSA, random_state=0))
    words.fit(list(dict.fromkeys(text for pair in texts["train"] for text in pair)))
    train, test = (
        _products(*(words.transform([pair[i] for pair in found]) for i in (0, 1))) for found in texts.values()
    )
    labels, targets = _targets(run, "train"), _targets(run, split)
    fitted = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)).fit(train, labels)
    commonest = np.bincount(labels).argmax()
    return (
        _named("commonest class", float((targets == commonest).mean())),
        _named("products of LSA vectors + logistic regression", float(fitted.score(test, targets))),
    )


def lra_listops(run: Run, split: str) -> tuple[Named, Named]:
    """The commonest class, and the rule of `shallow_values`."""
    expressions = {}
    for stage in ("train", split):
        examples = run.data.examples(stage, list(range(len(_split(run, stage)))))  # type: ignore[arg-type]
        expressions[stage] = [str(example.content) for example in examples]
    labels, targets = _targets(run, "train"), _targets(run, split)
    found = shallow_values(expressions["train"], labels.tolist(), expressions[split])
    return (
        _named("commonest class", float((targets == np.bincount(labels).argmax()).mean())),
        _named("outermost operator on its own digits", float((targets == np.array(found)).mean())),
    )


def shallow_values(train: Sequence[str], labels: Sequence[int], others: Sequence[str]) -> list[int]:
    """The value of each expression's outermost operator on its own digits, without the lists inside.

    Without digits of its own an expression gets the operator's commonest value in the training set.
    """
    by_operator: dict[str, list[int]] = {}
    for expression, label in zip(train, labels, strict=True):
        by_operator.setdefault(expression.split()[0], []).append(label)
    commonest = {operator: int(np.bincount(values).argmax()) for operator, values in by_operator.items()}
    found = []
    for expression in others:
        symbols, depth, digits = expression.split(), 0, []
        for symbol in symbols:
            depth += symbol.startswith("[") - (symbol == "]")
            digits += [symbol] if depth == 1 and symbol.isdigit() else []
        alone = " ".join([symbols[0], *digits, "]"])
        found.append(value_of(ids_of(alone)) if digits else commonest[symbols[0]])
    return found


def shapenet_part(run: Run, split: str) -> tuple[Named, Named]:
    """The commonest part of each category, and a forest on the coordinates and the category of single points."""
    (points, kinds, parts), (others, other_kinds, targets) = (
        _labelled_points(run, stage) for stage in ("train", split)
    )
    table = np.zeros((kinds.max() + 1, NUM_PARTS))
    np.add.at(table, (kinds[:, None], parts), 1)
    constant = np.repeat(table.argmax(axis=1)[other_kinds][:, None], targets.shape[1], axis=1)
    forest = RandomForestClassifier(50, random_state=0, n_jobs=1)
    forest.fit(_with_kind(points, kinds)[::EVERY], parts.ravel()[::EVERY])
    found = forest.predict(_with_kind(others, other_kinds)).reshape(targets.shape)
    scores = [_score(run, split, predicted) for predicted in (constant, found)]
    return _named("commonest part", scores[0]), _named("coordinates + forest", scores[1])


OWN_BASELINES: Mapping[str, Callable[[Run, str], tuple[Named, Named]]] = {
    **dict.fromkeys(GRAPHS, graphs),  # the package's forests take minutes
    "lra_listops": lra_listops,
    "lra_retrieval": lra_retrieval,
    "shapenet_part": shapenet_part,
}


def _named(name: str, score: float) -> Named:
    return {"name": name, "score": float(score)}


def _products(first: Array, second: Array) -> Array:
    """Products (n, F * F) of every feature of one text with every feature of the other, in either order."""
    outer = first[:, :, None] * second[:, None]
    return (outer + outer.transpose(0, 2, 1)).reshape(len(first), -1)


def _split(run: Run, stage: str) -> Split:
    return run.data.splits[stage]  # type: ignore[index]


def _targets(run: Run, stage: str) -> Array:
    split = _split(run, stage)
    return split.targets_at(list(range(len(split)))).numpy()


def _atom_counts(run: Run, stage: str) -> tuple[Array, Array]:
    """Counts (n, ATOMS + BONDS) of the kinds of atoms and bonds, and the targets (n, T)."""
    split = _split(run, stage)
    if not isinstance(split, GraphSplit):
        raise TypeError(f"expected graphs, got {type(split).__name__}")
    counts = []
    for graph in (split.store[place] for place in split.rows):
        atoms = np.bincount(graph.nodes[:, 0], minlength=ATOMS)
        counts.append(np.concatenate([atoms, np.bincount(graph.edge_features[:, 0], minlength=BONDS)]))
    return np.stack(counts).astype(np.float64), _targets(run, stage)


def _score(run: Run, split: str, outputs: Array) -> float:
    """The monitored metric of outputs like the run's."""
    metric = run.model.build_metrics()[run.model.monitor]
    kept = torch.from_numpy(np.array(outputs))
    metric.update(kept.float() if kept.is_floating_point() else kept, torch.from_numpy(_targets(run, split)))
    return float(metric.compute())


def _labelled_points(run: Run, stage: str) -> tuple[Array, Array, Array]:
    """Coordinates (n, N, 3), categories (n,) and parts (n, N) of all shapes of a split."""
    split = _split(run, stage)
    batch = split.batch(list(range(len(split))))
    if batch.context is None:
        raise TypeError("shapes need a category")
    return batch.inputs[..., :3].numpy(), batch.context.argmax(dim=1).numpy(), batch.target.numpy()


def _with_kind(points: Array, kinds: Array) -> Array:
    """Coordinates and category (n * N, 4) of single points."""
    return np.concatenate([points, np.broadcast_to(kinds[:, None, None], (*points.shape[:2], 1))], axis=2).reshape(
        -1, 4
    )
