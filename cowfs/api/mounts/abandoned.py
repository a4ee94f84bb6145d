"""The messages for a block over a volume that ends by an exception. Each is given once.

They are attached as notes, which a traceback shows. If a program or task ends without a traceback
(SystemExit, a cancellation), they are logged instead.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from typing import Protocol

from cowfs.api import hints
from cowfs.base import log
from cowfs.base.errors import CowfsError
from cowfs.base.hints import Command

_log = log.get("volume")


class Left(Protocol):
    """A volume whose block has ended."""

    @property
    def name(self) -> str: ...
    @property
    def store_url(self) -> str | None: ...
    @property
    def locator(self) -> str | None: ...
    @property
    def is_mounted(self) -> bool: ...
    def has_changes(self) -> bool: ...
    def leave_work(self) -> bool: ...


def leave(volume: Left, error: BaseException) -> None:
    """Leaves the mount without publishing, and reports the fate of the work. An error in doing so
    never hides the original one."""
    before, notes = volume.locator, []
    is_dirty = True
    try:
        is_dirty = volume.leave_work()
    except CowfsError as failure:
        if volume.is_mounted:
            notes.append(f"It is still mounted: {failure.message}. {failure.hint}")
        with contextlib.suppress(CowfsError):
            is_dirty = volume.has_changes()
    if is_dirty:
        notes.insert(0, resume_hint(volume.name, volume.store_url))
    if (published := volume.locator) != before:
        notes.insert(0, f"Volume {volume.name!r} was committed all the same: {published}")
    tell(error, notes)


def resume_hint(name: str, store_url: str | None) -> str:
    """How to go on with work that is in no version."""
    opened = hints.opening(name, store_url)
    return hints.about(
        store_url,
        f"Uncommitted work of volume {name!r} was not published; it is kept on this machine: "
        f"go on with {opened}.mount() or {Command('mount', name, 'PATH')}, "
        f"drop it with {opened}.discard() or {Command('unmount', name, '--discard')}, "
        f"or save it under another name with {opened}.fork(NAME) or {Command('fork', name, 'NAME')}.",
    )


def tell(error: BaseException, notes: Iterable[str]) -> None:
    has_traceback = isinstance(error, Exception | KeyboardInterrupt)
    for note in notes:
        if has_traceback:
            error.add_note(f"cowfs: {note}")
        else:
            _log.warning("%s", note)
