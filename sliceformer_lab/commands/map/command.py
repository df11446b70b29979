"""The command `map`. Imports nothing heavy."""

from __future__ import annotations

from pathlib import Path

from omegaconf import DictConfig

from sliceformer_lab.cli.command import Command
from sliceformer_lab.cli.jobs import check_attentions, command_options, launcher_node
from sliceformer_lab.cli.passed_words import with_passed_words
from sliceformer_lab.commands.compare.command_words import USE_OF_COMMANDS
from sliceformer_lab.commands.map.map_options import MapOptions

FILES = {
    "report/map.png": "attentions by probes: mean test score, and the steps to .99",
    "report/map.md, map.jsonl": "the table, a sentence for each attention, and every run; a line for each cell",
    "runs/*": "the run folders",
}
REFUSED = {
    "task": "the probes are the tasks; choose among them by probe=",
    "recipe": "the probes have a recipe of their own; leave it out",
    "study": "a map is a sweep of its own; leave it out",
    "resume": "each run is new; leave it out",
    "mode": "each run is new; leave it out",
    "score_test": "runs that choose a rate never score the test set, reporting runs always; leave it out",
    "optim.lr": "the map chooses it; give rates=[...]",
    "optim.stop_at": "the map counts the steps to .99; leave it out",
}


def job(cfg: DictConfig, folder: Path) -> None:
    """Validate the options, train what is left of the map, and draw it. Raises LabError."""
    del folder  # it is the option of this name
    options = command_options(cfg, MapOptions, COMMAND.config_name, except_node="launcher")
    check_attentions(options.attentions)
    from sliceformer_lab.commands.map.map_runs import run_map

    run_map(options, launcher_node(cfg).build())


COMMAND = Command(
    word="map",
    summary="Train attentions on all probes and draw what each can do: attentions by probes.",
    arguments="[KEY=VALUE ...]",
    examples={
        "attention=mha,csp,sliceformer,identity": "all probes, learning rate chosen for each cell, three new seeds",
        "attention=mha,samsa probe=recall,back seeds=10 launcher.jobs=8": "two probes, ten seeds, eight runs at once",
        "attention=mha,identity data.level=easy": "small probes, to see that everything works",
    },
    sections=lambda: {"When to use which": USE_OF_COMMANDS, "Written to FOLDER": FILES},
    job=job,
    own_words=lambda words: with_passed_words(words, "map", {"attention": "attentions", "probe": "probes"}, REFUSED),
)
