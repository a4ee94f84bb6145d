"""A writer for `torch.distributed.checkpoint` that commits the checkpoint when all ranks have
written their parts.

    with Volume.open("run-17", create=True) as run, cowfs.checkpoints(run) as saver:
        dcp.save(state, storage_writer=CommitWriter(saver, run / "state", step=step, loss=loss))

All ranks of the machine open and mount the volume by its name, and so share the mount; each makes
its own `cowfs.checkpoints`. The coordinator commits. Reading needs nothing of cowfs:
`FileSystemReader(run / "state")` in the mount, or `FsspecReader(f"{version.locator}/state")`.
"""

from __future__ import annotations

import os
from typing import Any

from torch.distributed.checkpoint import FileSystemWriter

from cowfs.blocking import Checkpoints
from cowfs.integrations.training import processes

_Writer: Any = FileSystemWriter


class CommitWriter(_Writer):  # type: ignore[misc] # untyped where torch is not installed
    """Writes one checkpoint. path: a directory below the mount, which may have an earlier
    checkpoint: it is replaced, and stays in the earlier versions. step, metrics: as for
    `Checkpoints.save`; options: those of FileSystemWriter.

    The commit goes on when `dcp.save` returns; the next one, or `close`, raises its error.
    """

    def __init__(
        self,
        saver: Checkpoints,
        path: str | os.PathLike[str],
        *,
        step: int,
        options: dict[str, Any] | None = None,
        **metrics: Any,
    ) -> None:
        processes.require_one_machine()
        processes.require_below(saver.volume, path)
        super().__init__(path, **(options or {}))
        self._saver = saver
        self._step = step
        self._metrics = metrics

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        if checkpoint_id is not None:
            processes.require_below(self._saver.volume, checkpoint_id)
        super().reset(checkpoint_id)

    def finish(self, metadata: Any, results: Any) -> None:
        super().finish(metadata, results)
        self._saver.save(self._step, **self._metrics)
