"""A callback for Ray Train: each checkpoint that all workers have reported is a version, with the
metrics of rank 0 as labels; without a metric `step`, the number of the report is the step.

    with Volume.open("run-17", create=True) as run:
        config = RunConfig(storage_path=str(run.path), callbacks=[CommitCheckpoints(run)])
        TorchTrainer(train, run_config=config).fit()

The label `checkpoint` is the folder of the checkpoint in the version, which is whole. The training
does not wait for the callback, which runs in Ray's controller. So a version can also have files of
a later checkpoint, whole or not: resume from the one that the label names.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from ray.train import UserCallback

from cowfs.blocking import RWVolume, Volume, checkpoints
from cowfs.integrations.training import processes

_Callback: Any = UserCallback


class CommitCheckpoints(_Callback):  # type: ignore[misc] # untyped where ray is not installed
    """volume: mounted on the machine of the driver; `storage_path` is below the mount. labels: for
    every checkpoint."""

    def __init__(self, volume: RWVolume, *, labels: Mapping[str, Any] | None = None) -> None:
        self._place = volume.name, volume.store_url  # the callback is pickled
        self._labels = dict(labels or {})
        self._reports = 0

    def after_report(self, run_context: Any, metrics: list[dict[str, Any]], checkpoint: Any) -> None:
        if checkpoint is None:
            return
        name, store = self._place
        volume = Volume.open(name, store=store)
        processes.require_below(volume, checkpoint.path)
        found: dict[str, Any] = {
            key: value for key, value in metrics[0].items() if isinstance(value, int | float | str)
        }
        step = found.pop("step", self._reports)
        self._reports += 1
        found["checkpoint"] = os.path.relpath(os.path.realpath(checkpoint.path), volume.path.resolve())
        with checkpoints(volume, labels=self._labels) as saver:
            saver.save(step, **found)
