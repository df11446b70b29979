"""A run folder that was saved in another format is refused in one sentence, which says so."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import yaml
from support.plans import run
from support.run_folders import read_summary
from support.runs import small_config

from sliceformer_lab.errors import RunFolderError
from sliceformer_lab.runs.collect import collect
from sliceformer_lab.runs.files import write_json
from sliceformer_lab.runs.folder import CONFIG, SUMMARY, read_checkpoint
from sliceformer_lab.training.saved.saved_run import load_run

OTHER = "was saved in format None, and this version reads format 1"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run whose configuration and summary have no format, as before there was one."""
    folder = tmp_path_factory.mktemp("outputs") / "run"
    run(small_config("optim.epochs=1", "reference=null"), folder)
    config = yaml.safe_load((folder / CONFIG).read_text())
    assert (config.pop("format"), read_summary(folder)["format"]) == (1, 1)
    (folder / CONFIG).write_text(yaml.safe_dump(config))
    write_json(folder / SUMMARY, {name: fact for name, fact in read_summary(folder).items() if name != "format"})
    return folder


@pytest.mark.parametrize(
    "words",
    [
        ["resume={}"],
        ["resume={}", "mode=eval"],
        ["predict", "resume={}", "input=x.csv", "output=out.csv"],
        ["export", "resume={}"],
        ["inspect", "spectrum", "runs={}"],
    ],
)
def test_every_command_refuses_a_folder_of_another_format(
    words: list[str], folder: Path, refused: Callable[..., str]
) -> None:
    assert OTHER in refused(*[word.format(folder) for word in words])


def test_a_report_skips_it_with_the_sentence_and_load_run_raises_it(folder: Path) -> None:
    assert OTHER in collect(folder.parent).unreadable["run"]
    with pytest.raises(RunFolderError, match=OTHER):
        load_run(folder)


def test_a_checkpoint_of_another_format_is_refused(folder: Path, tmp_path: Path) -> None:
    content = read_checkpoint(folder / "checkpoints" / "last.ckpt")
    torch.save({name: part for name, part in content.items() if name != "format"}, tmp_path / "last.ckpt")
    with pytest.raises(RunFolderError, match=OTHER):
        read_checkpoint(tmp_path / "last.ckpt")
