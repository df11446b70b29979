"""Opens a pretrained model from local files, encodes its inputs, and saves it."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import timm
import torch
from PIL import Image
from safetensors.torch import save_file
from timm.data.config import resolve_data_config
from timm.data.transforms_factory import create_transform
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor

from sliceformer_lab.commands.swap.swap_options import SwapOptions
from sliceformer_lab.data.spec import Content, ContentKind
from sliceformer_lab.errors import ConfigError
from sliceformer_lab.runs.files import write_json
from sliceformer_lab.training.heal import Inputs


class LibraryModel(ABC):
    """A model of another library: `model` is saved, and its `trunk(model)` gives the last hidden states."""

    model: Any
    kind: ContentKind

    @abstractmethod
    def trunk(self, model: Any) -> Any:
        """The part of such a model that heals."""

    @abstractmethod
    def encode(self, contents: Sequence[Content]) -> Inputs:
        """A batch of inputs."""

    @abstractmethod
    def classes(self, model: Any, inputs: Inputs) -> Tensor | None:
        """The class (B,) that the model gives each input, or None for a model without classes."""

    @abstractmethod
    def save(self, model: Any, folder: Path, note: dict[str, Any]) -> str:
        """Writes the model. Returns the Python that opens it."""


class TextModel(LibraryModel):
    """A folder of Transformers."""

    kind = "text"

    def __init__(self, options: SwapOptions) -> None:
        """Raises ConfigError if Transformers is not installed or cannot open the folder as a text model."""
        try:
            import transformers
        except ImportError:
            raise ConfigError(f"model={options.model} needs Transformers: pip install transformers") from None
        transformers.utils.logging.disable_progress_bar()  # type: ignore[no-untyped-call]
        folder, local = Path(options.model).expanduser(), {"local_files_only": True}
        try:
            names = json.loads((folder / "config.json").read_text("utf-8")).get("architectures") or ["AutoModel"]
            self.model = getattr(transformers, names[0]).from_pretrained(folder, **local).eval()
            self.tokenizer = transformers.AutoTokenizer.from_pretrained(folder, **local, padding_side="right")
        except (OSError, ValueError, AttributeError, KeyError, RuntimeError) as error:
            raise ConfigError(f"model={options.model} cannot be opened: {str(error).splitlines()[0]}") from error
        own = getattr(self.model.config, "max_position_embeddings", None) or self.tokenizer.model_max_length
        self.max_len = min(options.max_len or own, own, self.tokenizer.model_max_length)

    def trunk(self, model: Any) -> Any:
        return model.base_model

    def encode(self, contents: Sequence[Content]) -> Inputs:
        limits = {"truncation": True, "max_length": self.max_len, "padding": True, "return_tensors": "pt"}
        return dict(self.tokenizer(list(contents), **limits))

    def classes(self, model: Any, inputs: Inputs) -> Tensor | None:
        if model.config.problem_type not in (None, "single_label_classification"):  # numbers or labels
            return None
        logits: Tensor | None = getattr(model(**inputs), "logits", None)  # type: ignore[arg-type]  # always a mapping
        return None if logits is None or logits.dim() != 2 or logits.shape[1] == 1 else logits.argmax(1)

    def save(self, model: Any, folder: Path, note: dict[str, Any]) -> str:
        del note  # Transformers' configuration holds it
        model.save_pretrained(folder)
        self.tokenizer.save_pretrained(folder)
        name = type(model).__name__
        return f"model = sliceformer_lab.swap(transformers.{name}.from_pretrained({str(folder)!r}))"


class ImageModel(LibraryModel):
    """A ViT of timm with weights from a file."""

    kind = "picture"

    def __init__(self, options: SwapOptions) -> None:
        """Raises ConfigError for a name that timm lacks, for no ViT, and for weights that do not fit."""
        self.name = options.model
        if not timm.is_model(self.name.split(".")[0]):
            raise ConfigError(f"model={self.name}: there is no such folder, and timm has no model of this name")
        if options.max_len is not None:
            raise ConfigError(f"max_len={options.max_len} is for texts; a ViT has a fixed number of patches")
        try:
            model = timm.create_model(self.name, checkpoint_path=Path(str(options.weights)).expanduser())
        except (OSError, RuntimeError, ValueError) as error:
            raise ConfigError(f"weights={options.weights} do not fit: {str(error).splitlines()[0]}") from error
        if not isinstance(model, VisionTransformer):
            raise ConfigError(
                f"model={self.name} is no plain ViT of timm, but {type(model).__name__}; choose a vit_..."
            )
        self.model = model.eval()

    @cached_property
    def transform(self) -> Any:
        """From a picture to a tensor (3, H, W), as the weights expect it."""
        return create_transform(**resolve_data_config({}, model=self.model))  # type: ignore[no-untyped-call]

    def trunk(self, model: Any) -> Any:
        return model

    def encode(self, contents: Sequence[Content]) -> Inputs:
        return torch.stack([self.transform(Image.fromarray(np.asarray(content))) for content in contents])

    def classes(self, model: Any, inputs: Inputs) -> Tensor | None:
        found: Tensor | None = model(inputs).argmax(1) if model.num_classes > 1 else None
        return found

    def save(self, model: Any, folder: Path, note: dict[str, Any]) -> str:
        folder.mkdir(parents=True, exist_ok=True)
        save_file({name: weight.contiguous() for name, weight in model.state_dict().items()}, folder / WEIGHTS)
        write_json(folder / "config.json", {"architecture": self.name, "swap": note})
        options = ", ".join(f"{key}={value!r}" for key, value in note.items() if key != "name")
        return (
            f"model = sliceformer_lab.swap(timm.create_model({self.name!r}), {note['name']!r}, {options})\n"
            f"model.load_state_dict(safetensors.torch.load_file({str(folder / WEIGHTS)!r}))"
        )


WEIGHTS = "model.safetensors"


def open_model(options: SwapOptions) -> LibraryModel:
    """The model that `options` name, from local files. Raises ConfigError."""
    return TextModel(options) if options.is_folder else ImageModel(options)
