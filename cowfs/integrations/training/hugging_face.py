"""A callback for the Trainer of Hugging Face: each checkpoint that it saves is a version, with the
step and the last logged metrics as labels.

    with Volume.open("run-17", create=True) as run:
        last = cowfs.checkpoints(run).resume()
        args = TrainingArguments(output_dir=run / "out", save_total_limit=2)
        trainer = Trainer(model, args, train_dataset=data, callbacks=[CommitCheckpoints(run)])
        trainer.train(resume_from_checkpoint=last is not None)

The Trainer writes and rotates its folders `checkpoint-STEP` before it calls the callback, so a
version never has half of one. Rank 0 commits, after all ranks have written.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from transformers import TrainerCallback

from cowfs.blocking import Checkpoints, RWVolume, checkpoints
from cowfs.integrations.training import processes

_Callback: Any = TrainerCallback


class CommitCheckpoints(_Callback):  # type: ignore[misc] # untyped where transformers is not installed
    """volume: mounted; the Trainer's `output_dir` is below the mount. busy, labels: as for
    `cowfs.checkpoints`. The error of a commit is raised at the next checkpoint, or at the end of
    the training."""

    def __init__(self, volume: RWVolume, *, busy: Any = "wait", labels: Mapping[str, Any] | None = None) -> None:
        self._volume = volume
        self._options: dict[str, Any] = {"busy": busy, "labels": labels}
        self._saver: Checkpoints = checkpoints(volume, **self._options)

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        processes.require_one_machine()
        processes.require_below(self._volume, args.output_dir)
        self._saver = checkpoints(self._volume, **self._options)

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if args.world_size > 1:
            import torch.distributed

            torch.distributed.barrier()
        if state.is_world_process_zero:
            self._saver.save(state.global_step, **_last_metrics(state.log_history))

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._saver.close()


def _last_metrics(history: list[dict[str, Any]]) -> dict[str, float]:
    """The numbers logged at the last step that was logged."""
    found: dict[str, float] = {}
    for entry in history:
        if entry.get("step") != found.get("logged_step"):
            found = {"logged_step": entry.get("step", 0)}
        found |= {name: value for name, value in entry.items() if isinstance(value, int | float) and name != "step"}
    return found
