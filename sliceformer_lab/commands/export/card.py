"""The card of an exported model: what it is, how it was trained and scored, how to load it."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any

from sliceformer_lab.commands.export.export_options import Format
from sliceformer_lab.commands.export.program import Lengths, Written
from sliceformer_lab.runs.plain_text import format_score, markdown_table, one_line
from sliceformer_lab.training.build import build_data
from sliceformer_lab.training.saved.same_data import check_saved_encoder
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
    "executorch": """from executorch.runtime import Runtime

model = Runtime.get().load_program("FOLDER/model.pte").load_method("forward")
outputs = model.execute([{arguments}])[0]""",
}


MEANING = {  # of the outputs, by `DataSpec.targets`; preprocessing.json has the names and thresholds
    "class": " They are the logits of `classes` in preprocessing.json.",
    "labels": " They are the logits of `targets` in preprocessing.json. The run predicts a label where the sigmoid of "
    "its logit is above its entry in `thresholds`.",
    "numbers": " They are the numbers `targets` in preprocessing.json, in their own unit.",
    "pixels": " They are the logits of `classes` in preprocessing.json, along the second axis.",
}


def model_card(run: Run, form: Format, written: Written, copied: Sequence[str]) -> str:
    """The Markdown of the card."""
    summary, spec = run.summary, run.spec
    protocol = summary["protocol"]
    arguments = "inputs, lengths" if spec.ragged else "inputs"
    example = run.model.example().inputs
    free = written.lengths is not None and not written.lengths.is_fixed
    batch = "1" if form == "executorch" else "B"
    shape = ", ".join([batch, *map(str, ["N", *example.shape[2:]] if free else example.shape[1:])])
    official = "" if protocol.get("official") is not False else ", not checked against a published copy"
    number = protocol.get("num_train")
    examples = "" if number is None else f", {number:,} training examples"  # a probe draws them without end
    facts = {
        "task": summary["task"],
        "data": f"{protocol['data']}{examples}{official}",
        "attention": _with_options(str(summary["attention"]), summary["options"]["attention"]),
        "encoder": _with_options("", summary["options"]["encoder"]),
        "parameters": f"{summary['parameters']:,}",
        "seeds": f"seed {summary['seed']}, split seed {summary['split_seed']}",
        "selection": protocol["selection"],
        "recipe": summary.get("recipe") or "none",
        "command": f"`sliceformer-lab {shlex.join(summary['command'])}`" if "command" in summary else "unknown",
        "versions": ", ".join(f"{name} {number}" for name, number in summary["versions"].items()),
        "commit": summary.get("git_commit") or "unknown",
    }
    scores = [[name, format_score(value)] for name, value in summary["metrics"].items()]
    padding = f"; `lengths` ({batch},) int64 counts the real tokens, padding follows them" if spec.ragged else ""
    batches = "Inputs come one at a time" if batch == "1" else "The batch size may vary"
    lines = [
        f"# {summary['name']}",
        "",
        f"Exported by sliceformer_lab as {form}.",
        "",
        markdown_table(["", ""], *([name, one_line(value).replace("|", r"\|")] for name, value in facts.items())),
        "",
        markdown_table(["metric of the scored epoch", ""], *scores),
        "",
        "## Use",
        "",
        "```python",
        LOAD[form].format(arguments=arguments),
        "```",
        "",
        f"`inputs` ({shape}) {str(example.dtype).removeprefix('torch.')}, preprocessed as in the evaluation of the run"
        f"{padding}. {batches}. The outputs equal those of the run's model up to a relative difference of "
        f"{written.difference:.1e}, on random inputs.{MEANING.get(spec.targets, '')}",
        *(["", sentence_of_lengths(written.lengths)] if written.lengths is not None else []),
        *_rule_of_inputs(run, example.shape[1]),
        *(["", f"For the preprocessing: {', '.join(f'`{name}`' for name in copied)}."] if copied else []),
    ]
    return "\n".join(lines) + "\n"


def sentence_of_lengths(lengths: Lengths) -> str:
    """Which lengths the inputs may have."""
    if lengths.is_fixed:
        return f"Inputs have exactly {lengths.longest} tokens, padding included: fill up shorter ones."
    *first, last = map(str, lengths.samples())
    compared = f"; the outputs were compared at {', '.join(first)} and {last}"
    return f"Inputs have {lengths.shortest} to {lengths.longest} tokens, padding included{compared}."


def _rule_of_inputs(run: Run, longest: int) -> list[str]:
    """The lines on how a text or a series becomes `inputs`; [] for other data."""
    data = build_data(run.plan, run.folder)
    check_saved_encoder(run.folder, data)
    rule = getattr(data, "rule_of_ids", None) or getattr(data, "rule_of_inputs", None)
    return ["", f"As `inputs`, {rule}. Cut them to {longest} and fill up with 0, which is padding."] if rule else []


def _with_options(name: str, options: dict[str, Any]) -> str:
    words = ", ".join(f"{key}={value}" for key, value in options.items() if value is not None)
    return f"{name} ({words})" if name and words else name or words
