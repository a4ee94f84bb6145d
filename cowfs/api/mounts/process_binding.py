"""Binds mounts to this process: their daemons end them when it is gone, also after kill -9.

    with process_binding.bind("keep"):
        path = volume.mount()           and every other mount that this block makes or finds

A context variable, so that it holds for threads that cowfs or anyio start for the block, and not
for threads that the block starts by hand.

A mount that the block makes is bound from the beginning; the daemon of one that it finds is asked
when this process begins to share it. Objects of one process share its binding: if they disagree
about the work, or one of them is not bound, the work is kept. The binding ends with the last bound
object's use of the mount. A copy has no daemon, and is left as it is: it holds no lease, and its
work is in its folder.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace

from cowfs.api import provenance
from cowfs.api.tasks import systems
from cowfs.api.versions.labels import Labels
from cowfs.base import log
from cowfs.base.errors import CowfsError
from cowfs.control import live_mount
from cowfs.control.binding import Binding, OnError
from cowfs.machine import processes
from cowfs.machine.registry import MountEntry
from cowfs.version.commit import CommitRequest

MESSAGE = "after the process ended"
ERROR_LABEL = "cowfs.error"
"""The label of a version that was published after a failure: what failed."""
LABELS = {ERROR_LABEL: "process ended"}
"""With MESSAGE, of the version that on_error="commit" publishes."""

_bound: ContextVar[tuple[OnError | None, CommitRequest]] = ContextVar("bound", default=(None, CommitRequest()))
_sent: dict[tuple[int, str], Binding] = {}
"""The binding that a mount's daemon has, by this process and the mount's registration."""
_log = log.get("volume")


@contextmanager
def bind(
    on_error: OnError, *, message: str = "", author: str | None = None, labels: Labels | None = None
) -> Iterator[None]:
    """For mounts of the block. on_error: what becomes of uncommitted work (`Binding`). message,
    author, labels: of the version that on_error="commit" publishes."""
    request = CommitRequest()
    if on_error == "commit":  # nothing given: a tree without changes makes no version
        made = provenance.commit_request(message or MESSAGE, author, None, {**(labels or {}), **LABELS})
        request = replace(made, given=frozenset())
    before = _bound.set((on_error, request))
    try:
        yield
    finally:
        _bound.reset(before)


def find_binding() -> Binding | None:
    """For a mount that is made or found now; None: it is not bound. In a Flyte task it is: the task
    has no block that would end it, and a pod is never used again."""
    on_error, request = _bound.get()
    if on_error is None and systems.is_in_flyte_task():
        on_error = "keep"
    if on_error is None:
        return None
    return Binding(processes.this_process(), on_error, request)


def note_made(registration: str, binding: Binding | None) -> None:
    """After a mount was made with that binding."""
    if binding is not None:
        _sent[os.getpid(), registration] = binding


def is_bound(entry: MountEntry) -> bool:
    """Whether this process has bound the mount to itself."""
    return (os.getpid(), entry.id) in _sent


def forget(ended: MountEntry) -> None:
    """After the mount has ended."""
    _sent.pop((os.getpid(), ended.id), None)


def update(entry: MountEntry, uses: Iterable[Binding | None]) -> None:
    """Sends the binding to the mount's daemon if it has changed. uses: the bindings of the objects
    of this process that use the mount."""
    key = (os.getpid(), entry.id)
    wanted = _merge(list(uses))
    if wanted == _sent.get(key) or not entry.has_daemon:
        return
    try:
        live_mount.bind(entry, wanted or Binding(processes.this_process(), None))
    except CowfsError as error:
        if wanted is not None:
            _log.warning("the mount at %s does not end with this process: %s", entry.mount_path, error.message)
        return
    if wanted is None:
        del _sent[key]
    else:
        _sent[key] = wanted


def _merge(uses: list[Binding | None]) -> Binding | None:
    bound = [each for each in uses if each is not None]
    if not bound:
        return None
    if all(each is not None and each.on_error == bound[0].on_error for each in uses):
        return bound[0]
    return Binding(bound[0].process, "keep")
