"""A folder of runs does not go on with an operator whose code or options have changed since."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from support.comparisons import audit
from support.written_runs import WrittenRuns

from sliceformer_lab.attention.own_operators import note_broken_rules
from sliceformer_lab.commands.map import map_runs
from sliceformer_lab.commands.map.map_options import MapOptions
from sliceformer_lab.commands.submit import submission
from sliceformer_lab.commands.submit.submit_options import SubmitOptions
from sliceformer_lab.config.compose import load_option, with_conf_folders
from sliceformer_lab.config.schema import ConfigError, allowed_targets

pytestmark = pytest.mark.usefixtures("unwritten_pictures")

CODE = """
from sliceformer_lab.attention import ALONE, Attention


class Reverse(Attention):
    \"\"\"Gives every token the values of its mirror image.\"\"\"

    accepts_padding = False
    complexity = "N C"
    source = "example"

    def mix(self, v, q=None, k=None, given=ALONE):
        if given.padding is not None:
            raise ValueError("reverse does not support padded batches")
        return v.flip(1)
"""


@pytest.fixture
def code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The file of the user's operator `changing`, which may be used."""
    file, options = tmp_path / "changing_operator.py", tmp_path / "conf" / "attention" / "changing.yaml"
    file.write_text(CODE)
    options.parent.mkdir(parents=True)
    options.write_text("# Mirrors the tokens.\n_target_: changing_operator.Reverse\n")
    monkeypatch.syspath_prepend(tmp_path)
    with allowed_targets(["changing_operator."]), with_conf_folders([tmp_path / "conf"]):
        yield file
    sys.modules.pop("changing_operator", None)


def test_a_map_of_a_changed_operator_is_refused_and_one_of_other_operators_goes_on(code: Path, tmp_path: Path) -> None:
    def draw(*attentions: str) -> list[str]:
        launcher = WrittenRuns(lambda _: 0.995)
        map_runs.run_map(MapOptions(folder=str(tmp_path / "map"), attentions=attentions, probes=("count",)), launcher)
        return launcher.done

    assert draw("changing") and not draw("changing") and all("csp" in name for name in draw("csp"))
    code.write_text(CODE.replace("flip(1)", "flip(2)"))
    with pytest.raises(ConfigError, match=r"holds results of map that differs in the code of changing; choose another"):
        draw("changing", "csp")
    assert not draw("csp")


@pytest.mark.parametrize("leaks", [False, True])
def test_an_audit_warns_of_an_operator_that_breaks_the_contract(
    code: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, leaks: bool
) -> None:
    if leaks:
        code.write_text(CODE.replace("v.flip(1)", "v.flip(1) + v.mean(0)"))
    launcher = WrittenRuns(lambda words: 0.8 + int(words["seed"]) / 9e4)
    audit(tmp_path, launcher, against=("changing",), seeds=3)
    warning = "changing breaks rules of the contract (What a real token receives does not depend on padding.)"
    assert (f"WARNING: {warning}" in caplog.text) == leaks
    assert (f"- {warning}" in (tmp_path / "audit" / "report" / "audit.md").read_text()) == leaks


@pytest.mark.usefixtures("code")
def test_the_contract_of_an_operator_draws_no_number_from_a_run() -> None:
    torch.manual_seed(5)
    note_broken_rules("changing", load_option("attention", "changing"))
    found = torch.rand(3)
    torch.manual_seed(5)
    torch.testing.assert_close(found, torch.rand(3), rtol=0, atol=0)


def test_an_audit_against_a_changed_operator_is_refused(code: Path, tmp_path: Path) -> None:
    launcher = WrittenRuns(lambda words: (0.9 if words["attention"] == "csp" else 0.8) + int(words["seed"]) / 9e4)
    audit(tmp_path, launcher, against=("changing",), seeds=3)
    code.write_text(CODE.replace("flip(1)", "flip(2)"))
    with pytest.raises(
        ConfigError, match=r"holds results of audit that differs in own_files, the code of changing; choose"
    ):
        audit(tmp_path, launcher, against=("changing",), seeds=3)


@pytest.mark.usefixtures("code")
def test_a_line_keeps_a_seed_that_diverged_counts_it_as_chance_and_is_read_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(submission, "check_contract", lambda *_: None)
    monkeypatch.setattr(submission, "run_benchmark", lambda *_: [])
    options = SubmitOptions(subject="changing", probes=("count",), sizes=(16, 32), folder=str(tmp_path / "mine"))
    line = submission.submit(options, WrittenRuns(lambda words: None if words["seed"] == "101" else 0.995))
    cell = line["probes"]["count"]
    assert cell["scores"] == [0.985, None, 0.985] and cell["steps"] is None
    assert cell["score"] == pytest.approx((2 * 0.985 + cell["chance"]) / 3)
    assert submission.read_line(tmp_path / "mine" / submission.LINE)["digest"] == line["digest"]
