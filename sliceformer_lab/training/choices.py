"""Chooses the options that a configuration leaves open: batch size, epochs, precision and what a data module adds."""

from __future__ import annotations

from sliceformer_lab.config.checked import RunPlan
from sliceformer_lab.data.spec import Choice
from sliceformer_lab.training.interfaces import DataModule
from sliceformer_lab.training.optim import OptimOptions
from sliceformer_lab.training.precision import choose_precision
from sliceformer_lab.training.processes.other_processes import num_processes


def with_choices(plan: RunPlan, data: DataModule) -> tuple[RunPlan, list[Choice]]:
    """The plan with every option that follows from the data, and these choices; the plan never changes after it.

    Prepares the data if there is something to choose. The data module uses its own choices already. Raises DataError.
    """
    choices = data.choices()
    optim: OptimOptions = plan.model.optim.build()
    if optim.epochs is None and optim.steps is None:
        choices.append(_epochs(optim, data, num_processes(plan.trainer)))
    if plan.trainer.precision == "auto":
        choices.append(choose_precision(plan, data))
    return plan.with_options({choice.option: choice.value for choice in choices}) if choices else plan, choices


def _epochs(optim: OptimOptions, data: DataModule, processes: int) -> Choice:
    data.prepare_data()
    data.setup()
    examples, per_step = len(data.splits["train"]), data.train_batch_size * optim.accumulate * processes
    steps_per_epoch = examples // per_step  # with optim.accumulate an epoch has whole steps only
    if optim.accumulate == 1:
        steps_per_epoch = -(-(examples // processes) // data.train_batch_size)
    factor = data.step_factor
    epochs = optim.epochs_for(steps_per_epoch, factor)
    steps = f"{epochs * steps_per_epoch:,} steps of {per_step} examples; optim.target_steps={optim.target_steps}"
    steps += f", {factor} times as many for short texts" if factor > 1 else ""
    limits = f"{optim.least_epochs} to {optim.most_epochs or 'any number of'} epochs"
    return Choice("optim.epochs", epochs, f"{steps}, {limits}")
