"""Whether a finished pretraining fits a run, and the copy of its weights into a new model."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from sliceformer_lab.config.checked import RunPlan
from sliceformer_lab.errors import DataError, RunFolderError
from sliceformer_lab.runs.folder import read_checkpoint
from sliceformer_lab.runs.pretraining_folder import PretrainingFolder
from sliceformer_lab.training.interfaces import DataModule, TaskModule

# options of data that decide which examples are held out, or how many there are
SHARES = ("split_seed", "val_fraction", "test_fraction", "split_column")
NUMBERS = ("max_nodes", "invalid", "num_examples", "num_val", "num_test", "partition")
LABELS = ("label_column", "labels_separator", "kind")  # of a table without its own splits, which are drawn by class
OWN_FILES = ("val_file", "test_file")  # where one is null, its examples are held out from the training file
LOADER_OPTIONS = {  # change no test example
    *("batch_size", "eval_batch_size", "num_workers", "limit_train"),
    *("augment", "bucket_share", "memory", "processes", "download"),
}


@dataclass(frozen=True)
class Pretrained(PretrainingFolder):
    """A finished pretraining that a run starts from."""

    keep_attention: bool = True  # False: the parameters of the attentions stay new, and only their buffers are copied

    def check_fits(self, plan: RunPlan) -> None:
        """Raises RunFolderError for a pretraining of another attention, or one that saw what this run holds out."""
        for node in ("attention", "block"):
            if self.facts["model"].get(node) != plan.model.plain[node]:
                raise RunFolderError(
                    f"pretrain.path: {self.folder} was pretrained with another {node}; give the {node} options of "
                    "that run, or pretrain anew"
                )
        before, now = self.facts.get("data", {}), plan.plain["data"]
        if before.get("_target_") == now.get("_target_"):
            is_drawn = now.get("split_column") is None and now.get("test_file") is None
            own_files = (name for name in OWN_FILES if now.get(name) is None)
            for option in (*SHARES, *NUMBERS, *own_files, *(LABELS if is_drawn else ())):
                if before.get(option) != now.get(option):
                    raise RunFolderError(
                        f"pretrain.path: {self.folder} was pretrained with data.{option}={before.get(option)}, so it "
                        f"may have seen test examples of this run; give the same data.{option}, or pretrain anew"
                    )

    def check_data(self, plan: RunPlan, data: DataModule) -> None:
        """Raises RunFolderError if its tokens have other ids than those of `data`, or if the test data have changed."""
        before = self.facts.get("data", {})
        name = str(before.get("_target_")).rpartition(".")[2]
        theirs = read_checkpoint(self.weights).get(name, {})
        try:
            data.check_encoding(theirs)
        except DataError as error:
            raise RunFolderError(f"pretrain.path={self.folder}: {error}") from error
        deciding = plan.plain["data"].keys() - LOADER_OPTIONS
        same = all(before.get(option) == plan.plain["data"][option] for option in deciding)
        if same and theirs.get("digests", {}).get("test") != data.digests()["test"]:
            raise RunFolderError(
                f"pretrain.path: the test examples have changed since {self.folder} was pretrained, so it may have "
                "seen those of this run; pretrain anew"
            )

    @property
    def metrics(self) -> dict[str, float | None]:
        """Its validation metrics; None for one that is not a number, as where all of a position have one value."""
        return dict(self.facts.get("metrics", {}))

    def load_into(self, task: TaskModule) -> None:
        """Copies the encoder, the embeddings and their buffers into a new task; its head and CLS token stay new.

        Raises RunFolderError if sizes differ.
        """
        saved = read_checkpoint(self.weights)["state_dict"]
        names = task.kept_weights()
        if not self.keep_attention:
            names -= {name for name, _ in task.named_parameters() if ".attention." in name}
        own = task.state_dict()
        for name in sorted(names):
            before = saved.get(f"task.{name}")
            if before is None or before.shape != own[name].shape:
                size = "nothing" if before is None else tuple(before.shape)
                raise RunFolderError(
                    f"{self.weights} belongs to another model: it has {size} as {name}, and this one needs "
                    f"{tuple(own[name].shape)}; give the sizes that were pretrained"
                )
        with torch.no_grad():
            for name in names:
                own[name].copy_(saved[f"task.{name}"])
