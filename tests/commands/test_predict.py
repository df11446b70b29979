"""A finished run predicts new inputs from its folder alone, as it predicted its test examples."""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from PIL import Image
from support import official_files, official_graphs, official_points
from support.other_process import held_by_another_process
from support.plans import run
from support.runs import last_of_each, small_config

from sliceformer_lab.__main__ import main
from sliceformer_lab.data.spec import Example
from sliceformer_lab.errors import DataError, LabError, RunFolderError
from sliceformer_lab.runs.files import whole_file
from sliceformer_lab.runs.plain_text import csv_cell
from sliceformer_lab.training.results.predicted import TableRow
from sliceformer_lab.training.results.prediction_table import PREPROCESSING, write_table
from sliceformer_lab.training.saved.saved_run import Run, load_run

ONE = ("optim.epochs=1", "data.num_workers=0")


def trained(folder: Path, *overrides: str) -> Run:
    """A run of an epoch."""
    run(small_config(*ONE, *overrides), folder)
    return load_run(folder)


def scored_examples(found: Run) -> list[Example]:
    return found.data.examples("test", found.predictions["test_ids"].tolist())


def predict(found: Run, source: Path, *options: str) -> pd.DataFrame:
    """The table that the command writes."""
    output = found.folder.parent / "out.csv"
    arguments = [f"resume={found.folder}", f"input={source}", f"output={output}", "overwrite=true"]
    assert main(["predict", *arguments, *options]) == 0
    return pd.read_csv(output, keep_default_na=False)


def write(path: Path, header: str, contents: list[Any]) -> Path:
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([[header, "other"], *([content, "x"] for content in contents)])
    return path


def save_pictures(folder: Path, contents: list[Any]) -> Path:
    folder.mkdir()
    for number, content in enumerate(contents):
        Image.fromarray(content).save(folder / f"{number:04}.png")
    return folder


def save_clouds(folder: Path, contents: list[Any]) -> Path:
    folder.mkdir()
    for number, content in enumerate(contents):
        np.save(folder / f"{number:04}.npy", content)
    return folder


def as_table(column: str) -> Callable[[Path, list[Any]], Path]:
    return lambda folder, contents: write(folder / "new.csv", column, contents)


def tagged_texts(root: Path) -> Path:
    """Texts with none to two labels."""
    rows = ["text,tags"]
    for number in range(60):
        good, long = number % 5, number % 3
        words = ["good"] * good + ["bad"] * (4 - good) + ["film"] * (1 + long)
        tags = [*(["liked"] if good > 2 else []), *(["long"] if long else [])]
        rows.append(f"{' '.join(words)},{'/'.join(tags)}")
    (path := root / "tagged.csv").write_text("\n".join(rows))
    return path


MOLECULE = ("task=molecule_csv", "data.targets=[target,other]", "data.processes=1", "attention=mha")
RUNS: dict[str, tuple[Callable[[Path], object], tuple[str, ...], Callable[[Path, list[Any]], Path]]] = {
    "pieces": (
        official_files.texts,
        ("task=text_csv", "data.file={root}/texts.csv", "data.vocab_size=300", "data.max_len=12"),
        as_table("text"),
    ),
    "numbers": (official_graphs.molecules, (*MOLECULE, "data.file={root}/molecules.csv"), as_table("smiles")),
    "tags": (
        tagged_texts,
        ("task=text_csv", "data.file={root}/tagged.csv", "data.label_column=tags", "data.labels_separator=/"),
        as_table("text"),
    ),
    "image numbers": (
        official_files.image_table,
        ("task=image_csv", "data.file={root}/images.csv", "data.targets=[brightness]", "task.patch_size=4"),
        lambda folder, contents: save_pictures(folder / "new", contents),
    ),
    "folder": (
        official_files.image_folder,
        ("task=image_folder", "data.image_size=16", "data.batch_size=8", "task.patch_size=8"),
        lambda folder, contents: save_pictures(folder / "new", contents),
    ),
    "clouds": (
        official_points.point_folder,
        ("task=point_folder", "data.num_points=16", "data.processes=1", "data.batch_size=8"),
        lambda folder, contents: save_clouds(folder / "new", contents),
    ),
}


