"""The command line of a search: options of its own, options of its runs, and lines that cannot work."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest

from sliceformer_lab.commands.tune.command import COMMAND
from sliceformer_lab.config.compose import compose_root
from sliceformer_lab.config.schema import ConfigError
from sliceformer_lab.runs.names import comparison_folder, map_folder
from sliceformer_lab.runs.tuned import BEST_FILE, with_tuned


def words_of(*given: str) -> tuple[list[str], list[str]]:
    """What the options of tune and those of its runs become once Hydra has composed them."""
    own = COMMAND.own_words(given)
    composed = compose_root(own, "tune")
    return own, composed["words"]


def test_options_of_the_runs_are_kept_apart_as_they_are_written() -> None:
    given = ["task=digits", "data.root='a b, c]'", "+trainer.x=${encoder.dim}", "optim.betas=[0.9,0.99]"]
    own, words = words_of("trials=3", "attention=mha,csp", *given, "paths.data=here", "launcher=serial")
    assert own[:5] == ["trials=3", "subject=mha", "against=[csp]", "paths.data=here", "launcher=serial"]
    assert words == [*(word.replace("${", r"\${") for word in given), "paths.data=here"]


@pytest.mark.parametrize(
    ("given", "trials"), [([], 10), (["rates=[1e-3]"], 0), (["rates=[1e-3]", "trials=4"], 4), (["trials=4"], 4)]
)
def test_rates_that_are_given_alone_are_tried_in_place_of_random_points(given: list[str], trials: int) -> None:
    composed = compose_root(COMMAND.own_words(["attention=mha,csp", *given]), "tune")
    assert composed["trials"] == trials
    assert len(composed["rates"]) == (1 if "rates=[1e-3]" in given else 3)


def test_options_of_an_attention_belong_to_the_runs() -> None:
    own, words = words_of("attention=csp", "attention.group_size=4")
    assert own[:2] == ["subject=csp", "against=[]"] and words == ["attention.group_size=4"]


@pytest.mark.parametrize(
    "hostile",
    [
        *("allow_targets=[os.]", "attention._target_=os.system", "hydra.searchpath=[file://x]"),
        *(
            "optim._target_=os.system",
            "optim.lr=${oc.env:HOME}",
            "~optim",
            "encoder.dropout",
            "encoder.init_file=/etc/passwd",
            "optim@data=fast",
        ),
    ],
)
def test_a_hostile_file_of_best_values_sets_nothing_else(tmp_path: Path, hostile: str) -> None:
    (tmp_path / BEST_FILE).write_text(json.dumps({"attention": {"csp": {"words": ["optim.lr=0.1", hostile]}}}))
    with pytest.raises(ConfigError, match=r"may only set options of optim, and encoder\.dropout, not "):
        with_tuned([f"optim=tuned:{tmp_path}/csp"])


def test_the_same_options_have_the_same_folder_wherever_the_data_are() -> None:
    for command, start, numbers in (
        (partial(comparison_folder, "tune"), "out/tune/zinc-", (20, 21)),
        (partial(comparison_folder, "audit"), "out/audit/zinc-", (1, 2)),
        (map_folder, "out/map/", ([1e-3], [1e-2])),
    ):
        first = command("out", ["task=zinc", "encoder.dim=8", "paths.data=here"], numbers[0])
        assert first == command("out", ["encoder.dim=8", "task=zinc"], numbers[0]) and first.startswith(start)
        assert first != command("out", ["encoder.dim=8", "task=zinc"], numbers[1])


def test_tuned_options_stand_for_their_words_with_the_data_that_they_were_tuned_on(tmp_path: Path) -> None:
    best = {"attention": {"csp": {"words": ["optim=fast", "optim.lr=0.01", "encoder.dropout=0.1"]}}}
    (tmp_path / BEST_FILE).write_text(json.dumps(best | {"tuned_on": "digits/0a1b"}))
    words = with_tuned(["seed=1", f"optim=tuned:{tmp_path}/csp", "optim.epochs=2"])
    tuned = ["optim=fast", "optim.lr=0.01", "encoder.dropout=0.1", "tuned_on=digits/0a1b"]
    assert words == ["seed=1", *tuned, "optim.epochs=2"]
    assert with_tuned([f"optim='tuned:{tmp_path}/csp'"])[0] == "optim=fast"


@pytest.mark.parametrize("data", [{}, {"tuned_on": "digits/0a seed=1"}, {"tuned_on": None}])
def test_tuned_options_without_their_data_are_refused(tmp_path: Path, data: dict[str, str | None]) -> None:
    (tmp_path / BEST_FILE).write_text(json.dumps({"attention": {"csp": {"words": ["optim.lr=0.01"]}}} | data))
    with pytest.raises(ConfigError, match=r"best.json does not name its data; give the command of this tune again"):
        with_tuned([f"optim=tuned:{tmp_path}/csp"])
