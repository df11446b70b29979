"""A figure of the report's page: a chart with a title, a caption and a text alternative."""

from __future__ import annotations

from dataclasses import dataclass

from sliceformer_lab.measures.drawing import Chart


@dataclass(frozen=True, kw_only=True)
class PageFigure(Chart):
    """A chart of one table. Its name, unique in a report, is its anchor too."""

    title: str
    caption: str  # what is plotted, over how many runs, and its limits
    alt: str  # text alternative: the main numbers
    table: str = ""  # the title of its table
