"""A user's text as windows of characters: contiguous parts, targets, vocabulary, bad files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from sliceformer_lab.data.sequences.characters import CharacterText, TextWindows
from sliceformer_lab.data.spec import LoadPlan
from sliceformer_lab.data.splits import STAGES
from sliceformer_lab.errors import DataError

TEXT = "".join(chr(97 + (7 * i * i) % 26) for i in range(800)) + "Z" * 200


def characters(folder: Path, text: str = TEXT, **options: Any) -> CharacterText:
    file = folder / "book.txt"
    file.write_text(text, encoding="utf-8")
    return CharacterText(LoadPlan(), file=str(file), max_len=10, batch_size=4, **options)


def windows(data: CharacterText, stage: str) -> TextWindows:
    data.setup()
    split = data.splits[stage]  # type: ignore[index]
    assert isinstance(split, TextWindows)
    return split


def text_of(data: CharacterText, ids: torch.Tensor) -> str:
    names = data.class_names()
    return "".join(names[i] if i else "?" for i in ids.tolist())


def test_parts_follow_each_other_and_share_no_character(tmp_path: Path) -> None:
    data = characters(tmp_path)
    parts = [data.pieces[stage] for stage in STAGES]
    assert [start for start, _ in parts] == [0, 800, 900]
    assert "".join(map(chr, np.concatenate([points for _, points in parts]))) == TEXT
    assert data.spec.vocab_size == len(set(TEXT[:800])) + 1
    assert (windows(data, "test").batch([0]).target == 0).all(), "training does not have these characters"


def test_targets_are_the_next_characters(tmp_path: Path) -> None:
    data = characters(tmp_path, "abcdefghijklmnopqrst" * 30)
    batch = windows(data, "val").batch([1, 2])
    assert text_of(data, batch.inputs[0]) == "klmnopqrst" and text_of(data, batch.target[0]) == "lmnopqrsta"
    assert windows(data, "val").place(1) == "character 491"


def test_capital_letters_are_no_classes_that_are_written_alike(tmp_path: Path) -> None:
    data = characters(tmp_path, "The cat sat. That hat " * 30)
    data.setup()
    assert data.remarks() == []


def test_training_windows_move_within_their_part_and_are_replayed(tmp_path: Path) -> None:
    data = characters(tmp_path)
    split = windows(data, "train")
    split.pass_seed = 1
    first, again = (split.__getitems__(list(range(len(split)))).inputs for _ in range(2))
    split.pass_seed = 2
    other = split.__getitems__(list(range(len(split)))).inputs
    assert torch.equal(first, again) and not torch.equal(first, other)
    assert all(text_of(data, row) in TEXT[:800] for row in first)


def test_a_text_that_is_too_short_or_not_utf8_is_refused_in_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"the val part has 5 characters, but one example needs data.max_len \+ 1 = 11"):
        characters(tmp_path, "x" * 50).setup()
    data = characters(tmp_path)
    data.origin.write_bytes(b"one\ntwo \xff")
    with pytest.raises(DataError, match="is not UTF-8 in line 2"):
        data.setup()


def test_a_checkpoint_of_other_characters_is_refused(tmp_path: Path) -> None:
    saved = characters(tmp_path, "ab" * 500).state_dict()
    with pytest.raises(DataError, match="has other characters than the text that the checkpoint was trained on"):
        characters(tmp_path, "xy" * 500).load_state_dict(saved)
