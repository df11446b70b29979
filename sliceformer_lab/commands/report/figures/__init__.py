"""The report's figures: each table's runs as Vega-Lite, for the page and for papers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sliceformer_lab.commands.report.figures.curves import learning_curves
from sliceformer_lab.commands.report.figures.figure import Figure
from sliceformer_lab.commands.report.figures.figure_files import write_figures
from sliceformer_lab.commands.report.figures.line_rows import subjects
from sliceformer_lab.commands.report.figures.scores import score_figures
from sliceformer_lab.commands.report.figures.spectra import spectral_figures
from sliceformer_lab.commands.report.tables import Section

__all__ = ["Figure", "figures", "write_figures"]

KINDS = (score_figures, learning_curves, spectral_figures)


def figures(sections: Sequence[Section]) -> list[Figure]:
    """Every figure of every table that has something to show."""
    return [
        replace(figure, table=subject.title)
        for subject in subjects(sections)
        for kind in KINDS
        for figure in kind(subject)
    ]
