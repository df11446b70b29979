"""The command `swap`. Imports nothing heavy."""

from __future__ import annotations

from pathlib import Path

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from sliceformer_lab.cli.command import Command
from sliceformer_lab.cli.jobs import resolve_options
from sliceformer_lab.commands.swap.swap_options import (
    HealingInputs,
    LabelledInputs,
    SwapOptions,
    check_places,
    chosen_numbers,
)
from sliceformer_lab.config.compose import load_option
from sliceformer_lab.config.schema import check_node, check_options

FILES = {
    "config.json, model.safetensors": "the healed model; AutoModel.from_pretrained, then sliceformer_lab.swap(model)",
    "report.md, report.json": "errors by layer, agreement with the original and times; with labelled.file a verdict",
    "healing.pt": "only until it has healed: the same command goes on from it",
}


def job(cfg: DictConfig, folder: Path) -> None:
    """Validate the options, swap and heal the model, and write it with a report. Raises LabError."""
    del folder
    plain = {key: value for key, value in resolve_options(cfg).items() if key not in ("paths", "allow_targets")}
    name, node = str(HydraConfig.get().runtime.choices["attention"]), plain.pop("attention")
    check_node(node, "attention")
    inputs: HealingInputs = check_options(HealingInputs, plain.pop("data"), "data").build()
    labelled: LabelledInputs = check_options(LabelledInputs, plain.pop("labelled"), "labelled").build()
    options: SwapOptions = check_options(SwapOptions, plain, COMMAND.config_name).build()
    layers = chosen_numbers(options.layers)
    check_places(options, inputs, labelled)
    own = load_option("attention", name)
    overrides = {key: value for key, value in node.items() if key not in own or own[key] != value}
    rows = {name: overrides}
    if labelled.file is not None:
        for control in options.controls:
            load_option("attention", control)  # raises ConfigError for an unknown name
            rows.setdefault(control, {})
    from sliceformer_lab.commands.swap.swap_and_heal import swap_and_heal

    swap_and_heal(options, inputs, labelled, layers, rows)


COMMAND = Command(
    word="swap",
    summary="Exchange attentions of a pretrained model, heal it on unlabelled inputs, and say whether it was worth it.",
    arguments="model=FOLDER data.file=FILE [attention=NAME] [KEY=VALUE ...]",
    examples={
        "model=minilm attention=csp data.file=texts.csv": "all layers of the model in the folder minilm",
        "model=minilm layers=3-5 data.file=texts.csv max_len=128": "layers 3 to 5, for texts of at most 128 tokens",
        "model=minilm data.file=texts.csv labelled.file=task.csv": "and a verdict: accuracy by layers, beside controls",
        "model=vit_tiny_patch16_224 weights=vit.safetensors data.file=pictures": "a timm ViT, healed on a folder",
    },
    sections=lambda: {"Written to OUTPUT": FILES},
    job=job,
)
