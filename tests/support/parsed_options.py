"""YAML that OmegaConf has parsed before: composing a configuration reads some thirty files, most of them each time."""

from __future__ import annotations

from functools import cache
from typing import Any, TextIO

import yaml
from omegaconf._utils import get_yaml_loader

YAMLError, dump = yaml.YAMLError, yaml.dump  # what else OmegaConf uses of the module in whose place this one stands


@cache
def _parsed(text: str) -> Any:
    return yaml.load(text, Loader=get_yaml_loader())


def load(stream: str | TextIO, Loader: type[yaml.SafeLoader]) -> Any:  # noqa: N803  the name that OmegaConf gives
    """What `yaml.load` returns; its errors name the file. OmegaConf copies what it gets."""
    text = stream if isinstance(stream, str) else stream.read()
    try:
        return _parsed(text)
    except yaml.YAMLError:
        if not isinstance(stream, str):
            stream.seek(0)
        return yaml.load(stream, Loader=Loader)
