"""Writes and reads small sets of series: tables as the UCR archive has them or with one time a row, arrays, sounds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from scipy.io import wavfile
from support.plans import prepared

from sliceformer_lab.data.series.base import SeriesData
from sliceformer_lab.data.series.series_csv import SeriesTable
from sliceformer_lab.data.series.series_folder import SeriesFolder

Array = np.ndarray[Any, np.dtype[np.float64]]
RATE = 4000  # Hz


def wave(number: int, kind: int, steps: int = 40) -> Array:
    """One or two periods and a little noise."""
    noise = np.random.default_rng(number).normal(size=steps) / 8
    return np.sin(2 * np.pi * (kind + 1) * np.arange(steps) / steps) + noise


def ucr(root: Path, count: int = 60, name: str = "series.txt") -> Path:
    """Rows of a class, 1.0 or 2.0, and 40 values between spaces."""
    root.mkdir(parents=True, exist_ok=True)
    rows = [" ".join(f"  {value:.7e}" for value in [1.0 + i % 2, *wave(i, i % 2)]) for i in range(count)]
    (root / name).write_text("\n".join(rows) + "\n")
    return root / name


def long_table(root: Path, count: int = 24) -> Path:
    """Series of two channels and 12 to 14 times with a number each; every third series lacks one time."""
    root.mkdir(parents=True, exist_ok=True)
    lines = ["day,run,a,b,level,part"]
    for i in range(count):
        for time in range(12 + i % 3):
            if not (i % 3 == 0 and time == 5):
                part = "test" if i % 6 == 5 else "train"
                b = "" if (i, time) == (1, 3) else f"{i + time / 100:.4f}"
                lines.append(f"2024-05-{time + 1:02},r{i},{wave(i, 0)[time]:.4f},{b},{i / 7:.5f},{part}")
    (root / "long.csv").write_text("\n".join(lines) + "\n")
    return root / "long.csv"


def arrays(root: Path) -> None:
    """Two classes of arrays (30 to 40 steps, 3 channels), one value of them missing."""
    for kind, name in enumerate(("slow", "fast")):
        (root / name).mkdir(parents=True)
        for i in range(20):
            values = np.stack([wave(3 * i + channel, kind, 30 + i % 11) for channel in range(3)], axis=1)
            if i == 0:
                values[3, 1] = np.nan
            np.save(root / name / f"{i:02}.npy", values.astype(np.float32))


def sounds(root: Path) -> None:
    """Two classes of tones of 0.2 to 0.3 seconds, 16 bits, mono and stereo."""
    for kind, name in enumerate(("low", "high")):
        (root / name).mkdir(parents=True)
        for i in range(15):
            times = np.arange(RATE * (20 + i % 10) // 100) / RATE
            samples = (8000 * np.sin(2 * np.pi * 300 * (1 + 2 * kind) * times)).astype(np.int16)
            wavfile.write(root / name / f"{i:02}.wav", RATE, np.stack([samples] * 2, axis=1) if i % 2 else samples)


def table(file: Path, **options: Any) -> SeriesData:
    """The series of a table, ready."""
    return prepared(SeriesTable(file=str(file), root=f"{file.parent}_cache", **options))


def folder(root: Path, **options: Any) -> SeriesData:
    """The series of a folder, ready."""
    return prepared(SeriesFolder(root=str(root), cache=f"{root}_cache", processes=1, **options))
