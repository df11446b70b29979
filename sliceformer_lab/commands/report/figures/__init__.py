"""The report's figures, for the HTML page and for papers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sliceformer_lab.commands.report.figures.curves import learning_curves
from sliceformer_lab.commands.report.figures.plot_rows import PageFigure, plot_tables
from sliceformer_lab.commands.report.figures.scores import score_figures
from sliceformer_lab.commands.report.figures.spectra import spectral_figures
from sliceformer_lab.commands.report.table_cells import Section

KINDS = (score_figures, learning_curves, spectral_figures)


def figures(sections: Sequence[Section]) -> list[PageFigure]:
    """All figures of all tables; kinds without data are left out."""
    return [
        replace(figure, table=plotted.title)
        for plotted in plot_tables(sections)
        for kind in KINDS
        for figure in kind(plotted)
    ]
