"""Checkpoints of a training run: each is a commit, which a thread makes while the training goes on.

    save     waits for the commit before it (or skips), begins one, and returns when it is frozen
               │
    thread   the commit uploads and publishes; its error waits for the next call
               │
    resume   the files are again as the last commit froze them; what came later is dropped

Frozen: what is written from then on is not in the version. So the caller writes its files, calls
`save`, and may overwrite them at once. A copy (a mount without FUSE) cannot be frozen, so there
`save` returns when the commit is over.

If the attempt fails halfway (the daemon dies, or the store's disk is full), the commit is made once
more from the files as they are then. By that time the training may have overwritten them. Such a
second freeze is an error, so that no version is taken for a checkpoint without being one.

Threads: one at a time, of this process, not a daemon thread: the interpreter's end waits for it.
The object is for one thread of the training. In a forked child it refuses to save.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from contextvars import copy_context
from queue import SimpleQueue
from threading import Thread
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, get_args

from cowfs.api import arguments
from cowfs.api.ro_volume import ROVolume, locate
from cowfs.api.rw_volume import RWVolume, get_handle
from cowfs.api.twins.one_type import unwrap
from cowfs.api.versions.labels import as_texts, take_item
from cowfs.base import log
from cowfs.base.errors import ConflictError, InvalidInputError, InvalidStateError
from cowfs.base.hints import Command
from cowfs.version.commit import FROZEN, Progress

if TYPE_CHECKING:
    from cowfs.api import asynchronous

STEP = "step"
"""The label that makes a version a checkpoint."""
Busy = Literal["wait", "skip"]
_FIRST_LOOK = 32
_log = log.get("checkpoints")


def checkpoints(
    volume: RWVolume | asynchronous.RWVolume, *, busy: Busy = "wait", labels: Mapping[str, Any] | None = None
) -> Checkpoints:
    """Commits the checkpoints of a training run to a volume, in a thread: write the files, then
    call `save`.

        with run, cowfs.checkpoints(run) as saver:
            last = saver.resume()
            for step in range(int(last.labels["step"]) + 1 if last else 0, 1000):
                ...
                saver.save(step, loss=loss)

    volume: usually mounted; the async object, too. busy: what `save` does while an earlier commit
    runs: "wait" for its end, or "skip" this checkpoint; its files are then in the next one. labels:
    for every checkpoint.
    """
    return Checkpoints(volume, busy=busy, labels=labels)


class Checkpoints:
    """The checkpoints of one run. Made by `checkpoints`. At the end of a block it is closed, also
    after an exception."""

    def __init__(
        self,
        volume: RWVolume | asynchronous.RWVolume,
        *,
        busy: Busy = "wait",
        labels: Mapping[str, Any] | None = None,
    ) -> None:
        if not isinstance(volume, RWVolume):
            raise InvalidInputError(
                f"checkpoints cannot be written to {volume!r}",
                hint="Give a volume: cowfs.checkpoints(Volume.open('my-run', create=True)).",
            )
        arguments.one_of("busy", busy, get_args(Busy))
        self._volume: RWVolume = unwrap(volume)  # type: ignore[assignment] # the blocking one
        self._busy = busy
        self._labels = _texts(labels or {})
        self._thread: Thread | None = None
        self._error: BaseException | None = None
        self._last: ROVolume | None = None
        self._is_closed = False
        self._pid = os.getpid()

    @property
    def volume(self) -> RWVolume:
        """The volume, as the blocking object."""
        return self._volume

    @property
    def last(self) -> ROVolume | None:
        """The newest checkpoint that this object has published, or found with `resume`."""
        return self._last

    @property
    def is_saving(self) -> bool:
        """Whether a commit is under way."""
        return self._thread is not None and self._thread.is_alive()

    def save(self, step: int, **metrics: Any) -> bool:
        """Begins to commit what was written before the call, and returns as soon as later writes
        are not in that version. Step and metrics are its labels, as text. False: skipped, since an
        earlier commit still runs.

        metrics: numbers, also those of numpy and torch, or texts. The error of the commit before
        is raised here, and nothing is begun; call it again to commit the files as they are now.
        """
        self._require_usable()
        labels = {**self._labels, **_texts(metrics), STEP: str(_step(step))}
        if self.is_saving and self._busy == "skip":
            return False
        self.wait()
        commit = _Commit(self, step, labels)
        # What a task system knows about this call is recorded in the version.
        self._thread = Thread(target=copy_context().run, args=(commit.run,), name=f"cowfs-checkpoint-{step}")
        self._thread.start()
        if not commit.frozen.get():
            self.wait()
        return True

    def wait(self) -> ROVolume | None:
        """Waits until no commit is under way, and raises the error of the last one. Returns
        `last`."""
        if self._pid == os.getpid() and self._thread is not None:
            self._thread.join()
            self._thread = None
        self._raise()
        return self._last

    def find_last(self) -> ROVolume | None:
        """The newest checkpoint in the volume's history, by whichever program; None without one."""
        for limit in (1, _FIRST_LOOK, None):
            found = self._volume.history(limit=limit)
            if (last := next((each for each in found if STEP in each.labels), None)) is not None:
                return last
            if limit is None or len(found) < limit:
                break
        return None

    def resume(self) -> ROVolume | None:
        """Makes the mounted files those of the newest checkpoint, and returns it. Everything
        written since is dropped, such as a checkpoint that a killed run had half written. None: the
        volume has no checkpoint, and its files stay as they are.

        Contents that differ are fetched. The log says what is dropped. InvalidStateError: the
        volume is not mounted. ConflictError: other processes share the mount, and it has
        uncommitted work; or it is a copy (a mount without FUSE): read the files of `find_last()`
        there.
        """
        from cowfs.api.mounts import left_work
        from cowfs.api.provenance import commit_request
        from cowfs.api.versions import restoring

        self._require_usable()
        self.wait()
        if not self._volume.is_mounted:
            raise InvalidStateError(f"volume {self._volume.name!r} is not mounted", hint="Call mount() first.")
        if (last := self.find_last()) is not None:
            handle = get_handle(self._volume)
            if (entry := handle.live()) is not None:
                left_work.require_unshared(handle, entry)
            restoring.restore(handle, locate(last), commit_request(""))
            self._last = last
        return last

    def close(self) -> None:
        """Waits for the commit under way, and raises its error. Every later `save` is refused. In a
        forked child it does nothing."""
        if self._pid == os.getpid():
            self._is_closed = True
            self.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
            return
        try:
            self.close()
        except Exception as failure:  # noqa: BLE001 - the block's own error is the one to raise
            error.add_note(f"The last checkpoint was not committed: {failure}")

    def _require_usable(self) -> None:
        if self._pid != os.getpid():
            raise InvalidStateError(
                "these checkpoints belong to the process that this one was forked from",
                hint="Save from one process, usually rank 0.",
            )
        if self._is_closed:
            raise InvalidStateError("these checkpoints are closed", hint="Make another object: cowfs.checkpoints().")

    def _raise(self) -> None:
        if (error := self._error) is not None:
            self._error = None
            raise error


