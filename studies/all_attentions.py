"""Every attention on pictures and on texts of many lengths: three seeds, parameters and speed (docs/attentions.md)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
from results import RESULTS

from sliceformer_lab.runs.plain_text import markdown_table

FILE = RESULTS / "all_attentions.json"
CONTROLS = ("identity", "mean", "pooling", "random_mixing", "random_permutation", "depthwise_conv")
OTHERS = (
    *("mha", "csp", "csp_shift_only", "csp_random_order", "csp_gated", "sliceformer", "sliceformer_reference", "samsa"),
    *("agent", "bigbird", "cosformer", "differential", "espformer", "fnet", "gmlp", "hsm", "hydra", "linear"),
    *("linformer", "lion", "lion_selective", "local", "longformer", "luna", "matrix_dense", "matrix_low_rank"),
    *("matrix_toeplitz", "matrix_toeplitz_data", "mlp_mixer", "performer", "polaformer", "rala", "reformer", "s4d"),
    *("shift", "sinkformer", "sinkhorn", "sliced_relu", "softpick", "sparse", "synthesizer", "token_reshape"),
)
SEEDS = (0, 1, 2)
WORDS = {  # task -> options of its runs
    "digits": "task=digits optim.epochs=8 encoder.position_std=1.0",
    "text_csv": (
        "task=text_csv data.file=TABLE data.split_column=split data.limit_train=4000 data.max_len=64 "
        "data.batch_size=32 encoder=tiny encoder.dropout=0.2 encoder.embed_dropout=0.3 optim.epochs=2 optim.lr=3e-3"
    ),
}
TITLES = {"digits": "digits", "text_csv": "AG News"}
FIXED = "seed=0,1,2 callbacks=minimal pictures=false reference=null"
Result = Mapping[str, Any]
TEXT = """\
## Trained side by side

The table has the mean test accuracy in percent of the seeds 0, 1 and 2 (lowest to highest). *digits*: pictures of 16
patches, 8 epochs, positions from N(0, 1), {digits} test pictures. *AG News*: 4,000 training texts of up to 64 word
pieces in batches of similar length, two epochs, two layers of 64 channels, {text_csv} test texts. All rows have one
recipe and one learning rate per task, which was tuned for none of them. So the table shows that each attention
trains, and what it costs. **It is no ranking**: three seeds cannot order rows that are a point apart, another
learning rate may change a row, and small models on short sequences say little about large ones. Compare a row with
the controls (*italic*) first. With 16 tokens `local`, `longformer`, `sparse` and `sinkhorn` read all tokens, so they
equal `mha`; `lion` without decay equals `linear`. `mega` and `csp_causal` were not run. `pooling` subtracts a token
from the mean of its neighbours, which loses much of a text.

Parameters are those of the whole model; in the second task most of them are word vectors. Speed is samples per second
of processor time, for training steps without the loader, on one thread of {processor} (torch {torch}; load {load:.1f}
on {cores} cores before the start; median of {rounds} rounds in which all took turns; [measured
once](../studies/README.md#measured-once)). The runs are two sweeps with one thread each; TABLE has the texts of AG
News (text, label, split). Every run is in
[studies/results/all_attentions.json](../studies/results/all_attentions.json).

```bash
{commands}
```
"""


def section() -> str:
    """Heading, text and table of the page."""
    results = read()
    sizes = {run["task"]: f"{run['num_test']:,}" for run in results["runs"]}
    lines = []
    for name in (*CONTROLS, *sorted(OTHERS)):
        cells = [f"*`{name}`*" if name in CONTROLS else f"`{name}`"]
        for task in WORDS:
            runs = [run for run in results["runs"] if (run["task"], run["attention"]) == (task, name)]
            cells += _cells(runs, results["samples_per_second"][task][name])
        lines.append(cells)
    columns = [f"{title}{unit}" for title in TITLES.values() for unit in ("", ": parameters", ": samples/s")]
    sweep = f"python -m sliceformer_lab -m attention={','.join((*CONTROLS, *OTHERS))} {FIXED}"
    commands = "\n".join(f"{sweep} {words}" for words in WORDS.values())
    text = TEXT.format(**sizes, **results["machine"], commands=commands)
    return f"{text}\n{markdown_table(['attention', *columns], *lines)}"


def _cells(runs: list[Result], speed: float) -> list[str]:
    scores = sorted(100 * run["accuracy"] for run in runs)
    missing = "" if len(runs) == len(SEEDS) else f", {len(runs)} seeds"
    accuracy = f"{np.mean(scores):.1f} ({scores[0]:.1f} to {scores[-1]:.1f}{missing})"
    return [accuracy, f"{runs[0]['parameters'] / 1e3:,.0f} K", f"{speed:,.0f}"]


def read() -> dict[str, Any]:
    """The committed results."""
    found: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
    return found
