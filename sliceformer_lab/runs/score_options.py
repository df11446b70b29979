"""Which options of a run can change what it scores, and which only say where and how it computes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

# whose options can change a score
SCORED_NODES = ("attention", "block", "encoder", "task", "optim", "data", "pretrain")
# where the examples lie, and how they are loaded
LOADING_OPTIONS = (
    *("data.root", "data.file", "data.val_file", "data.test_file", "data.name", "data.download", "data.verify"),
    *("data.num_workers", "data.processes", "data.eval_batch_size"),
)
LIMITS = ("data.limit_train", "data.limit_eval")  # null: all examples
# where and how fast the trainer computes
COMPUTING_OPTIONS = (
    *("trainer.accelerator", "trainer.strategy", "trainer.deterministic", "trainer.benchmark"),
    *("trainer.log_every_n_steps", "trainer.profiler"),
)
# of conf/callbacks: they watch or save a run
OBSERVERS = ("guard", "epoch_seed", "checkpoints", "throughput", "progress", "spectrum")


def score_options(config: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a configuration that can change what its run scores, by their path."""
    nodes = {name: config[name] or {} for name in SCORED_NODES} | {"callbacks": changing_callbacks(config)}
    return {path: value for path, value in flat_options(nodes) if path not in LOADING_OPTIONS}


def identity_of(config: Mapping[str, Any]) -> dict[str, Any]:
    """The seed of a run and its options that can change the score; two runs with other ones are different runs."""
    return {"seed": config["seed"], **score_options(config)}


def describe_limits(options: Mapping[str, Any]) -> str:
    """What options, by their path, leave of an epoch's batches, to be put after the sizes of the data; '' for all."""
    found = ""
    for name, part in (("limit_train_batches", "training"), ("limit_val_batches", "validation")):
        limit = options.get(f"trainer.{name}")
        if isinstance(limit, float) and limit < 1:
            found += f", only {limit:.3g} of the {part} batches"
        elif isinstance(limit, int):
            found += f", at most {limit:,} {part} batches"
    return found


def changing_callbacks(config: Mapping[str, Any]) -> dict[str, Any]:
    """The options of the callbacks that can change a score, by name; the class of one without options."""
    found = {}
    for name, node in config["callbacks"].items():
        if name not in OBSERVERS:
            options = {key: value for key, value in node.items() if key != "_target_"}
            found[name] = options or node["_target_"]
    return found


def flat_options(node: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Options by their path, such as encoder.depth, with their values."""
    for key, value in node.items():
        if isinstance(value, dict):
            yield from flat_options(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def tidy_options(node: Mapping[str, Any]) -> dict[str, Any]:
    """The `flat_options`, whole numbers as integers: 0.0 and 0 are one value."""
    return {path: int(value) if _is_whole(value) else value for path, value in flat_options(node)}


def _is_whole(value: object) -> bool:
    return isinstance(value, float) and value.is_integer() and abs(value) < 2**53
