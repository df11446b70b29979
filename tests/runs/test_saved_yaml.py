"""Saved YAML reads as OmegaConf reads it, without OmegaConf's private loader."""

from __future__ import annotations

from pathlib import Path

import pytest
from omegaconf import OmegaConf

from sliceformer_lab.errors import RunFolderError
from sliceformer_lab.runs.saved_yaml import read_yaml

CONF = Path(__file__).parents[2] / "conf"
VALUES = ("1e-4", "1E5", "-1e+3", "1.e2", "1_000", ".inf", "2020-01-01", "0x1f", "017", "yes", "null", "''", "5e", "e5")


@pytest.mark.parametrize("value", VALUES)
def test_a_value_reads_as_omegaconf_reads_it(value: str, tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(f"a: {value}\n")
    found, expected = read_yaml(file)["a"], OmegaConf.load(file).a
    assert (found, type(found)) == (expected, type(expected))


def test_every_file_of_options_reads_as_omegaconf_reads_it() -> None:
    for file in CONF.rglob("*.yaml"):
        if content := OmegaConf.to_container(OmegaConf.load(file), resolve=False):
            assert read_yaml(file) == content, file


def test_a_key_given_twice_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("optim:\n  lr: 1\n  lr: 2\n")
    with pytest.raises(RunFolderError, match="the key lr is given twice"):
        read_yaml(tmp_path / "config.yaml")
