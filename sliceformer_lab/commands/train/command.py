"""The command without a word: train, or score a finished run again."""

from __future__ import annotations

from sliceformer_lab.cli.help import help_text
from sliceformer_lab.cli.jobs import training_job
from sliceformer_lab.cli.main import Command
from sliceformer_lab.runs.resume import saved_task

TRAIN = Command("config", help_text, training_job, saved_task)
