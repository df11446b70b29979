"""Writes the pages and figures that follow from committed results.

usage: python studies/write_pages.py [NAME ...]    all of them (`make docs`), or those of these studies
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path += [str(HERE / "own_data"), str(HERE / "swap")]

import attentions  # noqa: E402
import audit_page  # noqa: E402
import causal_page  # noqa: E402
import claims  # noqa: E402
import dense_page  # noqa: E402
import depth  # noqa: E402
import evidence  # noqa: E402
import experiment_page  # noqa: E402
import goals_page  # noqa: E402
import gpu_kernels  # noqa: E402
import gpu_tiles  # noqa: E402
import growth  # noqa: E402
import int8  # noqa: E402
import leaderboard  # noqa: E402
import linear_rank  # noqa: E402
import own_data_table  # noqa: E402
import pretraining_page  # noqa: E402
import probe_maps  # noqa: E402
import reach_page  # noqa: E402
import reviews_page  # noqa: E402
import swap_page  # noqa: E402
import training_page  # noqa: E402

from sliceformer_lab.runs.files import write_text  # noqa: E402

Page = tuple[Path, Callable[[], str]]  # its file, and its text from the results and what the file says around them


@dataclass(frozen=True)
class Study:
    """What is written from the results of a study."""

    pages: tuple[Page, ...] = ()
    draw: Callable[[], None] | None = None  # its figures


STUDIES = {
    "audit": Study(((audit_page.PAGE, audit_page.page),)),
    "experiments": Study(experiment_page.pages(), experiment_page.draw_all),
    "swap": Study(((swap_page.PAGE, swap_page.page),), swap_page.draw),
    "own_data": Study(((own_data_table.PAGE, own_data_table.page),)),
    "evidence": Study(((evidence.PAGE, evidence.page),)),
    "claims": Study(((claims.PAGE, claims.page), (claims.STUDY_PAGE, claims.study_page)), claims.draw),
    "causal": Study(((causal_page.PAGE, causal_page.page),)),
    "linear_rank": Study(((linear_rank.PAGE, linear_rank.page),)),
    "reach": Study(((reach_page.PAGE, reach_page.page),), reach_page.draw),
    "reviews": Study(((reviews_page.PAGE, reviews_page.page),)),
    "probe_maps": Study(((probe_maps.PAGE, probe_maps.page),), probe_maps.draw),
    "pretraining": Study(((pretraining_page.PAGE, pretraining_page.page),)),
    "dense": Study(((dense_page.PAGE, dense_page.page),), dense_page.draw),
    "int8": Study(((int8.PAGE, int8.page),)),
    "depth": Study(draw=depth.draw),
    "attentions": Study(((attentions.PAGE, attentions.page),), growth.draw),
    "gpu_kernels": Study(((gpu_kernels.PAGE, gpu_kernels.page),)),
    "gpu_tiles": Study(((gpu_tiles.PAGE, gpu_tiles.page),)),
    "goals": Study(((goals_page.PAGE, goals_page.page), (goals_page.SUMMARY, goals_page.summary_page))),
    "training": Study(((training_page.PAGE, training_page.page), (training_page.DETAILS, training_page.details))),
    "leaderboard": Study(((leaderboard.PAGE, leaderboard.page),)),
}


def write_study(study: Study) -> None:
    """Write the pages and figures of a study."""
    for file, page in study.pages:
        write_text(file, page())
    if study.draw is not None:
        study.draw()


if __name__ == "__main__":
    names = sys.argv[1:] or list(STUDIES)
    if unknown := set(names) - set(STUDIES):
        sys.exit(f"no study is called {', '.join(sorted(unknown))}; {', '.join(STUDIES)} are\n{__doc__}")
    for name in names:
        write_study(STUDIES[name])
