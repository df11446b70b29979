"""Finds the label of a Pathfinder picture again, from where paddles and markers are and nothing else.

It knows neither which snake a paddle is of nor how snakes are grown: paddles whose extended ends meet are linked.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import numpy as np


@dataclass(frozen=True)
class Traced:
    """What is in a picture."""

    label: int
    chains: list[set[int]]  # paddles, by their place in the list
    joints: np.ndarray  # (P, 2, 2), both ends of every paddle, extended by half a gap


def trace(centres: np.ndarray, angles: np.ndarray, markers: np.ndarray, length: float, margin: int) -> Traced:
    """Follow paddles (P, 2), (P,) from one marker (2, 2) to the other. Raises ValueError where that is ambiguous."""
    half = length / 2 + margin
    along = half * np.stack([np.sin(angles), np.cos(angles)], axis=-1)
    joints = np.stack([centres - along, centres + along], axis=1)
    near = np.linalg.norm(joints[:, None, :, None] - joints[None, :, None, :], axis=-1) < margin
    links = {(a, b) for a, b in combinations(range(len(centres)), 2) if near[a, b].any()}
    degree = near.any((2, 3)).sum(1) - 1
    if degree.max() > 2:
        raise ValueError("a paddle goes on in more than two ways")
    chains: list[set[int]] = []
    for paddle in range(len(centres)):
        touching = [chain for chain in chains if any((min(a, paddle), max(a, paddle)) in links for a in chain)]
        chains = [chain for chain in chains if chain not in touching] + [{paddle}.union(*touching)]
    ends = np.flatnonzero(degree <= 1)
    distance = np.linalg.norm(centres[ends] - markers[:, None], axis=-1)  # (2, ends)
    marked = [int(ends[row.argmin()]) for row in distance]
    if distance.min(1).max() > length / 2 + 1:
        raise ValueError("a marker is not on the end of a chain")
    return Traced(int(any(set(marked) <= chain for chain in chains)), chains, joints)


def find_markers(pixels: np.ndarray, radius: float) -> np.ndarray:
    """The middles (2, 2) of the two whitest discs of a picture, whose parts may lie outside."""
    reach = int(radius)
    side = np.arange(-reach, reach + 1)
    disc = np.hypot(*np.meshgrid(side, side)) <= radius - 0.5
    padded = np.pad(pixels.astype(float), reach, constant_values=255)
    windows = np.lib.stride_tricks.sliding_window_view(padded, disc.shape)
    white = windows[:, :, disc].min(-1) * 1e3 + windows[:, :, disc].mean(-1)
    rows, columns = np.indices(white.shape)
    found = []
    for _ in range(2):
        row, column = np.unravel_index(white.argmax(), white.shape)
        found.append((row, column))
        white[np.hypot(rows - row, columns - column) <= 2 * radius] = -1
    return np.array(found)
