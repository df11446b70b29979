"""One command of the command line, as data: its help, its options and its job."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from omegaconf import DictConfig

from sliceformer_lab.cli.help import PROGRAM, Sections, page, root_options
from sliceformer_lab.runs.sweep import Sweep, quote_path


@dataclass(frozen=True, kw_only=True)
class Command:
    """A command: `word` is its name, and conf/`word`.yaml holds its options. Training has no word."""

    word: str
    summary: str  # a line, for its own --help and for that of the program
    arguments: str = "[KEY=VALUE ...]"
    examples: Mapping[str, str]  # arguments -> what they do
    sections: Callable[[], Sections] = dict  # of its help, after the examples
    job: Callable[[DictConfig, Path], None]  # called with the composed options and the job's folder
    implied: Callable[[Sequence[str]], list[str]] = lambda _: []  # overrides that follow from the given ones
    own_words: Callable[[Sequence[str]], list[str]] = list  # the given words as options of conf/`word`.yaml
    bare_words: tuple[str, ...] = ()  # the options that arguments without = set in turn, such as a report's folder
    sweeps: bool = False  # whether several values of an option are jobs of a sweep; other commands take one value
    writes_log: bool = True  # whether its log is also a file in the job's folder
    after_sweep: Callable[[Sweep], None] = lambda _: None  # called once no job of a sweep is left to do

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

    def overrides(self, arguments: Sequence[str]) -> tuple[str, ...]:
        """The arguments as KEY=VALUE."""
        names, words = list(self.bare_words), []
        for argument in arguments:
            if names and not argument.startswith("~") and ("=" not in argument or Path(argument).exists()):
                words.append(f"{names.pop(0)}={quote_path(argument)}")
            else:
                words.append(argument)
        return tuple(words)
