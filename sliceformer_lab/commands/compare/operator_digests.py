"""The digests of attentions, by which a folder of runs finds that an operator is no longer what its runs trained."""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sliceformer_lab.attention import Attention
from sliceformer_lab.config.hybrid import attention_nodes


def operator_digest(node: Mapping[str, Any]) -> str:
    """sha256 of an attention's node and of the files of its classes."""
    content = json.dumps([node, source_digests(node)], sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()


def source_digests(node: Mapping[str, Any]) -> dict[str, str]:
    """sha256 of the files of an attention's classes by module, without the one that all attentions share."""
    kinds = {kind for layer in attention_nodes(node) for kind in layer.target.__mro__ if issubclass(kind, Attention)}
    files = {kind.__module__: inspect.getfile(kind) for kind in kinds - {Attention}}
    return {module: hashlib.sha256(Path(file).read_bytes()).hexdigest() for module, file in sorted(files.items())}
