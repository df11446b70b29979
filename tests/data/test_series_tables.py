"""Tables of series: which columns hold values, in every table of a run, and when the values are."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import series_files

from sliceformer_lab.data.series.base import SeriesData, SeriesSplit
from sliceformer_lab.data.series.series_csv import SeriesTable
from sliceformer_lab.data.series.times import commonest_step, in_time
from sliceformer_lab.data.spec import LoadPlan
from sliceformer_lab.data.splits import Stage
from sliceformer_lab.errors import DataError


def table(file: Path, text: str, **options: Any) -> SeriesData:
    """The data in a table with this text, all of them training series unless the options say otherwise."""
    file.write_text(text)
    return series_files.table(file, **{"test_fraction": 0.0, "val_fraction": 0.0} | options)


def values(data: SeriesData, stage: Stage = "train") -> dict[str, list[Any]]:
    """The values of each series by its place: numbers of one channel, or lists of several."""
    split = data.splits[stage]
    assert isinstance(split, SeriesSplit)
    found = {split.place(row): split.stored(row) for row in range(len(split))}
    return {place: (one[:, 0] if one.shape[1] == 1 else one).tolist() for place, one in sorted(found.items())}


def predicted(data: SeriesData, new: Path, text: str) -> list[Any]:
    """The values of new series, or their errors, that a trained model reads from its folder."""
    folder = new.parent / "run"
    folder.mkdir(exist_ok=True)
    data.save_encoder(folder)
    new.write_text(text)
    options = {name: getattr(data, name) for name in ("label_column", "id_column", "time_column", "value_columns")}
    saved = SeriesTable(LoadPlan(run_folder=folder), file="gone", root="gone", **options)
    contents = [one.content for one in saved.read_inputs(new, None)]
    return [one.tolist() if isinstance(one, np.ndarray) else str(one) for one in contents]


def line(**fields: Any) -> str:
    return json.dumps(fields) + "\n"


@pytest.mark.parametrize("name", ["", "Unnamed: 0"])
def test_a_column_without_a_name_is_no_series(name: str, tmp_path: Path) -> None:
    rows = f"{name},label,0,1\n0,a,.1,.2\n1,b,.3,.4\n"
    with pytest.raises(DataError, match=r"column 1 has no name.*index=False.*data.value_columns"):
        table(tmp_path / "a.csv", rows)
    assert list(values(table(tmp_path / "a.csv", rows, value_columns=(0, 1))).values()) == [
        pytest.approx([0.1, 0.2]),
        pytest.approx([0.3, 0.4]),
    ]
    with pytest.raises(DataError, match="column 1 has no name"):
        table(tmp_path / "a.csv", f"{name},id,label,x\n0,p,a,1\n1,q,b,2\n", id_column="id")


def test_values_are_known_by_name_in_every_row(tmp_path: Path) -> None:
    rows = line(label="a", t1=1, t2=2, t3=3) + line(t3=3, label="b", t1=1, t2=2) + line(label="b", t1=1, t3=3)
    found = list(values(table(tmp_path / "a.jsonl", rows)).values())
    assert found[:2] == [[1, 2, 3]] * 2 and np.isnan(found[2][1]) and found[2][::2] == [1, 3]
    with pytest.raises(DataError, match=r"line 4 has a column 't4', which the first row of the training table lacks"):
        table(tmp_path / "a.jsonl", rows + line(label="a", t1=1, t4=4))


ROWS = "label,a,b,c\nx,1,2,3\ny,3,2,1\n"


def test_the_order_of_named_columns_means_nothing_in_other_tables(tmp_path: Path) -> None:
    (tmp_path / "test.csv").write_text("c,b,a,label\n3,2,1,x\n")
    data = table(tmp_path / "a.csv", ROWS, test_file=str(tmp_path / "test.csv"))
    assert list(values(data, "test").values()) == [[1, 2, 3]]
    assert predicted(data, tmp_path / "new.csv", "c,b,a\n3,2,1\n") == [[[1], [2], [3]]]
    assert predicted(data, tmp_path / "new.csv", "b,a\n2,1\n") == [[[1], [2]]], "the end of the series is missing"
    (error,) = predicted(data, tmp_path / "new.csv", "a,b,c,age\n1,2,3,44\n")
    assert error.startswith("it has a column 'age', which the first row of the training table lacks")
    channels = table(tmp_path / "b.csv", "id,label,a,b\np,x,1,2\nq,y,3,4\n", id_column="id")
    assert predicted(channels, tmp_path / "new.csv", "b,a,id\n6,5,r\n") == [[[5, 6]]], "channels, too"
    (tmp_path / "test.csv").write_text("label,a,b,c,age\nx,1,2,3,44\n")
    with pytest.raises(DataError, match=r"test.csv, line 2 has a column 'age'"):
        table(tmp_path / "a.csv", ROWS, test_file=str(tmp_path / "test.csv"))


def test_a_table_without_a_channel_or_a_time_in_the_middle_is_refused(tmp_path: Path) -> None:
    data = table(tmp_path / "a.csv", ROWS)
    with pytest.raises(DataError, match=r"new.csv has no column 'b', which the training table has"):
        predicted(data, tmp_path / "new.csv", "label,a,c\nx,1,3\n")
    times = "id,label,x,y\n" + "".join(f"{i},{'ab'[i % 2]},1,{i}\n" for i in range(6))
    (tmp_path / "test.csv").write_text("id,label,x\n7,a,1\n")
    with pytest.raises(DataError, match=r"test.csv has no column 'y', which the training table has"):
        table(tmp_path / "b.csv", times, id_column="id", test_file=str(tmp_path / "test.csv"))


def test_a_new_table_has_a_header_if_the_training_table_has_one(tmp_path: Path) -> None:
    data = table(tmp_path / "a.csv", "label,400.5,420.5\nx,1,2\ny,3,4\n")
    assert predicted(data, tmp_path / "new.csv", "400.5,420.5\n5,6\n") == [[[5], [6]]]
    plain = table(tmp_path / "plain.csv", "x,1.5,2,3\ny,4,5,7\n")
    assert predicted(plain, tmp_path / "new.csv", "1,2,3,4\n") == [[[2], [3], [4]]]
    (error,) = predicted(plain, tmp_path / "new.csv", "2,3,4\n")
    assert error.startswith("it has 3 columns, but the training table has 4; without a header")


def test_a_checkpoint_keeps_its_scale_and_refuses_columns_in_another_order_and_other_channels(tmp_path: Path) -> None:
    trained = table(tmp_path / "a.csv", ROWS)
    again = table(tmp_path / "again.csv", ROWS.replace("1", "9"))
    again.load_state_dict(again.state_dict() | {"coding": trained.state_dict()["coding"]})
    assert [split.coding for split in again.splits.values()] == [trained.coding] * 3, "the scale of the training"
    other = table(tmp_path / "b.csv", "label,c,b,a\nx,3,2,1\ny,1,2,3\n")
    state = other.state_dict() | {"coding": trained.state_dict()["coding"]}
    with pytest.raises(DataError, match=r"b.csv has other columns of values than .* in series.json of the run"):
        other.load_state_dict(state)
    channels = table(tmp_path / "c.csv", "id,label,a,b\np,x,1,2\nq,y,3,4\n", id_column="id")
    with pytest.raises(DataError, match="its series have 2 channels, and the model was trained on 1"):
        channels.load_state_dict(trained.state_dict())


def hours(ids: str, step: int, count: int = 6) -> str:
    rows = [f"{name},{time},a,{time}" for name in ids for time in range(0, step * count, step)]
    return "\n".join(rows) + "\n"


TIMES = {"id_column": "id", "time_column": "time"}
NAMES = "id,time,label,x\n"


def test_the_time_step_of_the_training_table_holds_in_all_tables(tmp_path: Path) -> None:
    (tmp_path / "test.csv").write_text(NAMES + hours("z", 1))
    trained = NAMES + hours("p", 2) + "q,0,b,0\n"
    data = table(tmp_path / "a.csv", trained, test_file=str(tmp_path / "test.csv"), **TIMES)
    assert values(data)["a.csv, line 2 (p)"] == [0, 2, 4, 6, 8, 10]
    assert values(data, "test") == {"test.csv, line 2 (z)": [0, 1, 2, 3, 4, 5]}
    alone = predicted(data, tmp_path / "new.csv", "id,time,x\nr,0,0\nr,4,4\nr,8,8\n")
    assert [number for (number,) in alone[0][::2]] == [0, 4, 8] and np.isnan(alone[0][1::2]).all()
    both = predicted(data, tmp_path / "new.csv", "id,time,x\nr,0,0\nr,4,4\nr,8,8\n" + "s,0,0\ns,1,1\ns,2,2\ns,3,3\n")
    np.testing.assert_array_equal(both[0], alone[0])


def test_a_run_scored_on_another_table_reads_its_times_by_the_step_of_training(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    table(tmp_path / "a.csv", NAMES + hours("p", 1) + "q,0,b,0\n", **TIMES).save_encoder(tmp_path / "run")
    text = NAMES + hours("r", 2) + "s,0,b,0\n"
    alone = table(tmp_path / "b.csv", text, **TIMES)
    scored = table(tmp_path / "b.csv", text, plan=LoadPlan(run_folder=tmp_path / "run"), **TIMES)
    assert values(alone)["b.csv, line 2 (r)"] == [0, 2, 4, 6, 8, 10]
    found = values(scored)["b.csv, line 2 (r)"]
    assert found[::2] == [0, 2, 4, 6, 8, 10] and np.isnan(found[1::2]).all()


@pytest.mark.parametrize(("start", "rate"), [(1.7e9, 1e3), (0, 1e12)], ids=["Unix time", "picoseconds"])
def test_gaps_are_found_in_every_unit_and_beside_the_rounding_of_a_clock(start: float, rate: float) -> None:
    times = [start + i / rate for i in range(5000) if i not in (100, 101)]
    found = in_time("a.csv", times, [np.zeros(1)] * len(times), commonest_step([times]) or 0.0)
    assert np.flatnonzero(np.isnan(found)).tolist() == [100, 101]


def test_dates_without_a_zone_do_not_depend_on_the_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Europe/Berlin")  # whose clocks go forward at 2 o'clock
    time.tzset()
    rows = "".join(f"p,2024-03-31T{hour:02}:00,a,{hour}\n" for hour in range(6)) + "q,2024-03-31T00:00:00+01:00,b,0\n"
    try:
        assert values(table(tmp_path / "a.csv", NAMES + rows, **TIMES))["a.csv, line 2 (p)"] == list(range(6))
    finally:
        monkeypatch.undo()
        time.tzset()


def test_eight_digits_are_days_if_all_times_are_and_else_numbers(tmp_path: Path) -> None:
    days = (20240130, 20240131, 20240202)
    rows = NAMES + "".join(f"{name},{day},{name},{day % 100}\n" for name in "ab" for day in days)
    data = table(tmp_path / "a.csv", rows, **TIMES)
    found = values(data)["a.csv, line 2 (a)"]
    assert len(found) == 4 and np.isnan(found[2])
    (new,) = predicted(data, tmp_path / "new.csv", "id,time,x\nc,20240228,1\nc,20240301,2\n")
    assert len(new) == 3 and np.isnan(new[1][0]), "2024 is a leap year"
    numbers = table(tmp_path / "b.csv", rows + "c,20249999,a,1\n", **TIMES)
    assert len(values(numbers)["b.csv, line 2 (a)"]) == 3


def test_a_list_is_no_value(tmp_path: Path) -> None:
    for columns in ({"x": [1, 2, 3]}, {"x": [1, 2], "y": [3, 4]}):
        with pytest.raises(DataError, match=r"line 1: x is a list; give each value a column of its own"):
            table(tmp_path / "a.jsonl", line(label="a", **columns) + line(label="b", **columns))


def test_a_number_that_is_also_a_name_chooses_no_column(tmp_path: Path) -> None:
    rows = "y,0,1,2,3\n1,.1,.2,.3,.4\n2,.1,.2,.3,.4\n"
    with pytest.raises(DataError, match=r"label_column=1 is the number of 'y' and the name of column 3; .*'1'"):
        table(tmp_path / "a.csv", rows, label_column=1)
    assert len(values(table(tmp_path / "a.csv", rows, label_column="y"))) == 2
    assert len(values(table(tmp_path / "a.csv", rows, label_column="1", kind="regression"))) == 2
    assert len(values(table(tmp_path / "a.csv", "1,2,3\nx,.1,.2\ny,.2,.1\n", label_column=1))) == 2


def labelled(file: Path, *labels: str) -> SeriesData:
    return table(file, "label,a,b\n" + "".join(f"{label},1,2\n" for label in labels))


def test_whole_numbers_are_one_class_only_if_they_are_equal(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    large = ("9007199254740992", "9007199254740993")  # one float
    assert labelled(file, *large).class_names() == large
    assert labelled(file, "1_0", "10").class_names() == ("10", "1_0"), "a word is as it is written"
    merged = labelled(file, "01", "1", "1.0e0", "2")
    assert merged.class_names() == ("1", "2")
    assert any(text.startswith("the labels 01, 1, 1.0e0 are one number and so one class") for text in merged.remarks())
    assert not any("one number" in text for text in labelled(file, "1.0000e+00", "2.0000e+00").remarks())
