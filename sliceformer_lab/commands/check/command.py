"""The command `check`. Imports nothing heavy."""

from __future__ import annotations

from pathlib import Path

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from sliceformer_lab.cli.command import Command
from sliceformer_lab.cli.jobs import resolve_options
from sliceformer_lab.config.schema import check_node


def job(cfg: DictConfig, folder: Path) -> None:
    """Validate the options, check the attention and print a table. Raises LabError if it breaks a rule."""
    del folder  # nothing is written
    name = str(HydraConfig.get().runtime.choices["attention"])
    node = resolve_options(cfg)["attention"]
    check_node(node, "attention")
    from sliceformer_lab.commands.check.run_checks import check_contract

    check_contract(name, node)


COMMAND = Command(
    word="check",
    summary="Check an attention against the contract that all attentions keep: padding, gradients, precision, cost.",
    arguments="[attention=NAME] [KEY=VALUE ...]",
    examples={
        "attention=csp": "an attention of this package",
        "attention=csp attention.group_size=4": "with other options",
        "--config-dir conf attention=my_attn 'allow_targets=[my_attn.]'": "your own: conf/attention/my_attn.yaml",
    },
    job=job,
)
