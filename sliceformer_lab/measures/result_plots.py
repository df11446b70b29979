"""Pictures of a run's test results: confusion matrix, ROC curves, predicted against true values, worst mistakes."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter
from numpy.typing import NDArray

from sliceformer_lab.measures.plots import COLOURS, save_figure, shorten_path, wrap_title

MAX_CLASSES = 40  # of a confusion matrix; beyond, those in the most errors
WITH_NUMBERS = 20  # classes of a confusion matrix whose cells have room for numbers
MAX_PANELS, MAX_CURVES, MAX_POINTS = 6, 12, 5000
MAX_LINES = 12  # channels of a series that are drawn as lines
TRUE, ANSWERED, MUTED = "#0072B2", "#D55E00", "#59636e"  # colours of the truth, the model's answer, and places
MAX_NAME_CHARACTERS, MAX_TEXT_CHARACTERS = 24, 500  # characters
WRAP, SIDE = 136, 160  # characters of a line of text, pixels of a picture


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
    figure = Figure(figsize=(max(side + 1.2, 4.6), max(side, 4.0)), layout="constrained")
    axes = figure.subplots()
    drawn = axes.imshow(share, cmap="Blues", vmin=0, vmax=1)
    small = 9 if len(chosen) <= WITH_NUMBERS else 7
    turn = 0 if max(map(len, labels)) <= 2 else 90
    axes.set_xticks(range(len(chosen)), labels, rotation=turn, fontsize=small, parse_math=False)
    axes.set_yticks(range(len(chosen)), labels, fontsize=small, parse_math=False)
    axes.set(xlabel="predicted class", ylabel="true class")
    if len(chosen) <= WITH_NUMBERS:
        for (row, column), number in np.ndenumerate(shown):
            if number:
                ink = "white" if share[row, column] > 0.55 else "black"
                axes.text(column, row, f"{number:,}", ha="center", va="center", color=ink, fontsize=8)
    bar = figure.colorbar(drawn, ax=axes, format=PercentFormatter(1), shrink=0.8)
    bar.set_label("share of the true class")
    wrap_title(figure, title)
    save_figure(figure, path)


def plot_roc(targets: NDArray[Any], outputs: NDArray[Any], names: Sequence[str], path: Path, title: str) -> None:
    """Draw a ROC curve with its area for each label of targets (n, T) in 0, 1 or NaN and scores (n, T).

    Labels whose known targets are all equal have none; of more than 12 the others are left out.
    """
    from sklearn.metrics import auc, roc_curve  # slow to import

    figure = Figure(figsize=(8.2, 4.8), layout="compressed")
    axes = figure.subplots()
    axes.plot([0, 1], [0, 1], color="0.6", linewidth=1, linestyle="--")
    areas = []
    for label, name in enumerate(names):
        known = np.isfinite(targets[:, label])
        truth, scores = targets[known, label] > 0.5, outputs[known, label]
        if not truth.any() or truth.all():
            continue
        false, true, _ = roc_curve(truth, scores)
        areas.append(float(auc(false, true)))
        if len(areas) <= MAX_CURVES:
            place = len(areas) - 1
            dashes = "-" if place < len(COLOURS) else "--"
            legend = f"{_shorten_text(name)}: {areas[-1]:.3f} ({int(truth.sum())} of {len(truth)})"
            axes.plot(false, true, dashes, color=COLOURS[place % len(COLOURS)], linewidth=1.4, label=legend)
    axes.set(xlabel="false positive rate", ylabel="true positive rate", xlim=(-0.01, 1.01), ylim=(-0.01, 1.01))
    axes.set_aspect("equal")
    axes.grid(alpha=0.3)
    if areas:
        left_out = f", {MAX_CURVES} of {len(areas)} labels" if len(areas) > MAX_CURVES else ""
        head = f"area under the curve{left_out}\n(positives of known)"
        axes.legend(loc="upper left", bbox_to_anchor=(1.02, 1), title=head, frameon=False, fontsize=9)
    mean = f"; mean area {np.mean(areas):.3f}" if areas else ""
    axes.set_title(f"{title}{mean}", fontsize=11)
    save_figure(figure, path)


def plot_predicted(targets: NDArray[Any], outputs: NDArray[Any], names: Sequence[str], path: Path, title: str) -> None:
    """Draw predicted against true numbers (n, T), a panel for each of the first six targets; NaN is unknown."""
    count = min(targets.shape[1], MAX_PANELS)
    columns = min(count, 3)
    rows = -(-count // columns)
    figure = Figure(figsize=(4.4 * columns, 4.3 * rows + 0.3), layout="compressed")
    grid = figure.subplots(rows, columns, squeeze=False).ravel()
    for axes in grid[count:]:
        axes.remove()
    for axes, target in zip(grid, range(count), strict=False):
        known = np.isfinite(targets[:, target])
        _draw_predicted(axes, targets[known, target].astype(float), outputs[known, target].astype(float), names[target])
    left_out = f"; {count} of {targets.shape[1]} targets" if count < targets.shape[1] else ""
    wrap_title(figure, f"{title}{left_out}")
    save_figure(figure, path)


def _draw_predicted(axes: Axes, true: NDArray[np.float64], predicted: NDArray[np.float64], name: str) -> None:
    if not len(true):
        axes.set_title(f"{_shorten_text(name)}: no known value", parse_math=False, fontsize=10)
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
    axes.set(xlim=ends, ylim=ends, xlabel="true", ylabel="predicted")
    axes.set_aspect("equal")
    axes.legend(frameon=False, fontsize=8, loc="upper left")
    axes.grid(alpha=0.3)
    shown = f" ({len(some):,} of {len(true):,} points)" if len(some) < len(true) else ""
    axes.set_title(f"{_shorten_text(name)}: R² {r2:.3f}, MAE {mae:.3g}{shown}", fontsize=10, parse_math=False)


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
        figure = _as_lines(mistakes, title)
    else:
        figure = _as_grid(mistakes, draw, title, flat=kind != "cloud")
    save_figure(figure, path)


def _as_grid(mistakes: Sequence[Mistake], draw: Callable[[Any, Any], None], title: str, *, flat: bool) -> Figure:
    columns = min(4, len(mistakes))
    rows = -(-len(mistakes) // columns)
    figure = Figure(figsize=(max(3.0 * columns, 6.0), 3.6 * rows + 0.6), layout="compressed")
    for number, mistake in enumerate(mistakes, start=1):
        axes: Any = figure.add_subplot(rows, columns, number, projection=None if flat else "3d")
        draw(axes, mistake.content)
        axes.set_xticks([])
        axes.set_yticks([])
        for spine in axes.spines.values():
            spine.set_color("0.8")
        axes.set_title(shorten_path(mistake.place), fontsize=8, color=MUTED, parse_math=False)
        for height, words, colour in ((-0.04, f"true: {mistake.truth}", TRUE), (-0.13, mistake.answer, ANSWERED)):
            place: dict[str, Any] = {
                "transform": axes.transAxes,
                "ha": "center",
                "va": "top",
                "fontsize": 9,
                "parse_math": False,
            }
            write = axes.text if flat else axes.text2D
            write(0.5, height, _shorten_text(words, 34), color=colour, **place)
    wrap_title(figure, title)
    return figure


def _as_lines(mistakes: Sequence[Mistake], title: str) -> Figure:
    texts = [_wrap_text(mistake.content) for mistake in mistakes]
    lines = sum(text.count("\n") + 1 if text else 0 for text in texts) + 1.9 * len(texts) + 2
    inches = 0.19 * lines
    figure = Figure(figsize=(11, inches))
    step, top = 1 / lines, 1 - 1.8 / lines
    for mistake, text in zip(mistakes, texts, strict=True):
        style: dict[str, Any] = {"fontsize": 9, "va": "top", "parse_math": False}
        figure.text(0.02, top, f"true: {_shorten_text(mistake.truth, 40)}", color=TRUE, weight="bold", **style)
        figure.text(0.30, top, _shorten_text(mistake.answer, 50), color=ANSWERED, weight="bold", **style)
        figure.text(0.98, top, shorten_path(mistake.place, 50), color=MUTED, ha="right", **style)
        figure.text(0.02, top - 1.15 * step, text, linespacing=1.25, **style)
        top -= (1.9 + (text.count("\n") + 1 if text else 0)) * step
    figure.text(0.02, 1 - 0.3 * step, title, fontsize=11, va="top", parse_math=False)
    return figure


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
    axes.imshow(pixels[::step, ::step], cmap="gray", interpolation="nearest", vmin=0, vmax=255)


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
            axes.imshow(np.asarray(drawing.convert("RGB")))
    except (ImportError, ValueError, RuntimeError):
        written = "\n".join(textwrap.wrap(_shorten_text(smiles, 160), 28))
        axes.text(0.5, 0.5, written, ha="center", va="center", fontsize=8, parse_math=False, transform=axes.transAxes)


def _draw_cloud(axes: Any, points: NDArray[Any]) -> None:
    x, y, z = points[:, :3].T
    axes.scatter(x, y, z, c=y, cmap="viridis", s=5, linewidths=0)
    axes.set_zticks([])
    axes.set_box_aspect([max(float(np.ptp(axis)), 1e-6) for axis in (x, y, z)])


def _draw_series(axes: Axes, values: NDArray[Any]) -> None:
    """A line for each channel over the steps, with gaps; many channels, such as mel bands, as a picture."""
    if values.shape[1] > MAX_LINES:
        axes.imshow(values.T, aspect="auto", origin="lower", interpolation="nearest", cmap="viridis")
        return
    for channel, line in enumerate(values.T):
        axes.plot(line, color=COLOURS[channel % len(COLOURS)], linewidth=0.9, marker="." if len(line) < 30 else None)
    axes.margins(x=0.01)
    axes.set_box_aspect(0.8)


def _shorten_text(text: str, longest: int = MAX_NAME_CHARACTERS) -> str:
    """The text in one line, or its beginning and its end, which distinguishes numbered names."""
    text, end = " ".join(text.split()), min(longest // 3, 12)
    return text if len(text) <= longest else f"{text[: longest - 1 - end]}…{text[-end:]}"
