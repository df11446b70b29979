"""New inputs for a trained model: from a table, a file with one input a line, or files of pictures or clouds."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path

import numpy as np

from sliceformer_lab.data.class_names import is_of_system
from sliceformer_lab.data.images.picture_files import ENDINGS as PICTURES
from sliceformer_lab.data.images.picture_files import read_picture
from sliceformer_lab.data.points.clouds import ENDINGS as CLOUDS
from sliceformer_lab.data.points.clouds import read_cloud
from sliceformer_lab.data.spec import Content, ContentKind, NewInput
from sliceformer_lab.data.table_files import (
    DELIMITERS,
    TABLES,
    ending_of,
    rows_and_errors,
    separator_advice,
    table_rows,
)
from sliceformer_lab.errors import DataError
from sliceformer_lab.runs.files import files_below

Given = Content | Path
ReadFile = Callable[[Path], np.ndarray]
LINES = {"text": (".txt",), "smiles": (".smi", ".smiles", ".txt")}  # endings of files with one input a line


def read_inputs(
    path: Path,
    kind: ContentKind,
    column: str | None,
    read: ReadFile | None = None,
    *,
    header: bool = True,
    quotes: bool = True,
) -> Iterator[NewInput]:
    """The inputs of one kind in a file or folder, in its order. `column` holds those of a table, `read` reads a file.

    `header` and `quotes` are those of `table_rows`, for CSV and TSV only. Raises DataError if there are none, or if the
    file cannot hold any.
    """
    if not path.exists():
        raise DataError(f"input={path} is missing; name a file{' or folder' if kind in ('picture', 'cloud') else ''}")
    if kind in ("picture", "cloud"):
        found = read_files(path, PICTURES if kind == "picture" else CLOUDS, kind, read or partial(read_file, kind=kind))
    elif path.is_file() and ending_of(path) in LINES[kind]:
        found = _read_lines(path, names=kind == "smiles")
    elif path.is_file() and ending_of(path) in TABLES:
        form = {"header": header, "quotes": quotes} if ending_of(path) in DELIMITERS else {}
        found = _read_fields(path, column or kind, **form)
    else:
        raise DataError(
            f"input={path} holds no {'texts' if kind == 'text' else 'SMILES'} that can be read; give a file that ends "
            f"in {', '.join((*LINES[kind], *TABLES))}"
        )
    empty = True
    for one in found:
        yield one
        empty = False
    if empty:
        raise DataError(f"input={path} is empty")


def read_labelled(path: Path, kind: ContentKind, column: str, label: str) -> Iterator[tuple[Content, str]]:
    """Inputs with their labels: two columns of a table, or pictures in a folder for each class. Raises DataError."""
    if kind == "text":
        for place, row in table_rows(path):
            if missing := [name for name in (column, label) if name not in row]:
                raise DataError(
                    f"{place} has no column {missing[0]!r}; labelled.column and labelled.label can be {', '.join(row)}"
                )
            text, name = row[column], row[label]
            if not isinstance(text, str) or not text.strip() or name is None or not str(name).strip():
                raise DataError(f"{place}: {column} is {text!r} and {label} is {name!r}; give a text and its label")
            yield text, str(name)
        return
    for one in read_inputs(path, kind, None):
        folder, _, rest = one.place.partition("/")
        if isinstance(one.content, DataError):
            raise DataError(f"{one.place}: {one.content}")
        if not rest:
            raise DataError(f"{path / one.place} is in no folder of its class; give FOLDER/CLASS/PICTURE")
        yield one.content, folder


def given_inputs(contents: Given | Iterable[Given], kind: ContentKind, read: ReadFile) -> Iterator[NewInput]:
    """One input or many: texts or SMILES, arrays, or paths of pictures or clouds. Raises TypeError for others."""
    dims = {"picture": (2, 3), "cloud": (2,), "series": (1, 2)}.get(kind, ())  # of an array that is one input
    if isinstance(contents, str | Path) or (isinstance(contents, np.ndarray) and contents.ndim in dims):
        contents = [contents]
    if not isinstance(contents, Iterable) or isinstance(contents, bytes | Mapping) or hasattr(contents, "columns"):
        raise TypeError(f"predict takes a {kind} or a list of them, not {type(contents).__name__}")
    for number, content in enumerate(contents):
        if kind in ("text", "smiles"):
            if not isinstance(content, str):
                raise TypeError(f"input {number} is {type(content).__name__}, expected a {kind} as str")
            yield NewInput(f"input {number}", content)
        elif isinstance(content, np.ndarray):
            yield NewInput(f"input {number}", content)
        elif isinstance(content, str | Path) and kind != "series":
            yield _read_input(Path(content), str(content), read)
        else:
            expected = "an array" if kind == "series" else f"an array or the path of a {kind}"
            raise TypeError(f"input {number} is {type(content).__name__}, expected {expected}")


def read_file(path: Path, kind: ContentKind) -> np.ndarray:
    """The picture (H, W, 3) uint8 or the cloud in a file. Raises DataError."""
    return np.asarray(read_picture(path)) if kind == "picture" else read_cloud(path)


def read_files(path: Path, endings: Collection[str], kind: str, read: ReadFile) -> Iterator[NewInput]:
    """A file, or all files in a folder and the folders in it but hidden ones. Raises DataError if there are none."""
    if path.is_file():
        files = [path]
    else:
        found = sorted(file for file in files_below(path) if file.suffix.lower() in endings)
        files = [file for file in found if not any(map(is_of_system, file.relative_to(path).parts))]
        if not files:
            plural = kind if kind.endswith("s") else f"{kind}s"
            raise DataError(f"input={path} holds no {plural} ({', '.join(sorted(endings))})")
    for file in files:
        yield _read_input(file, file.name if path.is_file() else file.relative_to(path).as_posix(), read)


def _read_input(file: Path, place: str, read: ReadFile) -> NewInput:
    try:
        return NewInput(place, read(file))
    except DataError as error:
        return NewInput(place, DataError(str(error).replace(f"{file} ", "it ", 1)))  # `place` names the file


def _read_lines(path: Path, names: bool) -> Iterator[NewInput]:
    """One input a line; with `names`, a word and the name of the molecule after it."""
    for number, raw in enumerate(path.read_bytes().removesuffix(b"\n").split(b"\n"), start=1):
        place = f"{path.name}, line {number}"
        try:
            line = raw.decode("utf-8").removeprefix("\ufeff" if number == 1 else "").removesuffix("\r")
        except UnicodeDecodeError as error:
            yield NewInput(place, DataError(f"it is not UTF-8 ({error.reason})"))
            continue
        word, *name = line.split(maxsplit=1) if names and line.strip() else [line]
        yield NewInput(f"{place} ({name[0].strip()})" if name else place, word)


def _read_fields(path: Path, column: str, *, header: bool = True, quotes: bool = True) -> Iterator[NewInput]:
    """The fields of one column of a table; a row that cannot be read is bad, and the rows after it are read."""
    for place, row in rows_and_errors(path, header=header, quotes=quotes):
        short = Path(place).name
        if isinstance(row, DataError):
            yield NewInput(short, DataError(f"it {str(row).removeprefix(place).strip()}"))
        elif column not in row:
            advice = separator_advice(row) or f"; the option column can be {', '.join(row)}"
            raise DataError(f"{path} has no column {column!r}{advice}")
        elif isinstance(row[column], str):
            yield NewInput(short, row[column])
        else:
            yield NewInput(short, DataError(f"{column} is {row[column]!r}, not a text"))
