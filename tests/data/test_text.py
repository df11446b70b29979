"""Texts become bytes or word pieces learned from the training texts alone; wrong ones are refused in one sentence."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd
import pytest
import torch
from support import official_files
from support.plans import built_data, plan_of, prepared, run
from support.run_folders import read_summary
from support.runs import small_config
from support.task_modules import module, ready

from sliceformer_lab.__main__ import main
from sliceformer_lab.commands.inspect.models import Group, Source
from sliceformer_lab.config.schema import ConfigError
from sliceformer_lab.data.class_names import class_names_of
from sliceformer_lab.data.sequences.imdb import IMDB, LRAText, Reviews
from sliceformer_lab.data.sequences.text import TextData
from sliceformer_lab.data.sequences.text_csv import TextCSV
from sliceformer_lab.data.sequences.tokenizer import SPECIALS, ByteTokenizer, PieceTokenizer, load_pieces, pieces_for
from sliceformer_lab.data.splits import Stage
from sliceformer_lab.errors import DataError
from sliceformer_lab.training.build import build_data
from sliceformer_lab.training.saved.saved_run import load_run

PARTS = ["train"] * 4 + ["val"] * 2 + ["test"] * 2
TEXTS = ["Was für ein Film!", "映画 <br />\n\ttwo  spaces ", "[PAD] [CLS] is text", "  a\r\n\x00 e\u0301 🙂", "a" * 50]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    official_files.aclimdb(tmp_path)
    return tmp_path


def imdb(root: Path, **options: Any) -> IMDB:
    return cast(IMDB, ready("imdb", root, **options))


def table(root: Path, content: str, name: str = "texts.csv") -> Path:
    root.mkdir(exist_ok=True, parents=True)
    path = root / name
    path.write_bytes(content.encode())
    return path


def text_csv(path: Path, **options: Any) -> TextCSV:
    options = {"vocab_size": 300, "file": str(path), "root": str(path.parent / "tokens")} | options
    return cast(TextCSV, built_data("sequences.text_csv.TextCSV", **options))


def complaint(path: Path, **options: Any) -> str:
    """The one sentence with which a table is refused."""
    with pytest.raises(DataError) as caught:
        text_csv(path, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def members(data: TextData, stage: Any) -> list[tuple[str, str]]:
    """Texts and labels of a split, decoded from the tokens."""
    rows = list(range(len(data.splits[stage])))
    labels = [data.class_names()[target] for target in data.splits[stage].targets_at(rows).tolist()]
    return [(str(one.content), label) for one, label in zip(data.examples(stage, rows), labels, strict=True)]


# tokenizers


def test_bytes_are_their_value_and_one(tmp_path: Path) -> None:
    ids = list(ByteTokenizer().encode(TEXTS, tmp_path))
    for text, found in zip(TEXTS, ids, strict=True):
        assert found.tolist() == [byte + 1 for byte in text.encode()]
        assert ByteTokenizer().decode(found, tmp_path) == text
    assert ByteTokenizer().vocab_size == 257


def test_tokens_spell_every_text_and_names_of_special_tokens_are_text(tmp_path: Path) -> None:
    tokenizer = PieceTokenizer(300)
    tokenizer.train(TEXTS[:2], tmp_path)
    pieces = load_pieces(tmp_path)
    for text, ids in zip(TEXTS, tokenizer.encode(TEXTS, tmp_path), strict=True):
        assert tokenizer.decode(ids, tmp_path) == pieces.decode(ids.tolist()) == text
        assert ids.dtype == np.uint16 and len(SPECIALS) <= ids.min() and ids.max() < 300
    assert [pieces.token_to_id(name) for name in SPECIALS] == list(range(7))
    tokenizer.train(TEXTS[2:], tmp_path)
    assert load_pieces(tmp_path).get_vocab() != pieces.get_vocab(), "a file that was written again is read again"


def test_a_long_word_is_learned_in_parts(tmp_path: Path) -> None:  # as one, it takes time quadratic in its length
    tokenizer, texts = PieceTokenizer(300), ["x" * 5000, *TEXTS]
    tokenizer.train(texts, tmp_path)
    assert max(map(len, load_pieces(tmp_path).get_vocab())) == 1000
    assert [tokenizer.decode(ids, tmp_path) for ids in tokenizer.encode(texts, tmp_path)] == texts


# IMDB


@pytest.mark.parametrize("task", ["imdb", "lra_text"])
def test_reviews_keep_their_text_label_and_part(task: str, root: Path) -> None:
    data = cast(Reviews, ready(task, root, val_fraction=0.25))
    found = {stage: set(members(data, stage)) for stage in ("train", "val", "test")}
    for part, stages in (("train", ("train", "val")), ("test", ("test",))):
        files = root.glob(f"aclImdb/{part}/*/*.txt")
        assert set.union(*(found[stage] for stage in stages)) == {(f.read_text("utf-8"), f.parent.name) for f in files}
    assert data.facts()["classes"] == ["neg", "pos"]
    assert data.sizes() == {"num_train": 36, "num_val": 12, "num_test": 48}


def test_pieces_are_learned_from_none_of_the_texts_that_are_held_out(tmp_path: Path) -> None:
    words = [f"{a}{b}{a}q" for a in "bcdfg" for b in "klmnprst"]
    rows = "".join(f"{' '.join([word] * 9)},{number % 2}\n" for number, word in enumerate(words))
    for seed in (0, 1):
        data = text_csv(table(tmp_path, "text,label\n" + rows), vocab_size=600, val_fraction=0.3, split_seed=seed)
        vocabulary = load_pieces(data.folder).get_vocab()
        known = {stage: [f"Ġ{text[:4]}" in vocabulary for text, _ in members(data, stage)] for stage in data.splits}
        assert all(known["train"]) and not any(known["val"] + known["test"])


def test_the_published_partition_merges_all_and_holds_out_a_fifth_of_every_class(root: Path) -> None:
    options = {"partition": "published", "val_fraction": 0.0}
    data, other = (cast(LRAText, ready("lra_text", root, **options, split_seed=seed)) for seed in (0, 1))
    assert data.sizes() == {"num_train": 76, "num_val": 0, "num_test": 20}
    train, test = (members(data, stage) for stage in ("train", "test"))
    assert sorted(train + test) == sorted((f.read_text("utf-8"), f.parent.name) for f in root.glob("aclImdb/*/*/*.txt"))
    assert [label for _, label in test].count("pos") == 10
    assert sorted(members(other, "test")) != sorted(test)


def test_the_name_contains_the_length_and_an_end_token_is_optional(root: Path) -> None:
    plain, ended = (cast(LRAText, ready("lra_text", root, max_len=50, eos=eos)) for eos in (False, True))
    assert plain.spec.name == ended.spec.name == "lra_text_50"
    assert (plain.spec.max_len, plain.spec.vocab_size) == (50, 257)
    assert (ended.spec.max_len, ended.spec.vocab_size) == (51, 258)
    inputs = ended.splits["test"].batch(list(range(48))).inputs
    assert inputs.shape[1] == 51 and ((inputs == 257).sum(dim=1) == 1).all()


def test_only_the_published_reviews_have_the_sets_name(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DataError, match=r"does not hold the published reviews \(96 texts.*data\.verify=false"):
        imdb(root, verify=True)
    assert "unofficial copy" in imdb(root).fingerprint()["name"]
    monkeypatch.setattr(Reviews, "published_sha256", imdb(root).facts()["sha256"])
    for options in ({}, {"partition": "published"}):
        fingerprint = imdb(root, verify=True, **options).fingerprint()
        assert fingerprint["official"] and fingerprint["name"] == "imdb"
    first = min((root / "aclImdb/train/pos").iterdir())
    first.rename(root / "aclImdb/train/neg/last.txt")  # the same texts in the same order with another label
    with pytest.raises(DataError, match="does not hold the published reviews"):
        imdb(root, verify=True)


def test_reviews_are_downloaded_and_unpacked(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = official_files.packed_tar(root / "aclImdb", root / "aclImdb_v1.tar.gz")
    monkeypatch.setattr(Reviews, "archive", official_files.official(archive))
    data = module("imdb", tmp_path / "new", download=True)
    assert data.fingerprint()["sha256"] == imdb(root).fingerprint()["sha256"]


def test_tokens_are_made_once_and_again_when_a_review_has_changed(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Path] = []
    build = TextData._build
    monkeypatch.setattr(TextData, "_build", lambda self, folder: (made.append(folder), build(self, folder))[1])
    first = imdb(root).fingerprint()["sha256"]
    imdb(root, max_len=7, batch_size=5)
    assert len(made) == 1
    review = next(root.glob("aclImdb/train/pos/*.txt"))
    stamp = review.stat()
    review.write_text(review.read_text("utf-8").swapcase(), "utf-8")
    os.utime(review, ns=(stamp.st_atime_ns, stamp.st_mtime_ns + 1))
    assert imdb(root).fingerprint()["sha256"] != first and len(made) == 2
    for options in ({}, {"val_fraction": 0.5, "split_seed": 3}):
        ready("lra_text", root, **options)
    assert len(made) == 3, "bytes are the same in every split"


def test_a_wrong_review_is_named(root: Path) -> None:
    path = root / "aclImdb" / "test" / "neg" / "7_2.txt"
    for content, fault in ((b"fine\nna\xefve", "is not UTF-8 in line 2"), (b" \n", "has an empty text")):
        path.write_bytes(content)
        with pytest.raises(DataError, match=rf"{path} {fault}"):
            imdb(root)
    for review in path.parent.iterdir():
        review.unlink()
    with pytest.raises(DataError, match=r"test/neg holds no reviews"):
        imdb(root)


# the tokenizer of a checkpoint


def test_a_checkpoint_keeps_its_tokenizer_and_refuses_another(root: Path, tmp_path: Path) -> None:
    options = (
        *("task=imdb", f"data.root={root}", "data.verify=false", "data.vocab_size=300", "data.max_len=40"),
        *("encoder=tiny", "optim.epochs=1", "data.limit_train=null", "data.val_fraction=0.25"),
    )
    folder = tmp_path / "run"
    run(small_config(*options), folder)
    known = torch.load(folder / "checkpoints" / "best.ckpt", weights_only=True)["IMDB"]
    assert known["tokenizer"] == load_run(folder).data.tokenizer_digest() and len(known["tokenizer"]) == 64
    assert read_summary(folder)["protocol"]["sha256"] == load_run(folder).data.fingerprint()["sha256"]
    evaluation = small_config(*options) | {"mode": "eval"}
    run(evaluation, folder)
    source, model = Source("csp", "csp", plan_of(evaluation), folder), load_run(folder).model
    assert len(Group("imdb", "imdb", [source], 0).batches(source, model, 1)) == 1
    with pytest.raises(DataError, match=r"checkpoint was trained with another tokenizer"):
        Group("imdb", "imdb", [source], 1).batches(source, model, 1)  # of a run on another split
    for path in root.glob("aclImdb/train/*/*.txt"):
        path.write_text("other words altogether " + path.read_text("utf-8"), "utf-8")
    with pytest.raises(DataError, match=r"checkpoint was trained with another tokenizer") as caught:
        run(evaluation, folder)
    assert "\n" not in str(caught.value)
    data = cast(TextData, build_data(plan_of(evaluation), folder))  # as mode=eval builds it
    prepared(data)
    assert load_pieces(data.folder).get_vocab() == load_pieces(folder).get_vocab(), "tokens of the trained model"
    assert all(text.startswith("other words altogether ") for text, _ in members(data, "train"))
    (folder / "tokenizer.json").write_text((folder / "tokenizer.json").read_text().replace("film", "mlif"))
    with pytest.raises(DataError, match=rf"another tokenizer \(.*\) than that in {folder} "):
        load_run(folder).predict("a film")
    assert main(["export", f"resume={folder}", "format=safetensors"]) == 1
    assert not (folder / "export" / "safetensors").exists()


# tables


def same_rows() -> pd.DataFrame:
    return pd.DataFrame(
        {"text": [f'{i} "quoted",\n\tand naïve' for i in range(40)], "label": [i % 4 + 8 for i in range(40)]}
    )


def test_all_kinds_of_table_give_the_same_tokens(tmp_path: Path) -> None:
    rows = same_rows()
    rows.to_csv(tmp_path / "a.csv", index=False)
    rows.to_csv(tmp_path / "b.tsv", index=False, sep="\t")
    rows.to_json(tmp_path / "c.jsonl", orient="records", lines=True)
    (tmp_path / "d.CSV").write_bytes(b"\xef\xbb\xbf" + (tmp_path / "a.csv").read_bytes())  # as spreadsheets do
    found = [text_csv(tmp_path / name) for name in ("a.csv", "b.tsv", "c.jsonl", "d.CSV")]
    assert len({data.facts()["sha256"] for data in found}) == len({data.fingerprint()["sha256"] for data in found}) == 1
    assert found[0].facts()["classes"] == ["8", "9", "10", "11"]  # numbers by size
    assert not found[0].fingerprint()["official"]


def test_parquet_is_read(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    same_rows().to_parquet(tmp_path / "a.parquet")
    same_rows().to_csv(tmp_path / "a.csv", index=False)
    assert text_csv(tmp_path / "a.parquet").facts() == text_csv(tmp_path / "a.csv").facts()


def test_splits_in_separate_files(tmp_path: Path) -> None:
    path = official_files.texts(tmp_path)
    val, test = (path.rename(tmp_path / "x.csv"), official_files.texts(tmp_path / "test"))
    train = official_files.texts(tmp_path)
    data = text_csv(train, val_file=str(val), test_file=str(test))
    assert data.sizes() == {"num_train": 60, "num_val": 60, "num_test": 60}
    with pytest.raises(ConfigError, match="split_column and val_file or test_file"):
        text_csv(train, val_file=str(val), split_column="part")
    other = table(tmp_path / "other", HEADER + "x,1\ny,7\n")
    message = complaint(table(tmp_path, GOOD), test_file=str(other))
    assert f"{other}, line 3 has the class '7', which only the test split has" in message


HEADER = "text,label\n"
ROWS = "".join(f"text {i},{i % 2}\n" for i in range(40))
GOOD = HEADER + ROWS
NUMBERED = {"header": False, "text_column": 1, "label_column": 2}


def test_columns_have_numbers_in_a_table_without_a_header(tmp_path: Path) -> None:
    named, numbered = table(tmp_path, GOOD, "named.csv"), table(tmp_path, ROWS, "numbered.csv")
    assert text_csv(numbered, **NUMBERED).facts() == text_csv(named).facts()
    split = table(tmp_path, "".join(f"{part}\t{i % 2}\ttext {i}\n" for i, part in enumerate(PARTS)), "split.tsv")
    data = text_csv(split, header=False, text_column=3, label_column=2, split_column=1)
    assert data.sizes() == {"num_train": 4, "num_val": 2, "num_test": 2}
    texts = [f'"win {i} "now"' for i in range(10)]  # quotes can be ordinary characters
    sms = "".join(f"{'ham' if i % 2 else 'spam'}\t{text}\n" for i, text in enumerate(texts))
    columns = {"header": False, "label_column": 1, "text_column": 2, "test_fraction": 0.4, "val_fraction": 0.4}
    quoted = text_csv(table(tmp_path, sms, "sms.tsv"), quotes=False, **columns)
    read = [text for stage in ("train", "val", "test") for text, _ in members(quoted, stage)]
    assert sorted(read) == sorted(texts) and quoted.facts()["classes"] == ["ham", "spam"]
    assert "a quote is not closed" in complaint(tmp_path / "sms.tsv", **columns)


def test_quotes_that_would_join_rows_of_a_tsv_are_refused(tmp_path: Path) -> None:
    rows = "text\tlabel\n" + "".join(f"text {i}\t{i % 2}\n" for i in range(20))
    joined = table(tmp_path, rows + '"well\t1\nagain\t0\nsaid"\t1\n', "joined.tsv")
    assert complaint(joined) == (
        f"{joined}: a quoted field spans lines 22 to 24, but each of them has 2 columns; take the quotes out, or "
        "set data.quotes=false (task=text_csv)"
    )
    assert sum(text_csv(joined, quotes=False).sizes().values()) == 23
    of_three_lines = table(tmp_path, rows + '"well\nagain\nsaid"\t1\n', "lines.tsv")
    assert sum(text_csv(of_three_lines).sizes().values()) == 21


def test_a_new_table_is_read_in_the_form_of_the_runs_own(tmp_path: Path) -> None:
    rows = "".join(f'{"ham" if i % 2 else "spam"}\t"win {i} "now"\n' for i in range(10))
    columns = {"label_column": 1, "text_column": 2, "test_fraction": 0.4, "val_fraction": 0.4}
    data = text_csv(table(tmp_path, rows, "sms.tsv"), header=False, quotes=False, **columns)
    new = table(tmp_path, '?\t"one\n?\ttwo\n?\t"three"\n', "new.tsv")
    expected = ['"one', "two", '"three"']
    assert [one.content for one in data.read_inputs(new, None)] == expected
    named = table(tmp_path, 'text\n"one\ntwo\n"three"\n', "named.tsv")
    assert [one.content for one in data.read_inputs(named, "text")] == expected  # only a header names a column
    lines = table(tmp_path, '{"text": "one"}\n', "new.jsonl")
    assert [one.content for one in data.read_inputs(lines, "text")] == ["one"]


def test_the_size_of_the_vocabulary_follows_from_the_length_of_the_texts_that_train_alone(tmp_path: Path) -> None:
    assert [pieces_for(characters) for characters in (0, 358_624, 1_225_100, 10**9)] == [500, 3900, 7200, 16_000]
    path = table(tmp_path, GOOD)
    data = text_csv(path, vocab_size=None, batch_size=None)
    batch, pieces = data.choices()
    assert (batch.option, batch.value, pieces.option, pieces.value) == ("data.batch_size", 16, "data.vocab_size", 500)
    training = sum(len(text) for text, _ in members(data, "train"))
    assert pieces.reason == f"{training} characters in the training texts"
    assert data.spec.vocab_size == 500
    rows = [line.split(",") for line in GOOD.splitlines()[1:]]
    held = {text for stage in ("val", "test") for text, _ in members(data, stage)}
    longer = "".join(f"{text * 10_000 if text in held else text},{label}\n" for text, label in rows)
    other = text_csv(table(tmp_path, "text,label\n" + longer, "longer.csv"), vocab_size=None, batch_size=None)
    assert other.spec.vocab_size == 500 and other.choices()[1].reason == pieces.reason
    assert text_csv(path, vocab_size=500).folder == data.folder  # the run that follows prepares nothing again
    assert text_csv(path, vocab_size=None, batch_size=8, tokens="bytes").choices() == []


TWICE = "names the column 'text' twice"
OF_CLASS = ", expected a word or a whole number; "
WRONG_ROWS = [  # of a table, and options
    (GOOD, {"label_column": "class"}, "no column 'class'; data.label_column can be one of text, label"),
    (GOOD.replace("label", " label"), {}, "data.label_column can be one of text, ' label'"),
    (ROWS, {}, "can be one of text 0, 0; if the first line of this CSV or TSV is a text, set data.header=false"),
    (GOOD, {"header": False}, "no column 'text'; data.text_column can be one of 1, 2"),
    (ROWS + "x\n", NUMBERED, "line 41 has 1 field, but line 1 has 2 columns"),
    (GOOD, {"split_column": "label"}, "label is '0'; use one of train"),
    (GOOD + '"x,1\n', {}, "line 42: a quote is not closed"),
    (GOOD + "x,1,2\n", {}, "line 42 has 3 fields, but line 1 names 2 columns"),
    (GOOD + " ,1\n", {}, "line 42 has an empty text"),
    (GOOD + "x,\n", {}, f"line 42: label is ''{OF_CLASS}add it or delete the row"),
    (GOOD.replace(",", ";"), {}, "can be one of text;label; if semicolons separate its columns, save it with commas"),
    ("text;label\na film, good;1\n", {}, "names 1 column; if semicolons separate its columns, save it with commas"),
    (HEADER, {}, "has no rows"),
    (HEADER + "a,many\n", {"targets": ["label"]}, "line 2: label is 'many', not a number"),
    (HEADER + "a,1\nb,1\n", {"test_fraction": 0.5}, "at least two classes are needed"),
    ("text,label,text\na film,pos,b\nno film,neg,c\n", {}, f"line 1 {TWICE}"),
]
WRONG_LINES = {  # of JSON, behind a good one
    '{"text": "a"': " is not JSON",
    "[1, 2]": " is not an object",
    '{"text": 7, "label": 1}': ": text is 7, not a text",
    '{"text": null, "label": 1}': ": text is None, not a text; add it or delete the row",
    '{"text": "a", "label": 0.5}': f": label is 0.5{OF_CLASS}write it so, or pred",
    '{"text": "a", "label": null}': f": label is None{OF_CLASS}add it or delete",
    '{"text": "a", "label": ["b"]}': f": label is ['b']{OF_CLASS}for several lab",
    '{"text": "a", "label": "x", "text": "b"}': f" {TWICE}",
}
WRONG_FILES = [
    ("a.csv", (GOOD + "na\u00efve,1\n").encode("latin-1"), "is not UTF-8 in line 42"),
    ("a.csv", (GOOD + "na\u00efve,1\n").encode("latin-1"), "iconv -f LATIN1"),
    ("a.csv", GOOD.encode("utf-16"), "iconv -f UTF-16 -t UTF-8"),
    ("a.tsv", GOOD.encode(), "; if commas separate its columns, call it .csv"),
    ("a.parquet", b"PAR1", "Parquet"),  # no such table, or no pyarrow to read it
    ("a.xlsx", GOOD.encode(), "ends in none of .csv, .tsv, .jsonl, .parquet"),
]


@pytest.mark.parametrize(
    ("name", "content", "options", "expected"),
    [
        *(("a.csv", content.encode(), options, expected) for content, options, expected in WRONG_ROWS),
        *(
            ("a.jsonl", f'{{"text": "b", "label": 1}}\n{line}\n'.encode(), {}, f"line 2{fault}")
            for line, fault in WRONG_LINES.items()
        ),
        *((name, content, {}, expected) for name, content, expected in WRONG_FILES),
        ("a.jsonl", b"{}", {"header": False}, "are for CSV and TSV tables"),
        ("a.csv", None, {}, "set data.file to a table"),
    ],
)
def test_a_wrong_table_is_refused(
    name: str, content: bytes | None, options: dict[str, Any], expected: str, tmp_path: Path
) -> None:
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    message = complaint(path, **options)
    assert expected in message and str(path) in message


def test_one_command_trains_on_a_table_and_says_which_texts_are_in_two_splits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    path = official_files.texts(tmp_path)
    monkeypatch.chdir(tmp_path)
    options = ["attention=csp", "encoder=tiny", "optim.epochs=2", "callbacks=minimal", "pictures=false"]
    assert main(["task=text_csv", f"data.file={path}", *options, "reference=null"]) == 0
    folder = next((tmp_path / "outputs" / "text_csv-texts" / "csp").iterdir())
    summary = read_summary(folder)
    assert summary["status"] == "ok" and summary["name"] == f"text_csv-texts/csp/{folder.name}"
    assert (summary["protocol"]["data"], summary["protocol"]["official"]) == ("texts", None)
    assert set(load_run(folder).predictions["test_targets"]) <= {0, 1, 2}
    assert summary["mean_length"] < 60  # while data.max_len is 512
    assert summary["cost_of_longest"]["multiply_adds"] > 5 * summary["cost_per_sample"]["multiply_adds"]
    (remark,) = summary["data_remarks"]
    assert "are also training texts" in remark and remark in capfd.readouterr().out


def test_classes_that_are_written_alike_are_named_in_a_remark(tmp_path: Path) -> None:
    labels = (" neg", "Neg", "neg", "01", "1", "1.0", "caf\u00e9", "cafe\u0301")
    rows = "".join(f'{label} film {i},"{label}"\n' for i in range(30) for label in (*labels, "pos"))
    remarks = text_csv(table(tmp_path, "text,label\n" + rows)).remarks()
    shown = sorted(remark.partition(" are different classes, which differ only in spaces")[0] for remark in remarks)
    assert shown == ["' neg', 'Neg', 'neg'", "'01', '1', '1.0'", "'cafe\\u0301', 'café'"]


def test_numbers_that_are_classes_have_one_order_however_they_are_written() -> None:
    names = [f"{zeros}{number}" for number in range(1, 40) for zeros in ("00", "0", "")]
    examples: list[tuple[Stage, str, str]] = [("train", "row", name) for name in names]
    assert class_names_of(examples, "texts") == names, "a set has another order in each process"


def test_texts_of_two_splits_and_a_column_that_is_not_read_are_remarks(tmp_path: Path) -> None:
    parts = [(f"film {i}", "train") for i in range(20)] + [(f"film {i}", "test") for i in range(17, 23)]
    parts += [("film 3", "val"), ("another film", "val"), ("film 22", "val")]
    rows = "".join(f"{text},{'neg' if i % 2 else 'pos'},{stage}\n" for i, (text, stage) in enumerate(parts))
    trained, selected = text_csv(table(tmp_path, "text,label,split\n" + rows), split_column="split").remarks()
    assert trained.startswith("4 of 9 validation and test texts are also training texts (1 of 3 val, 3 of 6 test)")
    assert selected.startswith("1 of 6 test texts are also validation texts, which select the epoch")
    clean = text_csv(table(tmp_path / "clean", "text,label,split\n" + rows.replace("film", "show", 20)))
    assert clean.remarks()[-1].endswith("has a column split, which is not read: data.split_column=split uses it")
    other = table(tmp_path / "clean", "text,label,split\nanother,neg,val\nlast,pos,val\n", "val.csv")
    assert text_csv(tmp_path / "clean" / "texts.csv", val_file=str(other)).remarks() == []


def test_labels_that_are_many_numbers_are_no_classes(tmp_path: Path) -> None:
    measured = table(tmp_path, "text,label\n" + "".join(f"film {i},{i / 8}\n" for i in range(40)))
    found = complaint(measured)
    assert "label has 40 different numbers in 40 rows" in found and "data.targets=[label]" in found
    stars = table(tmp_path / "stars", "text,label\n" + "".join(f"film {i},{i % 10 / 2}\n" for i in range(100)))
    assert len(text_csv(stars).class_names()) == 10
