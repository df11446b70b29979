"""Series from tables, arrays and sounds: read, checked, split, scaled and cut into patches."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.io import wavfile
from support import series_files
from support.series_files import folder, table

from sliceformer_lab.data.base import DataModule
from sliceformer_lab.data.series.base import SeriesData, SeriesSplit
from sliceformer_lab.data.series.coding import SeriesCoding, channel_statistics, own_scale, stretched
from sliceformer_lab.data.series.series_csv import SeriesTable
from sliceformer_lab.data.series.sound import log_mel, mel_filters, read_sound, resampled
from sliceformer_lab.data.spec import LoadPlan
from sliceformer_lab.errors import DataError


def split_of(data: DataModule, stage: str = "train") -> SeriesSplit:
    split = data.splits[stage]  # type: ignore[index]
    assert isinstance(split, SeriesSplit)
    return split


def places(data: DataModule, stage: str) -> set[str]:
    split = split_of(data, stage)
    return {split.place(row) for row in range(len(split))}


def test_a_table_of_ucr_is_read_as_it_is(tmp_path: Path) -> None:
    data = table(series_files.ucr(tmp_path), test_file=str(series_files.ucr(tmp_path, 10, "test.txt")))
    assert data.class_names() == ("1", "2") and data.sizes() == {"num_train": 48, "num_val": 12, "num_test": 10}
    split = split_of(data, "test")
    assert split.place(3) == "test.txt, line 4"
    np.testing.assert_allclose(split.stored(3)[:, 0], series_files.wave(3, 1), atol=1e-6)
    assert split.targets_at([0, 3]).tolist() == [0, 1]
    assert "of 10 test" in data.remarks()[0], "the same series are in both files"
    chosen = {choice.option: choice.value for choice in data.choices()}
    assert chosen["data.patch_len"] == 1 and chosen["data.max_len"] == 40 and chosen["data.gaps"] == "interpolate"
    assert data.spec.max_len == 40 and not data.spec.ragged


@pytest.mark.parametrize(
    ("name", "names", "options"),
    [
        ("series.tsv", [], {}),
        ("series.csv", ["label", *(f"t{i}" for i in range(40))], {}),
        ("series.csv", ["label", *map(str, range(40))], {}),  # as pandas names columns
        ("series.csv", ["label", *(f"{i / 8}" for i in range(40))], {}),
        ("series.csv", ["country", *map(str, range(1980, 2020))], {"label_column": "country"}),
    ],
)
def test_separators_and_headers_do_not_change_the_series(
    name: str, names: list[str], options: dict[str, Any], tmp_path: Path
) -> None:
    plain = series_files.ucr(tmp_path)
    rows = [line.split() for line in plain.read_text().splitlines()]
    other, separator = tmp_path / name, "\t" if name.endswith("tsv") else ","
    other.write_text("\n".join(separator.join(row) for row in ([names] if names else []) + rows))
    assert table(other, **options).digests() == table(plain).digests()


def test_labels_in_the_last_column_of_a_table_without_a_header_are_asked_for(tmp_path: Path) -> None:
    rows = [[*map(str, series_files.wave(number, number % 2)), str(number % 2)] for number in range(60)]
    (tmp_path / "ecg.csv").write_text("\n".join(map(",".join, rows)))
    remark = table(tmp_path / "ecg.csv").remarks()[-1]
    assert remark.endswith("holds the numbers to predict; if the labels come last, set data.label_column=41")
    data = table(tmp_path / "ecg.csv", label_column=41)
    assert data.class_names() == ("0", "1") and not [text for text in data.remarks() if "header" in text]


def test_a_new_row_without_its_label_is_an_error_where_the_first_column_holds_labels(tmp_path: Path) -> None:
    data = SeriesTable(LoadPlan(classes=("1", "2")), file="gone", root="gone")
    (tmp_path / "new.csv").write_text("1,.1,.2\n,.1,.2\n.5,.1,.2\n1,a,.2\n1,,\n")
    contents = [new.content for new in data.read_inputs(tmp_path / "new.csv", None)]
    assert list(map(str, contents[3:])) == [
        "2 is 'a', not a number; leave it empty if it is missing",
        "it has no values; delete the row",
    ]
    assert [np.asarray(content).ravel().tolist() for content in contents[:2]] == [pytest.approx([0.1, 0.2])] * 2
    assert isinstance(contents[2], DataError) and "its field 1 is .5, which is no class of" in str(contents[2])
    halves = SeriesTable(LoadPlan(classes=("0.5", "2.0")), file="gone", root="gone")
    (tmp_path / "new.csv").write_text("2.0,.1,.2\n")
    assert not isinstance(next(halves.read_inputs(tmp_path / "new.csv", None)).content, DataError)
    (tmp_path / "new.csv").write_text("0,1,2\n.1,.2,.3\n")
    (named,) = data.read_inputs(tmp_path / "new.csv", None)
    assert np.asarray(named.content).ravel().tolist() == pytest.approx([0.1, 0.2, 0.3])


def test_missing_values_at_the_end_are_none_and_others_are_gaps(tmp_path: Path) -> None:
    rows = [[str(i % 2), *map(str, range(8))] for i in range(20)]
    rows[0][4], rows[1][7:], rows[2][1] = "", ["NaN", "?"], "nan"
    (tmp_path / "gaps.csv").write_text("\n".join(map(",".join, rows)))
    data = table(tmp_path / "gaps.csv", test_fraction=0.0, val_fraction=0.0, patch_len=3)
    split = split_of(data)
    found = {split.place(row).rpartition(" ")[2]: row for row in range(len(split))}
    assert len(split.stored(found["2"])) == 6 and data.spec.ragged and data.spec.max_len == 3
    batch = split.batch([found["1"], found["2"]])
    assert batch.padding is not None and batch.padding.lengths.tolist() == [3, 2]
    steps = batch.inputs[0].reshape(-1, 2)  # value, and whether it is observed
    assert steps[:8, 1].tolist() == [1, 1, 1, 0, 1, 1, 1, 1]
    torch.testing.assert_close(steps[3, 0], (steps[2, 0] + steps[4, 0]) / 2)
    assert not steps[8:].any() and not batch.inputs[1, 2:].any(), "padding is zero"
    assert table(tmp_path / "gaps.csv", gaps="interpolate", test_fraction=0.0, patch_len=3).spec.channels == 3


@pytest.mark.parametrize(("max_len", "own"), [(None, False), (5, False), (5, True)])
def test_statistics_are_those_of_what_is_read_of_the_training_series(
    tmp_path: Path, max_len: int | None, own: bool
) -> None:
    data = folder_of_arrays(tmp_path, max_len=max_len, own_scale=own)
    split = split_of(data)
    read = [split.stored(row)[:max_len] for row in range(len(split))]
    values = np.concatenate([*map(own_scale, read)] if own else read)
    np.testing.assert_allclose(data.coding.mean, np.nanmean(values, axis=0), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(data.coding.std, np.nanstd(values, axis=0), rtol=1e-4)
    mean, std = channel_statistics([np.array([[1.0, np.nan], [3.0, np.nan]])], 2)
    assert mean.tolist() == [2, 0] and std.tolist() == [1, 1]
    coding = SeriesCoding((1.0,), (2.0,), patch_len=4, max_len=10)
    patches = coding.patches(np.arange(12.0)[:, None])
    assert patches.shape == (3, 4) and patches[2].tolist() == [3.5, 4.0, 0, 0]
    assert coding.count(np.array([1, 4, 5, 99])).tolist() == [1, 1, 2, 3]


@pytest.mark.parametrize("unit", [1e-20, 1e6])
@pytest.mark.parametrize("own", [False, True])
def test_a_series_in_another_unit_is_the_same_input(unit: float, own: bool) -> None:
    values = np.random.default_rng(0).normal(2, 3, (20, 8, 2))
    inputs = []
    for scale in (1.0, unit):
        series = (scale * values).astype(np.float32)
        mean, std = channel_statistics(map(own_scale, series) if own else series, 2)
        coding = SeriesCoding(tuple(mean.tolist()), tuple(std.tolist()), patch_len=4, max_len=8, own_scale=own)
        inputs.append(np.stack([coding.steps(one) for one in series]))
    np.testing.assert_allclose(*inputs, atol=1e-5)


@pytest.mark.parametrize("value", [0.0, 0.1, 123456.789])
@pytest.mark.parametrize("count", [10, 1000])
def test_a_channel_of_one_value_has_the_deviation_one(value: float, count: int) -> None:
    series = np.full((24, 1), value, dtype=np.float32)
    mean, std = channel_statistics([series] * count, 1)
    assert mean.tolist() == series[0].tolist() and std.tolist() == [1]


def test_options_are_chosen_from_the_training_series_alone(tmp_path: Path) -> None:
    found = []
    for name, factor in (("short", 1), ("long", 9)):
        for stage, steps in (("train", 30), ("val", 30 * factor), ("test", 30 * factor)):
            for kind in ("a", "b"):
                (tmp_path / name / stage / kind).mkdir(parents=True)
                for number in range(20):
                    values = np.arange(steps, dtype=np.float32)
                    values[3] = np.nan if factor > 1 and stage == "test" else number
                    np.save(tmp_path / name / stage / kind / f"{number}.npy", values)
        data = folder(tmp_path / name)
        found.append([str(choice) for choice in data.choices()])
        assert data.spec.max_len == 30 and data.spec.channels == 1
    assert found[0] == found[1] and "(no values of training series are missing)" in found[0][2]


def folder_of_arrays(root: Path, **options: Any) -> SeriesData:
    series_files.arrays(root / "arrays")
    return folder(root / "arrays", **options)


def test_a_table_of_times_has_channels_gaps_splits_and_numbers(tmp_path: Path) -> None:
    data = table(
        series_files.long_table(tmp_path),
        label_column="level",
        id_column="run",
        time_column="day",
        split_column="part",
    )
    assert data.spec.targets == "numbers" and data.target_names() == ("level",)
    assert data.sizes()["num_test"] == 4
    split = split_of(data)
    found = {split.place(row).partition("(")[2]: row for row in range(len(split))}
    first, second = split.stored(found["r0)"]), split.stored(found["r1)"])
    assert first.shape == (12, 2) and np.isnan(first[5]).all() and not np.isnan(np.delete(first, 5, axis=0)).any()
    assert np.isnan(second[3, 1]) and np.isnan(second).sum() == 1
    torch.testing.assert_close(split.targets_at([found["r1)"]]), torch.tensor([[1 / 7]]), rtol=0, atol=1e-5)


def test_numbers_keep_the_test_series_of_a_file_and_hold_out_others_without_one(tmp_path: Path) -> None:
    for name, count in (("train.csv", 40), ("test.csv", 7)):
        (tmp_path / name).write_text("\n".join(f"{i / 7},{i},{i + 2},{i + 1}" for i in range(count)))
    own = table(tmp_path / "train.csv", test_file=str(tmp_path / "test.csv"))
    assert own.sizes() == {"num_train": 32, "num_val": 8, "num_test": 7}
    assert table(tmp_path / "train.csv").sizes() == {"num_train": 29, "num_val": 7, "num_test": 4}


@pytest.mark.parametrize("last", [90, 5.9], ids=["far away", "off the grid"])
def test_irregular_times_are_an_order_only_and_channels_of_a_row_follow_each_other(last: float, tmp_path: Path) -> None:
    times = {3.7: 2, 1: 0, 1.9: 1, last: 3}
    lines = [f"{i},{time},{value},{i % 2}" for i in range(20) for time, value in times.items()]
    (tmp_path / "long.csv").write_text("\n".join(["id,time,value,label", *lines]))
    data = table(tmp_path / "long.csv", id_column="id", time_column="time")
    assert split_of(data).stored(0)[:, 0].tolist() == [0, 1, 2, 3]
    (tmp_path / "wide.csv").write_text("\n".join(f"{i % 2},1,2,3,10,20,30" for i in range(20)))
    stored = split_of(table(tmp_path / "wide.csv", num_channels=2)).stored(0)
    assert stored.tolist() == [[1, 10], [2, 20], [3, 30]]


def test_arrays_with_more_channels_than_steps_are_remarked(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / "arrays" / name).mkdir(parents=True)
        for number in range(20):
            np.save(tmp_path / "arrays" / name / f"{number}.npy", np.arange(40.0).reshape(2, 20) + number)
    found = "the arrays have 20 channels, but the median series has 2 steps; if"
    assert found in " ".join(folder(tmp_path / "arrays").remarks())
    assert "transpose" not in " ".join(folder_of_arrays(tmp_path / "plain").remarks())


def test_arrays_in_class_folders_and_in_splits(tmp_path: Path) -> None:
    data = folder_of_arrays(tmp_path, stretch=0.3)
    assert data.class_names() == ("fast", "slow") and data.spec.ragged and data.spec.channels == 6
    assert "fast/07.npy" in set().union(*(places(data, stage) for stage in ("train", "val", "test")))
    assert [split_of(data, stage).stretch for stage in ("train", "val", "test")] == [0.3, 0, 0], "none that is scored"
    for stage in ("train", "test"):
        series_files.arrays(tmp_path / "split" / stage)
    own = folder(tmp_path / "split")
    assert own.sizes() == {"num_train": 32, "num_val": 8, "num_test": 40}
    assert all(place.startswith("test/") for place in places(own, "test"))


def test_sounds_are_mixed_resampled_and_framed(tmp_path: Path) -> None:
    series_files.sounds(tmp_path / "tones")
    data = folder(tmp_path / "tones", bands=8)
    assert data.spec.channels // data.spec.patch_len == 8
    assert next(str(choice).partition(" ")[0] for choice in data.choices()) == f"data.rate={series_files.RATE}"
    split = split_of(data)
    peaks = {split.targets_at([row]).item(): int(split.stored(row).mean(axis=0).argmax()) for row in range(len(split))}
    assert peaks[data.class_names().index("low")] < peaks[data.class_names().index("high")]
    raw = folder(tmp_path / "tones", features="raw", rate=1000)
    assert 200 <= len(split_of(raw).stored(0)) <= 300


def test_samples_in_an_array_are_those_of_the_sound_file(tmp_path: Path) -> None:
    series_files.sounds(tmp_path / "tones")
    data = folder(tmp_path / "tones", bands=8, rate=series_files.RATE)
    file = tmp_path / "tones" / "low" / "00.wav"  # mono
    rate, samples = wavfile.read(file)
    assert rate == series_files.RATE and samples.dtype == np.int16
    np.save(tmp_path / "new.npy", samples)
    sound, array = (next(data.read_inputs(path, None)).content for path in (file, tmp_path / "new.npy"))
    np.testing.assert_allclose(data.encode_one(array), data.encode_one(sound), atol=1e-6)
    with pytest.raises(DataError, match="samples of type int64 have no known scale"):
        data.encode_one(samples.astype(np.int64))


def test_samples_of_every_type_have_one_scale(tmp_path: Path) -> None:
    wave = 0.5 * np.sin(np.arange(400) / 9)
    for kind, scale, shift in ((np.uint8, 128, 128), (np.int16, 2**15, 0), (np.int32, 2**31, 0), (np.float32, 1, 0)):
        wavfile.write(tmp_path / "a.wav", 8000, (wave * scale + shift).astype(kind))
        samples, rate = read_sound(tmp_path / "a.wav")
        assert rate == 8000 and samples.dtype == np.float32
        np.testing.assert_allclose(samples, wave, atol=0.01)
    levels = np.array([0, 2**22, -(2**22), 2**23 - 1])  # of 24 bits
    body = b"".join(int(level).to_bytes(3, "little", signed=True) for level in levels)
    head = b"RIFF" + (36 + len(body)).to_bytes(4, "little") + b"WAVEfmt " + (16).to_bytes(4, "little")
    head += b"".join(n.to_bytes(size, "little") for n, size in ((1, 2), (1, 2), (8000, 4), (24000, 4), (3, 2), (24, 2)))
    (tmp_path / "a.wav").write_bytes(head + b"data" + len(body).to_bytes(4, "little") + body)
    np.testing.assert_allclose(read_sound(tmp_path / "a.wav")[0], [0, 0.5, -0.5, 1], atol=1e-6)


def test_a_sound_that_is_cut_is_an_error_and_unknown_chunks_are_none(tmp_path: Path) -> None:
    wavfile.write(tmp_path / "a.wav", 8000, np.arange(1000, dtype=np.int16))
    content = (tmp_path / "a.wav").read_bytes()
    size = (len(content) + 4).to_bytes(4, "little")  # of all behind it
    (tmp_path / "a.wav").write_bytes(content[:4] + size + content[8:] + b"mine" + (4).to_bytes(4, "little") + b"1234")
    assert len(read_sound(tmp_path / "a.wav")[0]) == 1000
    (tmp_path / "a.wav").write_bytes(content[:500])
    with pytest.raises(DataError, match=r"a.wav cannot be read as .wav \(Reached EOF prematurely; .*\); replace it"):
        read_sound(tmp_path / "a.wav")


def test_a_tone_is_in_the_band_of_its_pitch() -> None:
    for rate in (8000, 16000):
        tone = np.sin(2 * np.pi * 1000 * np.arange(rate) / rate).astype(np.float32)
        levels = log_mel(tone, rate, 40)
        corners = 700 * (10 ** (np.linspace(*(2595 * np.log10(1 + np.array([20, rate / 2]) / 700)), 42) / 2595) - 1)
        assert abs(int(levels.mean(axis=0).argmax()) - int(np.abs(corners[1:-1] - 1000).argmin())) <= 1
    assert (mel_filters(8000, 256, 40).sum(axis=1) > 0).all()
    assert abs(len(resampled(np.ones(1000, np.float32), 8000, 3000)) - 375) <= 1


def test_a_stretch_keeps_the_length_and_the_ends_within_the_series() -> None:
    np.random.seed(0)
    values = np.linspace(0, 1, 50, dtype=np.float32)[:, None]
    for _ in range(20):
        found = stretched(values, 0.3)
        assert found.shape == values.shape and found.min() >= 0 and found.max() <= 1
        assert (np.diff(found[:, 0]) >= 0).all() and found[-1, 0] - found[0, 0] >= 0.66
    np.testing.assert_array_equal(stretched(values, 0.0), values)
