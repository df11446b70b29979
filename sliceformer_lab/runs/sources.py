"""The user's own files by absolute path, with digests of their bytes: data, tokenizer, weights, options and code."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from sliceformer_lab.config.compose import load_option, own_option_files
from sliceformer_lab.config.explain import job_config
from sliceformer_lab.config.hybrid import hybrid_members
from sliceformer_lab.config.plain_checks import own_paths, value_at
from sliceformer_lab.config.plugins import package_files, plugins
from sliceformer_lab.config.schema import allowed_too
from sliceformer_lab.data.table_files import table_rows
from sliceformer_lab.errors import ConfigError, DataError
from sliceformer_lab.runs.commit import git_commit
from sliceformer_lab.runs.files import digest_of, digest_of_files
from sliceformer_lab.runs.pretraining_folder import PretrainingFolder
from sliceformer_lab.runs.sweep import override_key

DATA_KEYS = ("task", "recipe", "scale", "data", "paths")  # first parts of the keys that decide which data a run reads
# keys that decide which pretrained weights it reads
WEIGHT_KEYS = ("encoder", "encoder.init", "encoder.init_file", "pretrain", "pretrain.path")
IMAGE_TABLE = "sliceformer_lab.data.images.image_table.ImageTable"
IMAGES = " (images)"  # after the path of a table: the images that it names

# Absolute path of a file or folder, or that of a table with IMAGES -> sha256 of the content.
Sources = Mapping[str, str]


def sources_of(config: Mapping[str, Any]) -> dict[str, str]:
    """The user's own files and folders that a resolved configuration names; a published set has none.

    Missing ones are left out, which `missing_files` reports.
    """
    paths = [Path(path).expanduser().resolve() for path in own_paths(config).values()]
    return {str(path): _digest_of_source(path) for path in paths if path.exists()} | _named_images(config)


def _digest_of_source(path: Path) -> str:
    """The digest of a file or folder; of a pretraining, that of its weights, beside which runs write."""
    found = PretrainingFolder.find(path)
    return digest_of(found.weights if found else path)


def _named_images(config: Mapping[str, Any]) -> dict[str, str]:
    """The images that a table of images names, as one source; none for a table that the run will refuse."""
    keys = ("_target_", "file", "root", "image_column")
    target, file, start, column = (value_at(config, f"data.{key}") for key in keys)
    if target != IMAGE_TABLE or not (isinstance(file, str) and isinstance(start, str)):
        return {}
    table = Path(file).expanduser().resolve()
    root = table.parent / Path(start).expanduser()
    try:
        names = {Path(row[column]) for _, row in table_rows(table) if isinstance(row.get(column), str)}
    except (DataError, OSError):
        return {}
    return {f"{table}{IMAGES}": digest_of_files(root, (name for name in names if (root / name).is_file()))}


def sources_of_words(words: Sequence[str]) -> dict[str, str]:
    """`sources_of` a run with these words of a command line; none for words that cannot be composed."""
    try:
        return sources_of(job_config(data_words(words)))
    except ConfigError:  # the command itself reports it
        return {}


def sources_of_options(words: Sequence[str], root: Mapping[str, Any]) -> dict[str, str]:
    """The user's own option files that these words compose `root` of, and the code that its nodes name.

    Code is the whole package of an allowed target, such as `my_lab.py` or `my_lab/**/*.py` of `my_lab.attention.Mine`.
    """
    lines = [words, *([f"attention={name}"] for name in hybrid_members(root.get("attention")))]
    files = itertools.chain(*map(own_option_files, lines), _own_code(root))
    return {str(file): digest_of(file) for file in files}


def code_version(config: Mapping[str, Any]) -> str | None:
    """The commit of this code, and + with a digest of the user's own code that a configuration names."""
    commit, own = git_commit(), own_code_digest(config)
    return f"{commit or 'unknown'}+{own}" if own else commit


def own_code_digest(config: Mapping[str, Any]) -> str:
    """Eight digits of the user's own code that a configuration names; empty if it names none."""
    own = [digest_of(file) for file in _own_code(config)]
    return hashlib.sha256("".join(own).encode()).hexdigest()[:8] if own else ""


def _own_code(config: Mapping[str, Any]) -> list[Path]:
    """The Python files of the allowed packages and plugins that the nodes of a configuration name."""
    allowed = (*allowed_too(), *(f"{plugin.package}." for plugin in plugins()))
    names = hybrid_members(config.get("attention")) if allowed else ()
    targets = named_targets({**config, **{name: load_option("attention", name) for name in names}})
    own = {target.split(".")[0] for target in targets if target.startswith(allowed)}
    return [file for package in sorted(own) for file in package_files(package)]


def named_targets(node: Any) -> Iterator[str]:
    """The classes and functions that the nodes of a configuration name."""
    for key, value in node.items() if isinstance(node, dict) else ():
        if key == "_target_":
            yield str(value)
        elif isinstance(value, dict):
            yield from named_targets(value)


def data_words(words: Sequence[str]) -> tuple[str, ...]:
    """The words that decide which data and weights a run reads, sorted."""
    keys = {word: override_key(word) for word in words}
    return tuple(sorted(word for word, key in keys.items() if key.split(".")[0] in DATA_KEYS or key in WEIGHT_KEYS))


def digests_of(sources: Sources) -> list[str]:
    """What decides whether two plans are of the same data: the content, wherever it lies."""
    return sorted({str(digest) for digest in sources.values()})


def check_sources(sources: Sources, words: Sequence[str]) -> None:
    """Raises DataError if the content of a source is not the recorded one or is gone; `words` are those of a job."""
    named = sources_of_words(words) if any(name.endswith(IMAGES) for name in sources) else {}
    for name, digest in sources.items():
        path = Path(name)
        if name.endswith(IMAGES):
            found: str | None = named.get(name, digest)  # of another job's table: looked at before that job
        else:
            found = _digest_of_source(path) if path.exists() else None
        if found != digest:
            change = "has changed" if found else "is gone"
            raise DataError(f"{name} {change} since its runs were planned; the command plans new runs for new data")
