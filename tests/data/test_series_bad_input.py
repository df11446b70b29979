"""Bad tables, arrays and sounds of series end with one clear sentence."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import series_files
from support.series_files import folder, table

from sliceformer_lab.data.series.base import SeriesData
from sliceformer_lab.data.series.series_csv import SeriesTable
from sliceformer_lab.errors import DataError


def write(text: str, **options: Any) -> Callable[[Path], SeriesData]:
    def build(root: Path) -> SeriesData:
        (root / "bad.csv").write_text(text)
        return table(root / "bad.csv", **options)

    return build


def spoiled(change: Callable[[Path], object]) -> Callable[[Path], SeriesData]:
    def build(root: Path) -> SeriesData:
        series_files.arrays(root / "arrays")
        change(root / "arrays" / "fast" / "03.npy")
        return folder(root / "arrays")

    return build


def spoiled_sound(change: Callable[[Path], object]) -> Callable[[Path], SeriesData]:
    def build(root: Path) -> SeriesData:
        series_files.sounds(root / "tones")
        change(root / "tones" / "high" / "03.wav")
        return folder(root / "tones")

    return build


ROWS = "1,0.5,0.25\n2,0.5,0.75\n"
LONG = "id,time,value,label\na,1,2,x\na,1,3,x\nb,1,2,y\n"
TIMES = {"id_column": "id", "time_column": "time"}
NUMBERS = {"label_column": "y", "kind": "regression"}
FAULTS: dict[str, tuple[Callable[[Path], SeriesData], str]] = {
    "ragged row": (write(ROWS + "1,0.5\n"), r"bad.csv, line 3 has 2 fields, but line 1 has 3 columns"),
    "a column of words": (
        write("label,a,b,site\n1,0.5,0.25,north\n2,0.5,0.75,south\n"),
        r"site is 'north', not a number; .*; if site holds no values, name the others by data.value_columns",
    ),
    "infinity": (write(ROWS + "1,0.5,inf\n"), r"bad.csv, line 3: 3 is inf, beyond the largest number"),
    "no values": (write(ROWS + "1,,nan\n"), r"bad.csv, line 3 has no values; delete the row"),
    "no label": (write(ROWS + ",0.5,0.1\n"), r"bad.csv, line 3: 1 is '', expected a class or a number"),
    "one class": (
        write("1,0.5,0.25\n1,0.5,0.75\n"),
        r"all other training series have the class '1'; at least two",
    ),
    "no column": (write("kind,a,b\n1,2,3\n"), r"no column 'label'; data.label_column can be one of kind, a, b"),
    "a number to learn": (
        write("y,a,b\n0.25,1,2\n1_0,1,2\n", **NUMBERS),
        r"line 3: y is '1_0', not a number; .*, or set data.kind=classification",
    ),
    "a time twice": (write(LONG, **TIMES), r"line 2 \(a\) has the time 1 twice; delete one"),
    "two labels": (write(LONG.replace("a,1,3,x", "a,2,3,y"), **TIMES), r"line 3: a has the label 'y', but 'x' before"),
    "no time": (write(LONG.replace("a,1,3", "a,1_0,3"), **TIMES), r"line 3: time is '1_0', expected a number"),
    "no finite time": (write(LONG.replace("a,1,3", "a,inf,3"), **TIMES), r"line 3: time is 'inf', expected a number"),
    "no id": (write(LONG.replace("a,1,3", ",1,3"), **TIMES), r"line 3: id is '', expected the id of a series; add it"),
    "other channels": (
        spoiled(lambda file: np.save(file, np.zeros((9, 2)))),
        r"fast/03.npy has 2 channels, but fast/00.npy has 3",
    ),
    "words in an array": (
        spoiled(lambda file: np.save(file, np.array(["a"]))),
        r"03.npy is <U1 \(1,\), not a series: numbers of \(steps,\) or \(steps, channels\)",
    ),
    "no array": (spoiled(lambda file: file.write_bytes(b"no")), r"03.npy cannot be read as .npy"),
    "a constant beyond 32 bits": (
        spoiled(lambda file: [np.save(one, np.full((4, 3), 1e39)) for one in file.parents[1].glob("*/*.npy")]),
        r"infinite value in step 1; correct it, or write NaN",
    ),
    "no sound": (spoiled_sound(lambda file: file.write_bytes(b"RIFFno")), r"high/03.wav cannot be read as .wav"),
    "both": (
        spoiled_sound(lambda file: np.save(file.with_name("x.npy"), np.zeros(4))),
        r"holds series and sounds \(.*npy, .*wav\); keep one kind",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_bad_series_are_one_clear_sentence(name: str, tmp_path: Path) -> None:
    build, complaint = FAULTS[name]
    with pytest.raises(DataError, match=complaint) as caught:
        build(tmp_path)
    assert "\n" not in str(caught.value)


def test_a_time_without_an_id_is_refused() -> None:
    with pytest.raises(ValueError, match="needs id_column"):
        SeriesTable(file="a.csv", root="b", time_column="time")


def test_a_channel_that_32_bits_would_round_visibly_is_refused_and_a_constant_one_is_not(tmp_path: Path) -> None:
    def seconds(name: str, step: float) -> Path:
        for number in range(12):
            place = tmp_path / name / "ab"[number % 2]
            place.mkdir(parents=True, exist_ok=True)
            times = 1_700_000_021 + step * (number + np.arange(20.0))
            np.save(place / f"{number}.npy", np.stack([np.sin(times), times], axis=1))
        return tmp_path / name

    with pytest.raises(DataError, match=r"channel 2 has values from 1700000021 to .* subtract an offset"):
        folder(seconds("minutes", 60.0))
    assert folder(seconds("months", 1e6)).sizes()["num_test"] and folder(seconds("constant", 0.0)).sizes()["num_test"]
