"""Pairs of documents: read from files in the official format, encoded by one encoder in one pass, refused if wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support import official_files
from support.plans import prepared, run, small_task
from support.runs import small_config
from torch.testing import assert_close

from sliceformer_lab.data.sequences.document_pairs import LRARetrieval, PairSplit
from sliceformer_lab.errors import DataError
from sliceformer_lab.measures import plots
from sliceformer_lab.tasks.retrieval import Retrieval
from sliceformer_lab.training.saved.saved_run import load_run


@pytest.fixture
def root(tmp_path: Path) -> Path:
    official_files.aan_pairs(tmp_path)
    return tmp_path


def pairs(root: Path, **options: Any) -> LRARetrieval:
    return prepared(LRARetrieval(root=str(root), batch_size=4, eval_batch_size=4, **options))


def row(root: Path, number: int) -> tuple[int, list[bytes]]:
    """Label and texts of a training row, read without our reader."""
    fields = (root / "new_aan_pairs.train.tsv").read_bytes().split(b"\n")[number].split(b"\t")
    return int(float(fields[0])), fields[3:]


def model(root: Path, *words: str) -> Retrieval:
    task: Retrieval = small_task("task=lra_retrieval", *words, data=pairs(root, max_len=400).spec)
    return task


def test_rows_of_a_batch_are_the_first_documents_and_then_the_second(root: Path) -> None:
    data = pairs(root)
    split = data.splits["train"]
    assert isinstance(split, PairSplit)
    size = len(split)
    batch = split.batch(list(range(size)))
    assert batch.inputs.shape[0] == 2 * size and len(batch) == size and batch.padding is not None
    known = [row(root, int(place)) for place in split.rows]
    assert len(set(split.contents())) == len({tuple(texts) for _, texts in known})
    for i, (label, texts) in enumerate(known):
        assert batch.target[i] == label
        for offset, text in zip((0, size), texts, strict=True):
            ids = batch.inputs[i + offset]
            assert bytes((ids[ids > 0] - 1).tolist()) == text
            assert batch.padding.lengths[i + offset] == len(text)


def test_documents_are_cut_to_max_len_and_batched_by_the_longer_one(root: Path) -> None:
    split = pairs(root, max_len=50).splits["train"]
    assert isinstance(split, PairSplit)
    longer = [max(map(len, row(root, int(place))[1])) for place in split.rows]
    assert split.lengths().tolist() == np.minimum(longer, 50).tolist()
    assert split.num_truncated() == sum(length > 50 for length in longer) > 0
    assert split.batch([0, 1, 2]).inputs.shape[1] == 50


def test_at_most_ten_thousand_characters_of_a_document_are_read(root: Path) -> None:
    path = root / "new_aan_pairs.test.tsv"
    path.write_text("1.0\ta\tb\t" + "é" * 20_000 + "\t" + "b" * 20_000 + "\n", encoding="utf-8")
    padding = pairs(root, max_len=30_000).splits["test"].batch([0]).padding
    assert padding is not None and padding.lengths.tolist() == [20_000, 10_000]


def test_towers_share_the_encoder_and_see_one_document_each(root: Path) -> None:
    task, batch = model(root), pairs(root).splits["train"].batch([0, 5, 7, 9])
    with torch.no_grad():
        logits = task(batch)
        vectors = []
        for ids in batch.inputs:
            alone = ids[ids > 0][None]
            vectors.append(task.pool(task.encoder(task.embedding(alone)))[0])
        expected = torch.stack([task.head(torch.cat([vectors[i], vectors[i + 4]])) for i in range(4)])
    assert_close(logits, expected, rtol=1e-5, atol=1e-5)


def complaint(root: Path) -> str:
    with pytest.raises(DataError) as caught:
        pairs(root)
    message = str(caught.value)
    assert "\n" not in message
    return message


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (b"1.0\ta\tb\tonly one text", "has 4 columns separated by tabs, expected 5"),
        (b"2.0\ta\tb\tone\ttwo", "the label is '2.0', expected"),
        (b"1.0\ta\tb\t\ttwo", "one of the texts is empty"),
    ],
)
def test_wrong_row_is_reported_with_file_and_line(root: Path, line: bytes, expected: str) -> None:
    path = root / "new_aan_pairs.eval.tsv"
    path.write_bytes(path.read_bytes() + line + b"\n")
    message = complaint(root)
    assert f"{path}, line 11: {expected}" in message
    assert not [p for p in root.glob("pairs-*") if not p.name.endswith(".unfinished")]
    path.write_text("")
    assert "new_aan_pairs.eval.tsv has no pairs" in complaint(root)


def test_a_run_trains_scores_and_measures_pairs(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plots, "plot_spectra", lambda *_: None)  # drawing takes longer than all else
    small = ("encoder.dim=16", "encoder.mlp_dim=16", "data.max_len=64", f"data.root={root}", "attention=csp")
    probe = ("callbacks=default", "callbacks.spectrum.num_samples=3", "optim.epochs=1", "optim.warmup_steps=0")
    run(small_config("task=lra_retrieval", *small, *probe), tmp_path / "run")
    record = load_run(tmp_path / "run")
    assert record.summary["status"] == "ok" and record.summary["protocol"]["sequence_length"] == 64
    assert sorted(record.predictions["test_ids"].tolist()) == list(range(10))
    assert record.predictions["test_logits"].shape == (10, 2)
    with np.load(tmp_path / "run" / "spectrum.npz") as spectrum:
        assert spectrum["sample_ids"].tolist() == [0, 1, 2, 0, 1, 2] and len(spectrum["num_tokens"]) == 6
        assert "first 3 validation samples" in str(spectrum["note"])
