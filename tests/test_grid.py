"""Every task with every attention: miniature official files, one training step, one scored batch."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import image_modules
import pytest
import torch

from sliceformer_lab.batch import Batch
from sliceformer_lab.build import build_task
from sliceformer_lab.compose import compose_root, load_option, option_names
from sliceformer_lab.config import MODEL_NODES

SIZE = 32  # pixels, for the tasks that scale their images


@cache
def attention_node(name: str) -> dict[str, Any]:
    return load_option("attention", name)


def task_nodes(task: str) -> dict[str, Any]:
    """The nodes of a task with a small encoder, and patches that keep the sequence short."""
    composed = compose_root([f"task={task}", "encoder=tiny", "encoder.dim=32"])
    nodes = {key: composed[key] for key in ("task", *MODEL_NODES)}
    if task not in ("digits", "mnist"):
        nodes["task"]["patch_size"] = 8
    return nodes


@pytest.mark.parametrize("task", option_names("task"))
def test_every_attention_learns_a_step_of_a_task(task: str, tmp_path: Path) -> None:
    data = image_modules.ready(task, tmp_path, image_size=SIZE, batch_size=4)
    whole: Batch = next(iter(data.train_dataloader()))
    batch = Batch(whole.inputs[:4], whole.target[:4], whole.ids[:4])
    nodes = task_nodes(task)
    for name in option_names("attention"):
        torch.manual_seed(0)
        model = build_task(nodes | {"attention": attention_node(name)}, data.spec)
        loss = model.loss(model(batch), batch.target)
        loss.backward()
        assert loss.isfinite(), name
        without = [n for n, p in model.named_parameters() if p.grad is None]
        assert not without, f"{name} leaves {without} without a gradient, which stops distributed training"
        model.optim.build_optimizer(model).step()
        with torch.no_grad():
            assert model.eval()(batch).isfinite().all(), name
