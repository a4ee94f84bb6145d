"""A ModelCheckpoint for Lightning that commits what it has written, with the step, the epoch and
the logged metrics as labels.

    with Volume.open("run-17", create=True) as run:
        last = cowfs.checkpoints(run).resume()
        trainer = Trainer(callbacks=[CommitCheckpoints(run, save_last=True)])
        trainer.fit(model, data, ckpt_path=run / "checkpoints" / "last.ckpt" if last else None)

A commit follows each of Lightning's hooks in which a checkpoint was saved: then the links and
removals of that hook are done, too. Rank 0 commits; `Trainer.save_checkpoint` returns when all
ranks have written.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

try:
    from lightning.pytorch.callbacks import ModelCheckpoint
    from lightning.pytorch.plugins.io import AsyncCheckpointIO
except ImportError:  # the older name of the package
    from pytorch_lightning.callbacks import ModelCheckpoint
    from pytorch_lightning.plugins.io import AsyncCheckpointIO

from cowfs.blocking import Checkpoints, RWVolume, checkpoints
from cowfs.errors import CowfsError, InvalidInputError
from cowfs.integrations.training import processes

FOLDER = "checkpoints"
_ModelCheckpoint: Any = ModelCheckpoint


class CommitCheckpoints(_ModelCheckpoint):  # type: ignore[misc] # untyped where lightning is not installed
    """volume: mounted. dirpath: below the mount; None: its folder `checkpoints`. busy, labels: as
    for `cowfs.checkpoints`; options: those of ModelCheckpoint. The error of a commit is raised at
    the next checkpoint, or at the end of the training."""

    def __init__(
        self,
        volume: RWVolume,
        *,
        dirpath: Any = None,
        busy: Any = "wait",
        labels: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(dirpath=volume.path / FOLDER if dirpath is None else dirpath, **options)
        processes.require_below(volume, self.dirpath)
        self._saver: Checkpoints = checkpoints(volume, busy=busy, labels=labels)
        self._is_due = False

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        processes.require_one_machine()
        if isinstance(trainer.strategy.checkpoint_io, AsyncCheckpointIO):
            raise InvalidInputError(
                "AsyncCheckpointIO writes checkpoints after Lightning has reported them",
                hint="Leave it out: commits run in a thread already.",
            )
        super().setup(trainer, pl_module, stage)

    def _save_checkpoint(self, trainer: Any, filepath: str) -> None:
        super()._save_checkpoint(trainer, filepath)
        self._is_due = True

    def on_train_batch_end(self, trainer: Any, *given: Any, **named: Any) -> None:
        super().on_train_batch_end(trainer, *given, **named)
        self._commit(trainer)

    def on_train_epoch_end(self, trainer: Any, *given: Any, **named: Any) -> None:
        super().on_train_epoch_end(trainer, *given, **named)
        self._commit(trainer)

    def on_validation_end(self, trainer: Any, *given: Any, **named: Any) -> None:
        super().on_validation_end(trainer, *given, **named)
        self._commit(trainer)

    def on_train_end(self, trainer: Any, *given: Any, **named: Any) -> None:
        super().on_train_end(trainer, *given, **named)
        self._commit(trainer)
        self._saver.wait()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        super().on_exception(trainer, pl_module, exception)
        try:
            self._commit(trainer)
            self._saver.wait()
        except CowfsError as error:  # the training's own error is the one that Lightning raises
            exception.add_note(f"The last checkpoint was not committed: {error}")

    def _commit(self, trainer: Any) -> None:
        if self._is_due and trainer.is_global_zero:
            metrics = {name: value for name, value in trainer.callback_metrics.items() if name != "step"}
            self._saver.save(trainer.global_step, **{"epoch": trainer.current_epoch, **metrics})
        self._is_due = False
