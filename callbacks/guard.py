"""Stops a run at a NaN or infinite loss, and after a stop signal."""

from __future__ import annotations

from typing import Any, ClassVar

from pytorch_lightning import Callback, LightningModule, Trainer
from pytorch_lightning.trainer.states import TrainerFn
from torch import Tensor

from sliceformer_lab.errors import DivergedError
from sliceformer_lab.training.context import RunContext
from sliceformer_lab.training.processes.other_processes import any_process, record_first_error
from sliceformer_lab.training.processes.signals import catch_signals, first_signal, interruption_of_run


class Guard(Callback):
    """Turns a NaN or infinite loss, and a stop signal during training, into errors that a run records.

    The first signal stops the run before the next batch, once the checkpoint of its place is saved; a second signal
    stops it at once. Without this, Lightning reports success for a NaN loss and ends on SIGTERM with exit code 0 and
    no checkpoint. In a distributed run all processes raise together; otherwise the others would wait forever.
    """

    late_devices: ClassVar[tuple[str, ...]] = ("cuda",)  # reading a loss would wait for the step; the last one is known

    def __init__(self, context: RunContext) -> None:
        self._folder, self._resume = context.folder, context.resume or context.folder
        self._unread: tuple[Tensor, str] | None = None  # the loss of the last step, and the place of the step

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Replaces Lightning's signal handlers; Lightning restores the earlier ones when the fit ends."""
        catch_signals(later=True)

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Replaces Lightning's signal handlers, which wait for the other processes of a distributed run."""
        catch_signals(later=trainer.state.fn == TrainerFn.FITTING)
        self._check_unread(trainer)

    def on_test_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Replaces Lightning's signal handlers, which wait for the other processes of a distributed run."""
        catch_signals(later=False)

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Writes the first error of a distributed run down, before it closes the connection to the others."""
        catch_signals(later=False)
        if trainer.world_size > 1:
            record_first_error(self._folder, trainer.global_rank, exception)

    def on_before_backward(self, trainer: Trainer, pl_module: LightningModule, loss: Tensor) -> None:
        """Raises DivergedError before a NaN or infinite loss changes the weights; on a GPU, one step later."""
        self._check_unread(trainer)
        self._unread = loss.detach(), f"epoch {_running_epoch(trainer)}, step {trainer.global_step}"
        if loss.device.type not in self.late_devices:
            self._check_unread(trainer)

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        """Raises Interrupted if a signal has arrived, but not while gradients accumulate."""
        if batch_idx % trainer.accumulate_grad_batches == 0:
            self._stop_after_signal(trainer)

    def on_save_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        """Raises DivergedError for NaN or infinite weights, which would replace those that can be resumed."""
        weights = checkpoint["state_dict"].values()
        if any_process(trainer, not all(bool(w.isfinite().all()) for w in weights if w.is_floating_point())):
            raise DivergedError(
                f"the weights became NaN or infinite in epoch {_running_epoch(trainer)}, by step "
                f"{trainer.global_step}; the checkpoints before are kept; try a lower optim.lr, a warm-up or "
                "optim.clip_norm"
            )

    def on_validation_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Raises Interrupted if a signal arrived during the validation batch."""
        self._stop_after_signal(trainer)

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Raises Interrupted if a signal arrived after the last batch; `last.ckpt` is complete by then."""
        catch_signals(later=False)
        if any_process(trainer, first_signal() is not None):
            raise interruption_of_run("before scoring", self._resume)

    def _check_unread(self, trainer: Trainer) -> None:
        if self._unread is None:
            return
        (loss, place), self._unread = self._unread, None
        if any_process(trainer, not loss.isfinite()):
            raise DivergedError(
                f"the training loss became {loss.item()} in {place}; "
                "the best checkpoint so far is kept; try a lower optim.lr, a warm-up or optim.clip_norm"
            )

    def _stop_after_signal(self, trainer: Trainer) -> None:
        if any_process(trainer, first_signal() is not None):
            where = f"in epoch {_running_epoch(trainer)}, step {trainer.global_step}"
            raise interruption_of_run(where, self._resume)


def _running_epoch(trainer: Trainer) -> int:
    """The number of the running epoch, from 1 as in the lines of progress."""
    return trainer.current_epoch + 1
