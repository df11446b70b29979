"""The options of the command `swap`: the schema of conf/swap.yaml, and what can be checked before torch is imported."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from sliceformer_lab.config.option_types import Count, Name, Positive, Seed
from sliceformer_lab.errors import ConfigError

WEIGHT_FILES = ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin")


@dataclass(frozen=True, kw_only=True)
class HealingInputs:
    """The node `data` of conf/swap.yaml."""

    file: str
    column: str | None = None  # None: text
    limit: Count | None = None
    held_out: Count = 64


@dataclass(frozen=True, kw_only=True)
class LabelledInputs:
    """The node `labelled` of conf/swap.yaml."""

    file: str | None = None
    column: str | None = None  # None: text
    label: str | None = None  # None: label
    limit: Count = 1000


@dataclass(frozen=True, kw_only=True)
class SwapOptions:
    """The options of conf/swap.yaml, `data` and `labelled` aside."""

    model: str
    weights: str | None = None
    layers: str | int | list[int] | None = None
    keep_qk: bool = False
    max_len: Count | None = None
    controls: tuple[Name, ...] = ("random_permutation", "identity")
    batch_size: Count = 8
    passes: Count = 1
    lr_layers: Positive = 1e-3
    lr_together: Positive = 1e-4
    seed: Seed = 0
    output: str = "swapped"

    @property
    def is_folder(self) -> bool:
        """Whether the model is a folder of Transformers, not the name of a timm ViT."""
        return Path(self.model).expanduser().is_dir()


def chosen_numbers(layers: str | int | list[int] | None) -> list[int] | None:
    """The layers that `layers` means: 0-5, 3 or [0, 2]. Raises ConfigError for other words."""
    if isinstance(layers, int):
        return [layers]
    if isinstance(layers, str):
        ends = re.fullmatch(r"(\d+)-(\d+)", layers.strip())
        if ends is None or int(ends[1]) > int(ends[2]):
            raise ConfigError(f"layers={layers}: give a range such as 0-5, a number, or a list such as [0,2]")
        return list(range(int(ends[1]), int(ends[2]) + 1))
    if layers is not None and (not layers or len(set(layers)) < len(layers) or min(layers) < 0):
        raise ConfigError(f"layers={layers}: give each layer once, as a number from 0, or null for all")
    return layers


def check_places(options: SwapOptions, inputs: HealingInputs, labelled: LabelledInputs) -> None:
    """Raises ConfigError for a model, weights or inputs that are not there, and for a finished output."""
    folder, file = Path(options.model).expanduser(), Path(inputs.file).expanduser()
    if options.is_folder:
        if not (folder / "config.json").is_file() or not any((folder / name).is_file() for name in WEIGHT_FILES):
            raise ConfigError(
                f"model={options.model}: the folder needs config.json and {WEIGHT_FILES[0]}, as save_pretrained writes "
                "them; name a model that is on this machine"
            )
        if options.weights is not None:
            raise ConfigError(f"weights={options.weights} is for a timm ViT; a folder has its own weights")
    elif "/" in options.model:
        raise ConfigError(f"model={options.model}: there is no such folder; nothing is downloaded, so name one")
    elif options.weights is None or not Path(options.weights).expanduser().is_file():
        missing = "" if options.weights is None else f"; weights={options.weights} is missing"
        raise ConfigError(
            f"model={options.model} is no folder; for a timm ViT of this name give weights=FILE, a file of its weights "
            f"on this machine{missing}"
        )
    if not file.exists():
        raise ConfigError(f"data.file={inputs.file} is missing; name a file with texts or a folder of pictures")
    if labelled.file is not None and not Path(labelled.file).expanduser().exists():
        raise ConfigError(f"labelled.file={labelled.file} is missing; name a table of texts with labels, or a folder")
    if (Path(options.output).expanduser() / "report.json").exists():
        raise ConfigError(f"output={options.output} holds a finished swap; name a new folder")
