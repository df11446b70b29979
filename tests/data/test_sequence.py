"""Sequences of different lengths: stored, bucketed, padded, shared among processes, resumed, and classified."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import time
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from support import official_files
from support.plans import small_task
from support.task_modules import ready
from torch.testing import assert_close
from torch.utils.data.dataloader import _MultiProcessingDataLoaderIter

from sliceformer_lab.batch import Batch, Padding
from sliceformer_lab.data.loader import PassSampler
from sliceformer_lab.data.sequences.base import SequenceSplit, SequenceStore
from sliceformer_lab.data.sequences.imdb import LRAText
from sliceformer_lab.data.spec import DataSpec, LoadPlan
from sliceformer_lab.errors import DataError
from sliceformer_lab.tasks.sequence import SequenceClassification

LENGTHS = (5, 1, 7, 3, 7, 2)
MAX_LEN = 24
IDS = DataSpec(name="ids", num_classes=3, max_len=MAX_LEN, vocab_size=20, ragged=True)


def sequences(lengths: tuple[int, ...] = LENGTHS) -> list[np.ndarray]:
    """Ids that differ everywhere: row i begins with 1 + 10 i."""
    return [np.arange(1 + 10 * i, 1 + 10 * i + length, dtype=np.uint8) for i, length in enumerate(lengths)]


@pytest.fixture
def store(tmp_path: Path) -> SequenceStore:
    SequenceStore.write(tmp_path, "train", sequences(), np.arange(len(LENGTHS)))
    return SequenceStore.open(tmp_path, "train")


def split(store: SequenceStore, **options: Any) -> SequenceSplit:
    return SequenceSplit(store, rows=np.arange(len(store)), **({"max_len": 6} | options))


@pytest.fixture(scope="module")
def reviews(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("reviews")
    official_files.aclimdb(root)
    return root


def lra_text(root: Path, **options: Any) -> LRAText:
    """24 reviews of 1 to 24 words of each class, to train and to test."""
    return cast(LRAText, ready("lra_text", root, **({"batch_size": 4, "val_fraction": 0.25} | options)))


def widths(data: LRAText) -> list[tuple[list[int], int]]:
    """The ids and the padded length of every training batch."""
    return [(batch.ids.tolist(), batch.inputs.shape[1]) for batch in data.train_dataloader()]


# the store


def test_workers_that_are_not_forked_map_the_same_files(tmp_path: Path) -> None:
    SequenceStore.write(tmp_path, "train", [np.zeros(100_000, np.uint8)], [0])
    np.save(tmp_path / "train_digests.npy", np.full((1, 32), 7, np.uint8))
    sent = pickle.dumps(split(SequenceStore.open(tmp_path, "train")))
    assert len(sent) < 5_000
    received = pickle.loads(sent)
    assert isinstance(received.store.tokens, np.memmap) and len(received.store[0]) == 100_000
    assert list(received.contents()) == [bytes([7] * 32)]
    in_memory = SequenceStore(np.arange(3), np.array([0, 3]), np.array([1]))
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(in_memory)).tokens, in_memory.tokens)


# batches


def test_padding_is_the_shortest_suffix_of_zeros(store: SequenceStore) -> None:
    batch = split(store).batch([3, 0, 1])
    assert batch.inputs.tolist() == [[31, 32, 33, 0, 0], [1, 2, 3, 4, 5], [11, 0, 0, 0, 0]]
    assert batch.inputs.dtype == torch.int64 and batch.target.tolist() == [3, 0, 1] == batch.ids.tolist()
    assert batch.padding is not None and batch.padding.lengths.tolist() == [3, 5, 1]
    assert torch.equal(batch.padding.mask, batch.inputs > 0)
    assert split(store, max_len=9).batch([2, 4]).padding is None
    wide = split(store, pad_to_max_len=True).batch([1, 5])
    assert wide.inputs.shape == (2, 6) and wide.padding is not None
    longer = batch.padding.after_prefix(2)  # which counts as real tokens
    assert longer.lengths.tolist() == [5, 7, 3] and longer.mask[2].tolist() == [True] * 3 + [False] * 4


def test_an_end_token_follows_a_cut_sequence(store: SequenceStore) -> None:
    ended = split(store, end=99)
    batch = ended.batch([2, 5])
    assert batch.inputs.tolist() == [[21, 22, 23, 24, 25, 26, 99], [51, 52, 99, 0, 0, 0, 0]]
    assert ended.lengths().tolist() == [6, 2, 7, 4, 7, 3]
    assert batch.padding is not None and batch.padding.lengths.tolist() == [7, 3]
    assert split(store, end=99, pad_to_max_len=True).batch([1]).inputs.shape == (1, 7)


# passes


def test_buckets_hold_every_example_once_and_pad_less(reviews: Path) -> None:
    bucketed, mixed = (lra_text(reviews, bucket=bucket, bucket_share=1.0) for bucket in (True, False))
    batches = [widths(data) for data in (bucketed, mixed)]
    for passed in batches:
        assert sorted(i for ids, _ in passed for i in ids) == list(range(36))
    lengths = bucketed.splits["train"].lengths()
    assert lengths is not None
    wasted = [sum(len(ids) * width - lengths[ids].sum() for ids, width in passed) for passed in batches]
    assert wasted[0] < 0.4 * wasted[1]


def test_buckets_are_shuffled_and_an_incomplete_batch_comes_last(
    reviews: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = lra_text(reviews, batch_size=5, bucket_share=1.0)
    first = widths(data)
    assert [len(ids) for ids, _ in first] == [5] * 7 + [1]
    assert [width for _, width in first] != sorted(width for _, width in first)
    assert [ids for ids, _ in widths(lra_text(reviews, plan=LoadPlan(seed=1), batch_size=5))] != [
        ids for ids, _ in first
    ]
    monkeypatch.setattr(PassSampler, "POOL", 2)  # batches: the lengths of a pool, not of all, are alike
    assert [width for _, width in widths(data)] != [width for _, width in first]


def test_evaluation_takes_the_lengths_in_order_and_every_example(reviews: Path) -> None:
    given = list(lra_text(reviews, eval_batch_size=5).test_dataloader()[0])
    assert sorted(i for batch in given for i in batch.ids.tolist()) == list(range(48))
    assert [batch.inputs.shape[1] for batch in given] == sorted(batch.inputs.shape[1] for batch in given)


def test_processes_share_a_bucket(reviews: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = lra_text(reviews, batch_size=3, bucket_share=1.0)
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 2)
    shares: list[list[Batch]] = []
    for rank in range(2):
        monkeypatch.setattr(torch.distributed, "get_rank", lambda rank=rank: rank)
        shares.append(list(data.train_dataloader()))
    given = [[i for batch in share for i in batch.ids.tolist()] for share in shares]
    assert sorted(given[0] + given[1]) == list(range(36)) and len(given[0]) == len(given[1])
    lengths = data.splits["train"].lengths()
    assert lengths is not None
    steps = sorted(sorted(lengths[torch.cat([here.ids, there.ids])]) for here, there in zip(*shares, strict=True))
    assert all(one[-1] <= other[0] for one, other in pairwise(steps))  # what both take at once is a bucket


def test_truncated_sequences_are_a_remark(reviews: Path) -> None:
    lengths = [len(path.read_bytes()) for path in reviews.glob("aclImdb/*/*/*.txt")]
    cut = sum(length > 30 for length in lengths)
    assert f"{cut} of 96 sequences are cut to data.max_len=30" in lra_text(reviews, max_len=30).remarks()
    assert not [remark for remark in lra_text(reviews, max_len=1000).remarks() if "are cut" in remark]


def test_a_killed_worker_is_reported_in_one_sentence_with_advice(
    reviews: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = _MultiProcessingDataLoaderIter._try_get_data  # five seconds for a worker, by its default
    monkeypatch.setattr(waits, "__defaults__", (0.5,))
    data = lra_text(reviews, num_workers=1)
    monkeypatch.setattr(SequenceSplit, "batch", lambda *_: os.kill(os.getpid(), signal.SIGKILL))
    with pytest.raises(DataError, match=r"data worker was killed.*try fewer than data\.num_workers=1") as caught:
        list(data.train_dataloader())
    assert "\n" not in str(caught.value)


def test_a_worker_that_was_killed_after_it_sent_a_batch_is_reported_too(reviews: Path) -> None:
    batches = iter(lra_text(reviews, num_workers=1, batch_size=4).train_dataloader())
    next(batches)
    time.sleep(1)  # the next batches wait in a queue; their tensors are with the worker
    for worker in multiprocessing.active_children():
        worker.kill()
    time.sleep(0.5)
    with pytest.raises(DataError, match="data worker was killed"):
        list(batches)


# the task


def task(*words: str, data: DataSpec = IDS) -> SequenceClassification:
    built: SequenceClassification = small_task("task=lra_text", "attention=mha", "encoder.dim=32", *words, data=data)
    return built


def batch_of_ids() -> Batch:
    """Four sequences of random ids with zeros behind them; all fill less than the width."""
    lengths = torch.tensor([MAX_LEN - 4, 9, 1, 14])
    padding = Padding.from_lengths(lengths, MAX_LEN)
    assert padding is not None
    ids = torch.randint(1, IDS.vocab_size, (len(lengths), MAX_LEN)).masked_fill(~padding.mask, 0)
    return Batch(ids, torch.zeros(len(lengths), dtype=torch.long), torch.arange(len(lengths)), padding)


def test_padding_counts_as_zero_or_as_a_token_like_any_other_where_published_code_does_so() -> None:
    batch = batch_of_ids()
    clean, published = (task("task.pool=max", f"task.pool_over_padding={on}") for on in (False, True))
    counting = task("task.padding_counts=true")
    with torch.no_grad():
        for model in (clean, published):
            model.head = torch.nn.Identity()
        assert_close(published(batch), clean(batch).clamp(min=0))
        assert_close(counting(batch), counting(Batch(batch.inputs, batch.target, batch.ids)))
    counting(batch).sum().backward()
    assert counting.embedding.tokens.weight.grad[0].any()


def test_double_softmax_gives_probabilities_to_the_loss_alone() -> None:
    clean, published, batch = task(), task("task.double_softmax=true"), batch_of_ids()
    logits = clean(batch)
    assert_close(published(batch), logits)
    assert_close(published.loss(logits, batch.target), clean.loss(logits.softmax(dim=1), batch.target))


@pytest.mark.parametrize(
    ("head", "layers"),
    [("linear", "32-3+"), ("mlp", "32-50+ ReLU 50-3+"), ("mega", "32-50+ drop-0.25 GELU 50-3")],  # +: with bias
)
def test_heads_equal_those_of_the_papers(head: str, layers: str) -> None:
    def spelled(layer: torch.nn.Module) -> str:
        if isinstance(layer, torch.nn.Dropout):
            return f"drop-{layer.p}"
        if not isinstance(layer, torch.nn.Linear):
            return type(layer).__name__
        return f"{layer.in_features}-{layer.out_features}{'+' * (layer.bias is not None)}"

    built = task(f"task.head={head}", "task.head_dim=50", "encoder.dropout=0.25").head
    assert " ".join(spelled(layer) for layer in built.modules() if not list(layer.children())) == layers


def test_the_token_table_starts_with_the_requested_width() -> None:
    wide = DataSpec(name="ids", num_classes=3, max_len=MAX_LEN, vocab_size=5000, ragged=True)
    for option, std in (("1.0", 1.0), ("null", 32**-0.5), ("0.5", 0.5)):
        table = cast(torch.nn.Embedding, task(f"task.embed_std={option}", data=wide).embedding.tokens).weight.detach()
        assert float(table[1:].std()) == pytest.approx(std, rel=0.02)
