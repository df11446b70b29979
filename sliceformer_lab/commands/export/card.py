"""The card of an exported model: what it is, how it was trained and scored, how to load it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sliceformer_lab.commands.export.export_options import Format
from sliceformer_lab.training.saved.saved_run import Run

LOAD = {
    "safetensors": """from sliceformer_lab import load_export

model = load_export("FOLDER")  # a torch module in evaluation mode
outputs = model(model.example())  # of a sliceformer_lab.batch.Batch""",
    "torch_export": """import torch

model = torch.export.load("FOLDER/model.pt2").module()  # needs torch only
outputs = model({arguments})""",
    "onnx": """import onnxruntime

model = onnxruntime.InferenceSession("FOLDER/model.onnx")
names = [value.name for value in model.get_inputs()]
outputs = model.run(None, dict(zip(names, [{arguments}])))[0]""",
}


def model_card(run: Run, form: Format, difference: float, copied: Sequence[str]) -> str:
    """The Markdown of the card."""
    summary, spec = run.summary, run.data.spec
    protocol = summary.get("protocol", {})
    arguments = "inputs, lengths" if spec.ragged else "inputs"
    example = run.model.example().inputs
    shape = ", ".join(["B", *map(str, example.shape[1:])])
    official = "" if protocol.get("official") is not False else ", not checked against a published copy"
    facts = {
        "task": summary["task"],
        "data": f"{protocol.get('data', spec.name)}, {protocol.get('num_train', 0):,} training examples{official}",
        "attention": _with_options(str(summary["attention"]), summary["options"]["attention"]),
        "encoder": _with_options("", summary["options"]["encoder"]),
        "parameters": f"{summary.get('parameters', 0):,}",
        "seeds": f"seed {summary['seed']}, split seed {summary['split_seed']}",
        "selection": protocol.get("selection", run.config["selection"]),
        "recipe": summary.get("recipe") or "none",
        "command": f"`sliceformer-lab {' '.join(summary['command'])}`",
        "versions": ", ".join(f"{name} {number}" for name, number in summary["versions"].items()),
        "commit": summary.get("git_commit") or "unknown",
    }
    metrics = [f"| {name} | {value:.4f} |" for name, value in summary.get("metrics", {}).items()]
    lengths = "; `lengths` (B,) int64 are the numbers of real tokens, padding follows them" if spec.ragged else ""
    lines = [
        f"# {summary['name']}",
        "",
        f"Exported by sliceformer_lab as {form}.",
        "",
        "| | |",
        "|---|---|",
        *(f"| {name} | {_cell(value)} |" for name, value in facts.items()),
        "",
        "| metric of the scored epoch | |",
        "|---|---|",
        *metrics,
        "",
        "## Use",
        "",
        "```python",
        LOAD[form].format(arguments=arguments),
        "```",
        "",
        f"`inputs` ({shape}) {str(example.dtype).removeprefix('torch.')}, preprocessed as in the evaluation of the run"
        f"{lengths}. The batch size may vary. The outputs equal those of the run's model up to {difference:.1e} "
        "of the largest output, on random inputs.",
        *(["", _rule_of_ids(tokens.rule, spec.max_len)] if (tokens := getattr(run.data, "tokenizer", None)) else []),
        *(["", f"For the preprocessing: {', '.join(f'`{name}`' for name in copied)}."] if copied else []),
    ]
    return "\n".join(lines) + "\n"


def _rule_of_ids(rule: str, max_len: int | None) -> str:
    return f"As `inputs`, {rule}. Cut them to {max_len} and fill up with 0, which is padding."


def _with_options(name: str, options: dict[str, Any]) -> str:
    words = ", ".join(f"{key}={value}" for key, value in options.items() if value is not None)
    return f"{name} ({words})" if name and words else name or words


def _cell(value: object) -> str:
    return str(value).replace("|", r"\|").replace("\n", " ")
