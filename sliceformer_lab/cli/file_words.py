"""The command line that a file records is data: it chooses options, and brings no code and no folder of options."""

from __future__ import annotations

import re
from collections.abc import Sequence

from sliceformer_lab.cli.arguments import ALLOW, ALLOWING, SEARCH_PATH, parse_arguments
from sliceformer_lab.config.compose import option_names, search_path
from sliceformer_lab.config.schema import allowed_too
from sliceformer_lab.errors import ConfigError
from sliceformer_lab.runs.sweep import override_key, quote_path

PLANNING_COMMANDS = ("tune", "audit", "map")  # beside training; other commands write where their words say
SWEEP_DIR = "hydra.sweep.dir"
KNOWN_FLAGS = ("multirun", "config_dir")
PLAIN_LAUNCHER = re.compile(r"launcher\.\w+=\d+")
# Keys that bring code, shell commands or another folder, at the start of a word, in zip(...) or in a list; and secrets.
_BRINGS_CODE = re.compile(
    r"allow_targets|(^|[(,\s'\"+~])(hydra|launcher|sweep|words|resume|mode)\s*[./@=]|@[\w.]+=|\$\{"
)


def words_of_file(command: Sequence[str], file: str) -> list[str]:
    """The words of a recorded command, without the folder that it writes to.

    `allow_targets` and folders of options are those of this command line in place of the file's. Raises ConfigError
    for a word that could bring code.
    """
    named = [*command[:1]] if command and command[0] in PLANNING_COMMANDS else []
    try:
        args = parse_arguments(command[len(named) :])
    except ConfigError as error:
        raise ConfigError(f"{file} holds a command that cannot be read: {error}") from error
    words = [word for word in args.overrides if override_key(word) not in (*ALLOWING, SWEEP_DIR)]
    flags = [f"--{name}" for name, value in vars(args).items() if value and name not in ("overrides", *KNOWN_FLAGS)]
    if foreign := [*flags, *filter(_brings_code, words)]:
        raise ConfigError(f"{file} names {foreign[0]!r}, which is not taken from a file; start its command yourself")
    folders = search_path()
    given = {override_key(word) for word in args.overrides}
    if ALLOW in given and not allowed_too():
        raise ConfigError(
            f"{file} names packages; if you trust them, add allow_targets=[PACKAGE.] to this command line"
        )
    if (args.config_dir or SEARCH_PATH in given) and not folders:
        raise ConfigError(f"{file} names a folder of options; if you trust it, add --config-dir FOLDER")
    allowed = [f"{ALLOW}=[{','.join(map(quote_path, allowed_too()))}]"] if allowed_too() else []
    return [*named, *(["-m"] if args.multirun else []), *words, *allowed, *folders]


def _brings_code(word: str) -> bool:
    if override_key(word) == "launcher":
        return word.partition("=")[2] not in option_names("launcher")
    is_word = "=" in word or word.startswith(("~", "zip(", "skip("))
    return not is_word or (_BRINGS_CODE.search(word) is not None and not PLAIN_LAUNCHER.fullmatch(word))
