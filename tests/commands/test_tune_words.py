"""The command line of a search: options of its own, options of its runs, and lines that cannot work."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from sliceformer_lab.__main__ import main
from sliceformer_lab.commands.tune.command import sorted_words
from sliceformer_lab.config.compose import compose_root
from sliceformer_lab.config.schema import ConfigError
from sliceformer_lab.runs.names import tune_folder
from sliceformer_lab.runs.tuned import BEST, with_tuned


def words_of(*given: str) -> tuple[list[str], list[str]]:
    """What the options of tune and those of its runs become once Hydra has composed them."""
    own = sorted_words(given)
    composed = compose_root(own, "tune")
    return own, composed["words"]


def test_options_of_the_runs_are_kept_apart_as_they_are_written() -> None:
    given = [
        "task=digits",
        "encoder.dim=32",
        "data.root='a b, c]'",
        "+trainer.x=${encoder.dim}",
        "optim.betas=[0.9,0.99]",
    ]
    own, words = words_of("trials=3", "attention=mha,csp", *given, "paths.data=here", "launcher=serial")
    assert own[:5] == ["trials=3", "subject=mha", "against=[csp]", "paths.data=here", "launcher=serial"]
    assert words == [*(word.replace("${", r"\${") for word in given), "paths.data=here"]


def test_options_of_an_attention_belong_to_the_runs() -> None:
    own, words = words_of("attention=csp", "attention.group_size=4")
    assert own[:2] == ["subject=csp", "against=[]"] and words == ["attention.group_size=4"]


@pytest.mark.parametrize(
    ("line", "sentence"),
    {
        "resume=x": "resume=x: each run is new",
        "study=controls_digits": "study=controls_digits: a comparison is a sweep of its own",
        "score_test=true": "score_test=true: trials never score the test set",
        "encoder.dim=32,64": "encoder.dim=32,64: several values, but only against are compared",
        "encoder.dim=[": "encoder.dim=[: not understood",
    }.items(),
)
def test_a_word_that_no_run_can_have_is_refused(line: str, sentence: str) -> None:
    with pytest.raises(ConfigError) as refused:
        sorted_words([line])
    assert sentence in str(refused.value)


@pytest.fixture
def refuse(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Callable[[str], str]:
    """Runs a command line in an empty folder and returns the one sentence with which it is refused."""
    monkeypatch.chdir(tmp_path)

    def call(line: str) -> str:
        assert main(["tune", *line.split()]) == 1
        out, err = capfd.readouterr()
        assert "Traceback" not in out + err and err.count("\n") == 1 and err.startswith("sliceformer-lab: ")
        assert not list(tmp_path.glob("outputs/tune/*/*/*"))
        return err

    return call


@pytest.mark.parametrize(
    ("line", "sentence"),
    {
        "attention=mha,csp attention.group_size=4": "attention.group_size: there is no such key in attention",
        "search=all": "tune.search: given 'all', should be 'lr', 'lr_wd' or 'recipe'",
        "selection=best_test": "selection=best_test",
        "task=text_csv data.file=nope.csv": "data.file: ",
        "task=zinc attention=linformer,mha": "attentions that can: ",
    }.items(),
)
def test_a_search_that_cannot_run_is_refused_in_one_sentence(
    refuse: Callable[[str], str], line: str, sentence: str
) -> None:
    assert sentence in refuse(line)


@pytest.mark.parametrize(
    "hostile",
    [
        *(
            "allow_targets=[os.]",
            "attention._target_=os.system",
            "optim._target_=os.system",
            "hydra.searchpath=[file://x]",
        ),
        *("optim.lr=${oc.env:HOME}", "~optim", "encoder.dropout", "encoder.init_file=/etc/passwd", "optim@data=fast"),
    ],
)
def test_a_hostile_file_of_best_values_sets_nothing_else(tmp_path: Path, hostile: str) -> None:
    (tmp_path / BEST).write_text(json.dumps({"attention": {"csp": {"words": ["optim.lr=0.1", hostile]}}}))
    with pytest.raises(ConfigError, match=r"may only set options of optim, and encoder\.dropout, not "):
        with_tuned([f"optim=tuned:{tmp_path}/csp"])


def test_the_same_options_have_the_same_folder_wherever_the_data_are() -> None:
    first = tune_folder("out", ["task=zinc", "encoder.dim=8", "paths.data=here"], 20)
    assert first == tune_folder("out", ["encoder.dim=8", "task=zinc"], 20) and first.startswith("out/tune/zinc-")
    assert first != tune_folder("out", ["encoder.dim=8", "task=zinc"], 21)


def test_tuned_options_stand_for_their_words(tmp_path: Path) -> None:
    best = {"attention": {"csp": {"words": ["optim=fast", "optim.lr=0.01", "encoder.dropout=0.1"]}}}
    (tmp_path / BEST).write_text(json.dumps(best))
    words = with_tuned(["seed=1", f"optim=tuned:{tmp_path}/csp", "optim.epochs=2"])
    assert words == ["seed=1", "optim=fast", "optim.lr=0.01", "encoder.dropout=0.1", "optim.epochs=2"]
    assert with_tuned([f"optim='tuned:{tmp_path}/csp'"])[0] == "optim=fast"


@pytest.mark.parametrize(
    ("word", "sentence"),
    [
        ("optim=tuned:nowhere/csp", "nowhere has no best.json; write optim=tuned:FOLDER/ATTENTION"),
        ("optim=tuned:{}/cps", "cps was not tuned in {}; did you mean csp?"),
        ("optim=tuned:{}/damaged/csp", "best.json cannot be read"),
    ],
)
def test_tuned_options_that_are_not_there_are_refused(
    refuse: Callable[[str], str], tmp_path: Path, word: str, sentence: str
) -> None:
    (tmp_path / BEST).write_text(json.dumps({"attention": {"csp": {"words": []}}}))
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / BEST).write_text("[1]")
    assert sentence.format(tmp_path) in refuse(word.format(tmp_path))
    assert main([word.format(tmp_path), "encoder=tiny"]) == 1
