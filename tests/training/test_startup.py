"""A run imports only the packages that it needs."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path

from support.other_process import run_python
from support.runs import SMALL, last_of_each

UNNEEDED = {  # by a run of digits, before its first batch; Lightning's torchmetrics imports matplotlib and scipy itself
    *("joblib", "pandas", "rdkit", "sklearn", "timm", "torch_geometric", "wandb"),
    # torchmetrics imports transformers where it is installed, which imports these
    *(() if find_spec("transformers") else ("huggingface_hub", "tokenizers")),
}
CALLBACK = """
import json, os, sys
from pathlib import Path
from pytorch_lightning import Callback

class ListModules(Callback):
    def __init__(self, *, file: str):
        self.file = file

    def on_train_batch_start(self, *args):
        Path(self.file).write_text(json.dumps(sorted(sys.modules)))
        os._exit(0)
"""


def test_a_run_of_digits_imports_no_other_packages_before_its_first_batch(tmp_path: Path) -> None:
    (tmp_path / "list_modules.py").write_text(CALLBACK)
    file = tmp_path / "modules.json"
    options = ["allow_targets=[list_modules.]", f"paths.outputs={tmp_path}"]
    callback = f"+callbacks.last={{_target_: list_modules.ListModules, file: '{file}'}}"
    words = last_of_each([*SMALL, "callbacks=default", "attention=csp", *options, callback])
    done = run_python("-m", "sliceformer_lab", *words, PYTHONPATH=str(tmp_path))
    assert done.returncode == 0, done.stderr
    imported = set(json.loads(file.read_text()))
    assert {"torch", "pytorch_lightning", "torchmetrics"} <= imported
    assert sorted(imported & UNNEEDED) == []