@pytest.mark.parametrize("name", RUNS)
def test_new_inputs_are_predicted_as_the_same_test_examples_were(name: str, tmp_path: Path) -> None:
    make, options, save = RUNS[name]
    root = tmp_path / "data"
    root.mkdir()
    make(root)
    options = tuple(option.format(root=root) for option in options)
    found = trained(tmp_path / "run", *options, f"data.root={root}")
    examples, before = scored_examples(found), pd.read_csv(tmp_path / "run" / "predictions.csv", keep_default_na=False)
    source = save(tmp_path, [example.content for example in examples])
    shutil.rmtree(root)  # the run's folder is enough
    again = predict(load_run(tmp_path / "run"), source)
    before = before[before["split"] == "test"].reset_index(drop=True)
    assert before["place"].tolist() == [example.place for example in examples]
    assert len(again) == len(before) > 0 and (again["error"] == "").all()
    columns = [column for column in before if column.startswith("predict") or column.startswith("probability")]
    assert columns and columns == [column for column in again if column.startswith(("predict", "probability"))]
    for column in columns:
        if column == "prediction":
            assert (again[column] == before[column]).mean() > 0.95  # a tie may fall either way in another batch
        else:
            np.testing.assert_allclose(again[column].astype(float), before[column].astype(float), atol=2e-3)


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("texts")
    file = official_files.texts(folder)
    options = (f"data.file={file}", f"data.root={folder}", "data.vocab_size=300", "data.text_column=text")
    return trained(folder / "run", "task=text_csv", *options)


def test_the_table_of_a_run_names_places_classes_and_probabilities(texts: Run) -> None:
    table = pd.read_csv(texts.folder / "predictions.csv")
    assert list(table)[:6] == ["split", "place", "text", "target", "prediction", "probability_bad"]
    assert set(table["split"]) == {"val", "test"} and set(table["target"]) == {"good", "bad", "so-so"}
    source = pd.read_csv(texts.config["data"]["file"])
    for row in table.itertuples():
        assert row.place.startswith("texts.csv, line ") and str(row.text).startswith(str(row.target))
        assert row.text in set(source["text"])
    probabilities = table[[f"probability_{name}" for name in ("bad", "good", "so-so")]]
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, atol=1e-5)
    assert (probabilities.idxmax(axis=1) == "probability_" + table["prediction"]).all()
    logits, classes = texts.predictions["test_logits"], texts.predictions["class_names"]
    test = table[table["split"] == "test"]
    assert test["prediction"].tolist() == classes[logits.argmax(axis=1)].tolist()
    assert test["place"].tolist() == texts.predictions["test_places"].tolist()


def test_predictions_are_named_by_no_other_classes_than_those_of_the_checkpoint(texts: Run, tmp_path: Path) -> None:
    folder = shutil.copytree(texts.folder, tmp_path / "run")
    content = json.loads((folder / PREPROCESSING).read_text())
    (folder / PREPROCESSING).write_text(json.dumps(content | {"classes": content["classes"][::-1]}))
    with pytest.raises(DataError, match=r"preprocessing.json names other classes or targets than the checkpoint"):
        load_run(folder).predict("a text")


def test_bad_rows_are_reported_and_the_rest_is_predicted(texts: Run, capsys: pytest.CaptureFixture[str]) -> None:
    source = texts.folder.parent / "some.csv"
    source.write_text('text,id\na good film,1\n"",2\nbad,too,many\n   ,4\n"so-so\n\n film",5\n')
    table = predict(texts, source)
    assert table["place"].tolist() == [f"some.csv, line {line}" for line in (2, 3, 4, 5, 8)]
    assert (table["prediction"] != "").tolist() == [True, False, False, False, True]
    assert table["error"].tolist() == [
        *("", "the text is empty", "it has 3 fields, but line 1 names 2 columns", "the text is empty", "")
    ]
    assert table["text"].iloc[4] == "so-so\n\n film"
    printed = capsys.readouterr().out
    assert "not predicted: some.csv, line 4: it has 3 fields" in printed and "predicted 2 of 5 inputs" in printed


