"""The tables on the rank of linear attention are those of the committed runs."""

from __future__ import annotations

from pathlib import Path

import linear_rank
import numpy as np
import pytest


def test_ranks_are_means_over_layers_of_the_output_before_and_after_training(tmp_path: Path) -> None:
    places, forms = ["input", "output"], ["raw", "mean_removed"]
    rank, cosine = np.zeros((3, 2, 2, 2)), np.zeros((3, 2, 2, 2))  # epochs, layers, places, forms
    rank[0, :, 1, 1], rank[1, :, 1, 1], rank[2, :, 1, 1] = (2.0, 4.0), (90.0, 90.0), (5.0, 6.0)
    cosine[0, :, 1, 0], cosine[2, :, 1, 0] = (0.5, 0.7), (0.1, 0.2)
    file = tmp_path / "spectrum.npz"
    np.savez(file, places=places, forms=forms, stable_rank_mean=rank, cosine_mean=cosine)
    wanted = {"rank_untrained": 3.0, "rank_trained": 5.5, "cosine_untrained": 0.6, "cosine_trained": 0.15}
    assert linear_rank.ranks(file) == pytest.approx(wanted)