class _Commit:
    """One commit, in a thread. frozen: gets True when later writes are not in it, False when it is
    over."""

    def __init__(self, owner: Checkpoints, step: int, labels: Mapping[str, str]) -> None:
        self._owner = owner
        self._step = step
        self._labels = labels
        self._freezes = 0
        self.frozen: SimpleQueue[bool] = SimpleQueue()

    def run(self) -> None:
        owner = self._owner
        try:
            owner._last = owner._volume.commit(f"step {self._step}", labels=self._labels, progress=self._report)
        except BaseException as error:  # noqa: BLE001 - raised by the next call
            _log.warning("the checkpoint of step %d was not committed: %s", self._step, error)
            owner._error = error
        finally:
            self.frozen.put(False)

    def _report(self, progress: Progress) -> None:
        if progress.stage != FROZEN:
            return
        self._freezes += 1
        if self._freezes > 1:
            raise ConflictError(
                f"the commit of step {self._step} failed halfway and was begun again, when the files may have been "
                "overwritten",
                hint=f"Save the step again. If {Command('log', self._owner._volume.name)} shows a version of this step, "
                "do not resume from it.",
            )
        self.frozen.put(True)


def _step(given: object) -> int:
    number = take_item(given)
    if isinstance(number, bool) or not isinstance(number, int):
        raise InvalidInputError(f"step is {given!r}", hint="Give a whole number.")
    return number


def _texts(given: Mapping[str, Any]) -> dict[str, str]:
    if not isinstance(given, Mapping):
        raise InvalidInputError(f"labels is {given!r}", hint='Give a dict, such as {"run": "17"}.')
    return as_texts({name: _finite(value) for name, value in given.items()})


def _finite(value: object) -> Any:
    """A loss that is NaN or infinite does not end the training: it is recorded as text."""
    plain = take_item(value)
    return str(plain) if isinstance(plain, float) and not math.isfinite(plain) else plain