def test_a_text_a_line_and_a_smiles_a_line(texts: Run, tmp_path: Path) -> None:
    lines = tmp_path / "some.txt"
    lines.write_bytes("\ufeffa good film\r\n\r\nna\u00efve\r\n".encode() + b"\xff\xfe\n" + b"last")
    table = predict(texts, lines)
    assert table["place"].tolist() == [f"some.txt, line {line}" for line in range(1, 6)]
    assert table["text"].tolist() == ["a good film", "", "naïve", "", "last"]
    assert [bool(error) for error in table["error"]] == [False, True, False, True, False]
    file = official_graphs.molecules(tmp_path)
    molecules = trained(tmp_path / "run", *MOLECULE, f"data.file={file}", f"data.root={tmp_path}")
    (tmp_path / "new.smi").write_text("CCO ethanol\nCC(\nc1ccccc1\tthe ring\n")
    table = predict(molecules, tmp_path / "new.smi")
    assert table["place"].tolist() == ["new.smi, line 1 (ethanol)", "new.smi, line 2", "new.smi, line 3 (the ring)"]
    assert table["smiles"].tolist() == ["CCO", "", "c1ccccc1"]
    assert table["error"].tolist() == ["", "'CC(' does not parse as SMILES", ""]


def test_inputs_keep_their_order_although_batches_are_sorted_by_length(texts: Run, tmp_path: Path) -> None:
    contents = [f"{'good ' * (i * 37 % 23 + 1)}{i}" for i in range(600)]
    table = predict(texts, write(tmp_path / "new.csv", "text", contents))
    assert table["text"].tolist() == contents
    alone = texts.predict([contents[7]])
    np.testing.assert_allclose(table.loc[7, "probability_bad"], alone.loc[0, "probability_bad"], atol=2e-3)


