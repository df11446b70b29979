"""One command of the command line, as data: its help, its options and its job."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from omegaconf import DictConfig

from sliceformer_lab.cli.help import PROGRAM, Sections, page, root_options
from sliceformer_lab.cli.jobs import Job


@dataclass(frozen=True, kw_only=True)
class Command:
    """A command: `word` is its name, and conf/`word`.yaml holds its options. Training has no word."""

    word: str
    summary: str  # a line, for its own --help and for that of the program
    arguments: str = "[KEY=VALUE ...]"
    examples: Mapping[str, str]  # arguments -> what they do
    sections: Callable[[], Sections] = dict  # of its help, after the examples
    job: Callable[[DictConfig, Path], float | None]  # called with the composed options and the job's folder
    implied: Callable[[Sequence[str]], list[str]] = lambda _: []  # overrides that follow from the given ones
    bare_word: str | None = None  # the option that an argument without = sets, such as a report's folder
    after_sweep: Callable[[Sequence[Job]], None] | None = None  # called once all jobs of a sweep have ended

    @property
    def config_name(self) -> str:
        """The root configuration: conf/NAME.yaml."""
        return self.word or "config"

    def help_text(self) -> str:
        """The text of its --help."""
        call = f"{PROGRAM} {self.word}".strip()
        sections = {
            "Examples": {f"{call} {words}".strip(): effect for words, effect in self.examples.items()},
            **self.sections(),
            "Options with their defaults": root_options(self.config_name),
        }
        return page(self.summary, f"{call} {self.arguments}", sections)

    def override(self, argument: str) -> str:
        """An argument as Hydra's KEY=VALUE."""
        if self.bare_word is None or argument.startswith("~") or ("=" in argument and not Path(argument).exists()):
            return argument
        quoted = argument.replace("'", r"\'")
        return f"{self.bare_word}='{quoted}'"
