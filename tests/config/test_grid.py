"""Every task with every attention: miniature official files, one training step, one scored batch, or a refusal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from support import task_modules

from sliceformer_lab.batch import Batch
from sliceformer_lab.config.compose import compose_root, load_option, option_names
from sliceformer_lab.config.hybrid import attention_nodes
from sliceformer_lab.config.schema import MODEL_NODES, ConfigError, construct
from sliceformer_lab.data.spec import DataSpec
from sliceformer_lab.training.build import build_task

SIZE = 32  # pixels, for the tasks that scale their images


def task_nodes(task: str) -> dict[str, Any]:
    """The nodes of a task with a small encoder, and patches that keep the sequence short."""
    composed = compose_root([f"task={task}", "encoder=tiny", "encoder.dim=32"])
    nodes = {key: composed[key] for key in ("task", *MODEL_NODES)}
    if "patch_size" in nodes["task"] and task not in ("digits", "mnist"):
        nodes["task"]["patch_size"] = 8
    return nodes


def can_take(name: str, data: DataSpec, *, bias: bool) -> bool:
    """Whether all layers of an attention accept the padding of the data, and a bias if there is one."""
    layers = [layer.target for layer in attention_nodes(load_option("attention", name))]
    return all(
        (layer.accepts_padding or not data.ragged)
        and (layer.accepts_bias or not bias)
        and (layer.accepts_causal or not data.predicts_next)
        for layer in layers
    )


# one task of each kind of data and head; the others differ from them in their data only
QUICK = ("digits", "lra_retrieval", "modelnet40", "peptides_func", "shapenet_part", "text_csv", "zinc")
TASKS = [pytest.param(task, marks=[] if task in QUICK else pytest.mark.slow) for task in option_names("task")]


@pytest.mark.parametrize("task", TASKS)
def test_every_attention_learns_a_step_of_a_task_or_is_refused(task: str, tmp_path: Path) -> None:
    data = task_modules.ready(task, tmp_path, image_size=SIZE, batch_size=4, bucket=False)
    batch: Batch = next(iter(data.train_dataloader()))
    assert len(batch) == 4 and (batch.padding is not None) == data.spec.ragged
    nodes = task_nodes(task)
    taken = {
        name for name in option_names("attention") if can_take(name, data.spec, bias=nodes["task"].get("bias", False))
    }
    assert {"mha", "csp"} & taken
    for name in option_names("attention"):
        torch.manual_seed(0)
        if name not in taken:
            with pytest.raises(ConfigError, match="cannot take; attentions that can: "):
                build_task(nodes | {"attention": load_option("attention", name)}, data.spec)
            continue
        model = build_task(nodes | {"attention": load_option("attention", name)}, data.spec)
        loss = model.loss(model(batch), batch.target)
        loss.backward()
        assert loss.isfinite(), name
        without = [n for n, p in model.named_parameters() if p.grad is None]
        assert not without, f"{name} leaves {without} without a gradient, which stops distributed training"
        model.optim.build_optimizer(model).step()
        with torch.no_grad():
            assert model.eval()(batch).isfinite().all(), name


GRAPHS = {
    "qm9_gap": [],
    "zinc": [],
    "pcqm4m": [],
    "molecule_csv": ["data.file=molecules.csv", "data.targets=[gap]", "data.kind=regression"],
    "peptides_func": [],
    "peptides_struct": [],
}


@pytest.mark.parametrize("task", GRAPHS)
def test_a_task_on_graphs_that_passes_no_bias_takes_every_attention(task: str) -> None:
    no_bias = [] if task.startswith("peptides") else ["task.bias=false"]
    composed = compose_root([f"task={task}", "encoder=tiny", *no_bias, *GRAPHS[task]])
    spec = construct(composed["data"], where="data").spec
    assert spec.ragged
    for name in option_names("attention"):
        if can_take(name, spec, bias=False):
            with torch.device("meta"):
                build_task(composed | {"attention": load_option("attention", name)}, spec)
    assert can_take("identity", spec, bias=False) and can_take("linformer", spec, bias=False)


def test_a_task_on_graphs_that_passes_a_bias_refuses_linformer() -> None:
    composed = compose_root(["task=zinc", "encoder=tiny", "attention=linformer"])
    with pytest.raises(ConfigError, match="zinc passes a pairwise bias, which Linformer cannot take"):
        build_task(composed, construct(composed["data"], where="data").spec)