def test_inputs_that_are_longer_than_what_the_model_reads_are_counted(
    texts: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    predict(texts, write(tmp_path / "new.csv", "text", ["a good film", "good " * 20_000, "bad", "bad " * 20_000]))
    assert "longer than what the model reads were cut: 2, the first new.csv, line 3" in capsys.readouterr().out
    texts.predict(["bad", "bad " * 20_000])
    assert "were cut: 1, the first input 1" in caplog.text
    predict(texts, tmp_path / "new.csv", "column=other")
    assert "were cut" not in capsys.readouterr().out


def test_a_notebook_gets_the_columns_of_the_command(texts: Run, tmp_path: Path) -> None:
    table = texts.predict(["a good film", "", "bad"])
    assert list(table) == list(predict(texts, write(tmp_path / "new.csv", "text", ["x"])))
    assert table["place"].tolist() == ["input 0", "input 1", "input 2"]
    assert table["error"].isna().tolist() == [True, False, True] and table["prediction"].isna().sum() == 1


@pytest.mark.parametrize(
    ("contents", "message"),
    [
        (5, "predict takes a text or a list of them, not int"),
        (pd.DataFrame({"text": ["maria"]}), "not DataFrame"),
        (["maria", 5], "input 1 is int, expected a text as str"),
    ],
)
def test_a_notebook_cannot_predict_other_types(contents: Any, message: str, texts: Run) -> None:
    with pytest.raises(TypeError, match=message):
        texts.predict(contents)


def test_a_notebook_predicts_pictures_by_path_and_as_arrays(tmp_path: Path) -> None:
    found = trained(tmp_path / "run")
    picture = found.data.examples("test", [0])[0].content
    assert isinstance(picture, np.ndarray)
    Image.fromarray(picture).save(tmp_path / "seven.png")
    (tmp_path / "none.png").write_text("no picture")
    large = Image.fromarray(picture).resize((80, 80))
    table = found.predict(
        [picture, str(tmp_path / "seven.png"), tmp_path / "none.png", np.asarray(large), np.zeros((8, 8))]
    )
    assert table["prediction"][0] == table["prediction"][1]
    assert table["error"].isna().tolist() == [True, True, False, True, False]
    assert table["error"][2].startswith("it cannot be read as an image")
    assert "float64 (8, 8), not a picture" in table["error"][4]


@pytest.mark.parametrize(
    ("content", "options", "expected"),
    [
        ("abstract\nx\n", (), "has no column 'text'; the option column can be abstract"),
        ("text;id\nx;1\n", (), "has no column 'text'; if semicolons separate its columns, save it with commas"),
        ("text\n", (), "is empty"),
        ('text\n""\n" "\n', (), "none of 2 inputs can be predicted: new.csv, line 2: the text is empty"),
        ('text\n"a\n', (), "line 2: a quote is not closed"),
        ("text\nx\n", ("input=missing.csv",), "input=missing.csv is missing"),
        ("text\nx\n", ("input=.",), "holds no texts that can be read; give a file that ends in .txt, .csv"),
        ("text\nx\n", ("output=p.xlsx",), "output=p.xlsx: the table is a CSV file; give a name that ends in .csv"),
        ("text\nx\n", ("output=absent/p.csv",), "there is no folder absent"),
    ],
)
def test_what_cannot_be_predicted_is_refused_in_one_sentence(
    content: str,
    options: tuple[str, ...],
    expected: str,
    texts: Run,
    tmp_path: Path,
    refused: Callable[..., str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "new.csv").write_text(content)
    before = sorted(texts.folder.rglob("*"))
    words = last_of_each([f"resume={texts.folder}", "input=new.csv", *options])
    assert expected in refused("predict", *words)
    assert {path.name for path in tmp_path.iterdir()} == {"new.csv"}
    assert sorted(texts.folder.rglob("*")) == before


def test_an_output_is_only_replaced_on_request(texts: Run, tmp_path: Path, refused: Callable[..., str]) -> None:
    source = write(tmp_path / "new.csv", "text", ["a good film"])
    arguments = ["predict", f"resume={texts.folder}", f"input={source}", f"output={tmp_path / 'p.csv'}"]
    (tmp_path / "p.csv").write_text("mine")
    assert "exists; choose another output, or overwrite=true" in refused(*arguments)
    assert (tmp_path / "p.csv").read_text() == "mine"
    assert main([*arguments, "overwrite=true"]) == 0
    assert "a good film" in (tmp_path / "p.csv").read_text()
    assert not [path for path in texts.folder.iterdir() if path.suffix == ".log"]


def test_the_input_is_never_the_output(texts: Run, tmp_path: Path, refused: Callable[..., str]) -> None:
    source, output = write(tmp_path / "mine.csv", "text", ["a good film"]), tmp_path / "p.csv"
    output.hardlink_to(source)  # under another name, as a symbolic link
    before = source.read_bytes()
    words = [f"resume={texts.folder}", f"input={source}", f"output={output}", "overwrite=true"]
    assert "is the input itself; choose another output" in refused("predict", *words)
    assert source.read_bytes() == output.read_bytes() == before


def test_an_output_that_another_process_writes_is_refused(
    texts: Run, tmp_path: Path, refused: Callable[..., str]
) -> None:
    source, output = write(tmp_path / "new.csv", "text", ["a good film"]), tmp_path / "p.csv"
    words = ["predict", f"resume={texts.folder}", f"input={source}", f"output={output}"]
    with held_by_another_process(whole_file, output):
        assert "p.csv is being written by another live process" in refused(*words)
    assert output.read_text() == "", "what the other process wrote"


def test_a_run_without_raw_inputs_says_so(tmp_path: Path) -> None:
    official_files.aan_pairs(tmp_path / "data")
    found = trained(tmp_path / "run", "task=lra_retrieval", f"data.root={tmp_path / 'data'}", "data.max_len=50")
    with pytest.raises(LabError, match="trained on lra_retrieval predicts no new inputs"):
        found.predict(["a text"])


def test_scoring_a_run_again_restores_what_encodes_its_inputs(tmp_path: Path) -> None:
    found = trained(tmp_path / "run")
    (tmp_path / "run" / PREPROCESSING).unlink()
    arrays = {name: array for name, array in found.predictions.items() if "place" not in name and "name" not in name}
    np.savez_compressed(tmp_path / "run" / "predictions.npz", **arrays)
    old = load_run(tmp_path / "run")
    assert old.predictions.keys() == arrays.keys() and old.model is not None
    picture = found.data.examples("test", [0])[0].content
    with pytest.raises(RunFolderError, match="mode=eval resume="):
        old.predict([picture])
    assert main([f"resume={tmp_path / 'run'}", "mode=eval"]) == 0
    assert load_run(tmp_path / "run").predict([picture])["error"].isna().all()


def test_formulas_are_not_executed_by_a_spreadsheet(tmp_path: Path) -> None:
    texts = ['=HYPERLINK("x")', "+1+1", "@sum", "-2", "-x", "\t=1", "plain", "", "-1e5"]
    safe = ['\'=HYPERLINK("x")', "'+1+1", "'@sum", "-2", "'-x", "'\t=1", "plain", "", "-1e5"]
    assert [csv_cell(text) for text in texts] == safe
    assert csv_cell(-0.5) == -0.5
    rows: list[TableRow] = [{"text": text, "=value": -0.5} for text in texts]
    write_table(tmp_path / "t.csv", ["text", "=value"], rows)
    with (tmp_path / "t.csv").open(newline="", encoding="utf-8") as file:
        assert list(csv.reader(file)) == [["text", "'=value"], *([text, "-0.5"] for text in safe)]
