"""Tasks with attentions: miniature official files, one training step, one scored batch, or a refusal."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from support import task_modules
from support.fake_gpu import FakeGPU
from support.plans import build_data, build_task

from sliceformer_lab.batch import Batch
from sliceformer_lab.config.compose import compose_job, compose_root, load_option, option_names
from sliceformer_lab.config.hybrid import attention_nodes
from sliceformer_lab.config.schema import MODEL_NODES, ConfigError, build_object
from sliceformer_lab.data.spec import DataSpec
from sliceformer_lab.training.interfaces import TaskModule

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
        and (layer.accepts_causal or data.targets != "next tokens")
        for layer in layers
    )


FEW = ("mha", "csp", "sliceformer", "samsa", "mega")
KINDS = ("lra_retrieval", "modelnet40", "peptides_func", "shapenet_part", "zinc")  # one task of each kind of data


def chosen_attentions(task: str) -> list[str]:
    """The attentions that learn a step of a task.

    All of them learn a grid of fixed size and texts of any length; a fifth learns each other kind of data, another
    fifth each time, and a few each of them; further tasks of a kind have two.
    """
    names = option_names("attention")
    if task in ("digits", "text_csv"):
        return names
    if task not in KINDS:
        return ["mha", "csp"]
    turn = KINDS.index(task)
    return [name for i, name in enumerate(names) if name in FEW or (i + turn) % len(KINDS) == 0]


def small_batch(task: str, folder: Path) -> tuple[DataSpec, Batch]:
    """The sizes of a task's data, and four examples of miniature official files."""
    data = task_modules.ready(task, folder, image_size=SIZE, batch_size=4, bucket=False)
    return data.spec, next(iter(data.train_dataloader()))


def check_learns(model: TaskModule, batch: Batch, name: str) -> None:
    """A training step, with a gradient for every parameter, and a scored batch."""
    loss = model.loss(model(batch), batch.target)
    loss.backward()
    assert loss.isfinite(), name
    without = [n for n, p in model.named_parameters() if p.grad is None]
    assert not without, f"{name} leaves {without} without a gradient, which stops distributed training"
    model.optim.build_optimizer(model).step()
    with torch.no_grad():
        assert model.eval()(batch).isfinite().all(), name


def check_small_scale(task: str, spec: DataSpec) -> None:
    """A run at the small scale has known options, builds, and sees all its examples; on the meta device."""
    config = compose_job([f"task={task}", "scale=small", "attention=mha"])
    assert set(config["data"]) == set(task_modules.data_node(task))
    is_own = task.endswith(("_csv", "_folder")) or task in ("torchvision", "pyg", "text_lm")  # sizes are read from disk
    config["data"] |= {name: "unused" for name in ("root", "file") if name in config["data"]}
    data = build_data(config)
    with torch.device("meta"):
        built = build_task(config, spec if is_own else data.spec)
    steps = built.optim.last_step
    assert 4 <= built.num_tokens() <= 2048
    assert data.limit_train <= steps * data.batch_size, "some examples would never be seen"


@pytest.mark.parametrize("task", option_names("task"))
def test_attentions_learn_a_step_of_a_task_or_are_refused(task: str, tmp_path: Path) -> None:
    spec, batch = small_batch(task, tmp_path)
    check_small_scale(task, spec)
    assert len(batch) == 4 and (batch.padding is not None) == spec.ragged
    nodes = task_nodes(task)
    for name in chosen_attentions(task):
        torch.manual_seed(0)
        if can_take(name, spec, bias=nodes["task"].get("bias", False)):
            check_learns(build_task(nodes | {"attention": load_option("attention", name)}, spec), batch, name)
        else:
            with pytest.raises(ConfigError, match="cannot take; attentions that can: "):
                build_task(nodes | {"attention": load_option("attention", name)}, spec)


def test_every_attention_is_chosen_for_several_kinds_of_data() -> None:
    for name in option_names("attention"):
        assert sum(name in chosen_attentions(task) for task in ("digits", "text_csv", *KINDS)) >= 3, name


def models(task: str, spec: DataSpec) -> Iterator[tuple[str, TaskModule]]:
    """The model of a task with each of a few attentions that can take its data."""
    nodes = task_nodes(task)
    for name in FEW:
        if can_take(name, spec, bias=nodes["task"].get("bias", False)):
            torch.manual_seed(0)
            yield name, build_task(nodes | {"attention": load_option("attention", name)}, spec)


@pytest.mark.gpu
@pytest.mark.parametrize("task", option_names("task"))
def test_a_task_learns_two_steps_on_a_gpu(task: str, tmp_path: Path) -> None:
    spec, batch = small_batch(task, tmp_path)
    for name, model in models(task, spec):
        for precision in (torch.float32, torch.bfloat16):
            with torch.autocast("cuda", precision, enabled=precision is torch.bfloat16):
                check_learns(model.to("cuda").train(), batch.to("cuda"), name)


@pytest.mark.slow
@pytest.mark.parametrize("task", option_names("task"))
def test_a_task_mixes_no_tensor_of_the_cpu_into_those_of_a_gpu(task: str, tmp_path: Path) -> None:
    spec, batch = small_batch(task, tmp_path)
    for _, model in models(task, spec):
        with FakeGPU() as gpu:
            gpu.put_module(model)
            on_gpu = gpu.put_record(batch)
            assert model.loss(model(on_gpu), on_gpu.target).device.type == "cuda"


GRAPHS = {  # a task of molecules in files of its own kind, one of a table, and one of peptides
    "zinc": [],
    "molecule_csv": ["data.file=molecules.csv", "data.targets=[gap]", "data.kind=regression", "data.descriptors=none"],
    "peptides_func": [],
}


@pytest.mark.parametrize(("turn", "task"), enumerate(GRAPHS))
def test_a_task_on_graphs_that_passes_no_bias_takes_every_attention(turn: int, task: str) -> None:
    """The attentions take turns: each is built for one of the tasks, and a few for all of them."""
    no_bias = [] if task.startswith("peptides") else ["task.bias=false"]
    composed = compose_root([f"task={task}", "encoder=tiny", *no_bias, *GRAPHS[task]])
    spec = build_object(composed["data"], where="data").spec
    assert spec.ragged
    for i, name in enumerate(option_names("attention")):
        if (name in FEW or i % len(GRAPHS) == turn) and can_take(name, spec, bias=False):
            with torch.device("meta"):
                build_task(composed | {"attention": load_option("attention", name)}, spec)
    assert can_take("identity", spec, bias=False) and can_take("linformer", spec, bias=False)
