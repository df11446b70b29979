"""Pictures of a run's test results: confusion matrix, ROC curves, predicted against true values, worst mistakes."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import PercentFormatter
from numpy.typing import NDArray

from sliceformer_lab.measures.drawing import (
    COLOURS,
    MUTED,
    Chart,
    draw_pixels,
    save_chart,
    shorten_path,
)

MAX_CLASSES = 40  # of a confusion matrix; beyond, those in the most errors
WITH_NUMBERS = 20  # classes of a confusion matrix whose cells have room for numbers
MAX_PANELS, MAX_CURVES, MAX_POINTS = 6, 12, 5000
MAX_LINES = 12  # channels of a series that are drawn as lines
TRUE, ANSWERED = COLOURS[:2]  # of the truth and the model's answer
MAX_NAME_CHARACTERS, MAX_TEXT_CHARACTERS = 24, 500  # characters
WRAP, SIDE = 136, 160  # characters of a line of text, pixels of a picture
LINE_INCHES = 0.19  # the height of a line of text


@dataclass(frozen=True)
class Mistake:
    """A wrong answer of a model: the example as a person knows it, the truth, and the answer."""

    place: str
    content: str | NDArray[Any] | None
    truth: str
    answer: str


def plot_confusion(targets: NDArray[Any], outputs: NDArray[Any], names: Sequence[str], path: Path, title: str) -> None:
    """Draw the confusion matrix of classes (n,) and logits (n, K), in shares of each true class.

    Of more than 40 classes only those in the most errors are shown.
    """
    answers, count = outputs.argmax(axis=1), outputs.shape[1]
    table = np.zeros((count, count), dtype=np.int64)
    np.add.at(table, (targets, answers), 1)
    errors = table - np.diag(table.diagonal())
    chosen = np.arange(count)
    if count > MAX_CLASSES:
        chosen = np.sort(np.argsort(-(errors.sum(axis=0) + errors.sum(axis=1)), kind="stable")[:MAX_CLASSES])
        title += f"; the {MAX_CLASSES} of {count} classes in the most errors"
    shown = table[np.ix_(chosen, chosen)]
    share = shown / np.maximum(table[chosen].sum(axis=1, keepdims=True), 1)
    labels = [_shorten_text(names[int(i)]) for i in chosen]
    side = 2.2 + (0.42 if len(chosen) <= WITH_NUMBERS else 0.24) * len(chosen) + 0.06 * max(map(len, labels))
    panel = partial(_draw_matrix, shown=shown, share=share, labels=labels)
    save_chart(Chart(panels=[panel], heading=title, size=(max(side + 1.2, 4.6), max(side, 4.0))), path)


def _draw_matrix(axes: Axes, shown: NDArray[np.int64], share: NDArray[np.float64], labels: Sequence[str]) -> None:
    drawn = axes.imshow(share, cmap="Blues", vmin=0, vmax=1)
    axes.grid(visible=False)
    has_numbers = len(labels) <= WITH_NUMBERS
    small = 9 if has_numbers else 7
    turn = 0 if max(map(len, labels)) <= 2 else 90
    axes.set_xticks(range(len(labels)), labels, rotation=turn, fontsize=small)
    axes.set_yticks(range(len(labels)), labels, fontsize=small)
    axes.set(xlabel="predicted class", ylabel="true class")
    for (row, column), number in np.ndenumerate(shown):
        if has_numbers and number:
            ink = "white" if share[row, column] > 0.55 else "black"
            axes.text(column, row, f"{number:,}", ha="center", va="center", color=ink, fontsize=8)
    axes.figure.colorbar(drawn, ax=axes, label="share of the true class", shrink=0.8, format=PercentFormatter(1))


def plot_roc(targets: NDArray[Any], outputs: NDArray[Any], names: Sequence[str], path: Path, title: str) -> None:
    """Draw a ROC curve with its area for each label of targets (n, T) in 0, 1 or NaN and scores (n, T).

    Labels whose known targets are all equal have none; of more than 12 the others are left out.
    """
    from sklearn.metrics import auc, roc_curve  # slow to import

    areas: list[float] = []
    curves: list[Line2D] = []
    for label, name in enumerate(names):
        known = np.isfinite(targets[:, label])
        truth, scores = targets[known, label] > 0.5, outputs[known, label]
        if not truth.any() or truth.all():
            continue
        false, true, _ = roc_curve(truth, scores)
        areas.append(float(auc(false, true)))
        turn, place = divmod(len(curves), len(COLOURS))
        words = f"{_shorten_text(name)}: {areas[-1]:.3f} ({int(truth.sum())} of {len(truth)})"
        curves.append(Line2D(false, true, color=COLOURS[place], linestyle="--" if turn else "-", label=words))

    def draw(axes: Axes) -> None:
        axes.plot([0, 1], [0, 1], color="0.6", linewidth=1, linestyle="--")
        for curve in curves[:MAX_CURVES]:
            axes.plot(*curve.get_data(), color=curve.get_color(), linestyle=curve.get_linestyle(), linewidth=1.4)
        axes.set(xlabel="false positive rate", ylabel="true positive rate", xlim=(-0.01, 1.01), ylim=(-0.01, 1.01))
        axes.set_aspect("equal")

    if areas:
        left_out = f", {MAX_CURVES} of {len(areas)} labels" if len(areas) > MAX_CURVES else ""
        title += f"; mean area {np.mean(areas):.3f}. Below: area under the curve (positives of known){left_out}"
    save_chart(Chart(panels=[draw], legend=curves[:MAX_CURVES], heading=title, size=(5.0, 4.6)), path)


def plot_predicted(targets: NDArray[Any], outputs: NDArray[Any], names: Sequence[str], path: Path, title: str) -> None:
    """Draw predicted against true numbers (n, T), a panel for each of the first six targets; NaN is unknown."""
    count = min(targets.shape[1], MAX_PANELS)
    left_out = f"; {count} of {targets.shape[1]} targets" if count < targets.shape[1] else ""
    panels = []
    for target in range(count):
        known = np.isfinite(targets[:, target])
        true, predicted = (numbers[known, target].astype(float) for numbers in (targets, outputs))
        panels.append(partial(_draw_predicted, true=true, predicted=predicted, name=_shorten_text(names[target])))
    save_chart(Chart(panels=panels, heading=f"{title}{left_out}", size=(4.4, 4.3)), path)


def _draw_predicted(axes: Axes, true: NDArray[np.float64], predicted: NDArray[np.float64], name: str) -> None:
    if not len(true):
        axes.set_title(f"{name}: no known value")
        return
    spread = float(((true - true.mean()) ** 2).sum())
    r2 = 1 - float(((true - predicted) ** 2).sum()) / spread if spread > 0 else float("nan")
    mae = float(np.abs(true - predicted).mean())
    some = np.random.default_rng(0).permutation(len(true))[:MAX_POINTS]
    ends = np.array([min(true.min(), predicted.min()), max(true.max(), predicted.max())])
    ends += np.array([-0.04, 0.04]) * (np.ptp(ends) or 1.0)
    axes.plot(ends, ends, color="0.55", linewidth=1, linestyle="--", label="predicted = true")
    size, alpha = (18, 0.7) if len(some) <= 500 else (6, 0.35)
    axes.scatter(true[some], predicted[some], s=size, alpha=alpha, color=COLOURS[0], linewidths=0)
    axes.set(xlim=ends, ylim=ends, xlabel="true", ylabel="predicted", aspect="equal")
    axes.legend(fontsize=8, loc="upper left")
    shown = f" ({len(some):,} of {len(true):,} points)" if len(some) < len(true) else ""
    axes.set_title(f"{name}: R² {r2:.3f}, MAE {mae:.3g}{shown}")


def plot_mistakes(mistakes: Sequence[Mistake], kind: str | None, path: Path, title: str) -> None:
    """Draw some mistakes: pictures, molecules, clouds and series as a grid, texts as lines.

    `kind` says what the contents are: picture, smiles, cloud, text, or None if the examples have none.
    """
    ways: dict[str, Callable[[Any, Any], None]] = {
        "picture": _draw_picture,
        "smiles": _draw_molecule,
        "cloud": _draw_cloud,
        "series": _draw_series,
    }
    draw = ways.get(kind or "")
    if draw is None or any(mistake.content is None for mistake in mistakes):
        chart = _list_lines(mistakes, title)
    else:
        panels = [partial(_draw_mistake, mistake=mistake, draw=draw) for mistake in mistakes]
        chart = Chart(panels=panels, heading=title, size=(3.0, 3.6), columns=4, is_3d=kind == "cloud")
    save_chart(chart, path)


def _draw_mistake(axes: Any, mistake: Mistake, draw: Callable[[Any, Any], None]) -> None:
    """The content, its place above it, and the truth and the answer below it."""
    draw(axes, mistake.content)
    axes.set(xticks=[], yticks=[])
    axes.set_title(shorten_path(mistake.place), fontsize=8, color=MUTED, weight="normal", loc="center")
    for points, words, colour in ((-4, f"true: {mistake.truth}", TRUE), (-16, mistake.answer, ANSWERED)):
        axes.annotate(
            _shorten_text(words, 34),
            (0.5, 0),
            xycoords="axes fraction",
            xytext=(0, points),
            textcoords="offset points",
            color=colour,
            ha="center",
            va="top",
        )


def _list_lines(mistakes: Sequence[Mistake], title: str) -> Chart:
    """Each mistake in one line, and its text below it."""
    texts = [_wrap_text(mistake.content) for mistake in mistakes]
    heights = [1.9 + (text.count("\n") + 1 if text else 0) for text in texts]  # in lines

    def draw(axes: Axes) -> None:
        axes.set_axis_off()
        axes.set(xlim=(0, 1), ylim=(sum(heights), 0))
        top = 0.0
        for mistake, text, height in zip(mistakes, texts, heights, strict=True):
            axes.text(0.0, top, f"true: {_shorten_text(mistake.truth, 40)}", color=TRUE, weight="bold", va="top")
            axes.text(0.3, top, _shorten_text(mistake.answer, 50), color=ANSWERED, weight="bold", va="top")
            axes.text(1.0, top, shorten_path(mistake.place, 50), color=MUTED, ha="right", va="top")
            axes.text(0.0, top + 1.15, text, linespacing=1.25, va="top")
            top += height

    return Chart(panels=[draw], heading=title, size=(11, LINE_INCHES * sum(heights)))


def _wrap_text(content: object) -> str:
    """A text on at most four lines, without control characters."""
    if not isinstance(content, str):
        return ""
    words = "".join(letter if letter.isprintable() else " " for letter in content[:MAX_TEXT_CHARACTERS])
    return "\n".join(
        textwrap.wrap(words + " …" * (len(content) > MAX_TEXT_CHARACTERS), WRAP, max_lines=4, placeholder=" …")
    )


def _draw_picture(axes: Axes, pixels: NDArray[Any]) -> None:
    step = max(1, -(-max(pixels.shape[:2]) // (2 * SIDE)))
    draw_pixels(axes, pixels[::step, ::step], cmap="gray", vmin=0, vmax=255)


def _draw_molecule(axes: Axes, smiles: str) -> None:
    """The drawn molecule with rdkit; without it, or for SMILES that it refuses, the SMILES as text."""
    try:
        from PIL import Image
        from rdkit import Chem, rdBase
        from rdkit.Chem.Draw import rdMolDraw2D

        with rdBase.BlockLogs():
            molecule = Chem.MolFromSmiles(smiles)
        if molecule is None:
            raise ValueError(smiles)
        canvas = rdMolDraw2D.MolDraw2DCairo(360, 300)
        rdMolDraw2D.PrepareAndDrawMolecule(canvas, molecule)
        canvas.FinishDrawing()
        with Image.open(io.BytesIO(canvas.GetDrawingText())) as drawing:
            draw_pixels(axes, np.asarray(drawing.convert("RGB")))
    except (ImportError, ValueError, RuntimeError):
        written = "\n".join(textwrap.wrap(_shorten_text(smiles, 160), 28))
        axes.text(0.5, 0.5, written, ha="center", va="center", fontsize=8, transform=axes.transAxes)


def _draw_cloud(axes: Any, points: NDArray[Any]) -> None:
    x, y, z = points[:, :3].T
    axes.scatter(x, y, z, c=y, cmap="viridis", s=5, linewidths=0)
    axes.set_zticks([])
    axes.set_box_aspect([max(float(np.ptp(axis)), 1e-6) for axis in (x, y, z)])


def _draw_series(axes: Axes, values: NDArray[Any]) -> None:
    """A line for each channel over the steps, with gaps; many channels, such as mel bands, as a picture."""
    if values.shape[1] > MAX_LINES:
        draw_pixels(axes, values.T, aspect="auto", origin="lower", cmap="viridis")
        return
    for channel, line in enumerate(values.T):
        axes.plot(line, color=COLOURS[channel % len(COLOURS)], linewidth=0.9, marker="." if len(line) < 30 else None)
    axes.margins(x=0.01)
    axes.set_box_aspect(0.8)


def _shorten_text(text: str, longest: int = MAX_NAME_CHARACTERS) -> str:
    """The text in one line, or its beginning and its end, which distinguishes numbered names."""
    text, end = " ".join(text.split()), min(longest // 3, 12)
    return text if len(text) <= longest else f"{text[: longest - 1 - end]}…{text[-end:]}"
