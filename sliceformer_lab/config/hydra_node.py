"""What is read of the node `hydra`: folders, the options of a study, and search paths.

Nothing else of it has an effect: options are composed by Hydra's `compose`, which calls nothing that the node names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sliceformer_lab.config.compose import no_such_option, option_names
from sliceformer_lab.errors import ConfigError

FOLDERS = ("hydra.run.dir", "hydra.sweep.dir")
READ = (*FOLDERS, "hydra.searchpath")  # of a command line


def check_hydra_words(words: Sequence[str]) -> None:
    """Raises ConfigError for a word of a command line that sets something else in the node `hydra`."""
    keys = [word.lstrip("+~").partition("=")[0] for word in words]
    for key in keys:
        if key.replace("/", ".").partition(".")[0] == "hydra" and key not in READ:
            raise ConfigError(
                f"{key}: the command line takes only these options of Hydra: {', '.join(READ)}; leave it out"
            )


def check_hydra_node(hydra: Mapping[str, Any]) -> None:
    """Raises ConfigError with every fault of a composed node: a choice that is none, and no folder.

    A file whose name begins with _ is a part of options, and .. leaves the folders of options.
    """
    faults = [
        no_such_option(group, str(name), option_names(group))
        for group, name in hydra["runtime"]["choices"].items()
        if any(part.startswith(("_", "..")) for part in str(name).split("/"))
    ]
    for place in FOLDERS:
        given = hydra[place.split(".")[1]]
        if "dir" in given and not str(given["dir"]).strip():  # a run has no folder of a sweep
            faults.append(f"{place}: given {given['dir']!r}, should be a folder")
    if faults:
        raise ConfigError("; ".join(faults))
