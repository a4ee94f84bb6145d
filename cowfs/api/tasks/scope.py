"""The call of a task that is running here, and the volumes that it uses.

A context variable holds it, so that worker threads of anyio and `asyncio.to_thread`, and tasks of
the event loop, belong to the call that started them. Threads that a body starts by hand do not. A
decorated function that is called inside another one has a scope of its own.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from cowfs.base.errors import CowfsError, InvalidInputError, NotFoundError

if TYPE_CHECKING:
    from cowfs.api.tasks.task_volume import TaskVolume

Opened = Any
"""A blocking RWVolume or ROVolume: this module does not know the classes."""


class Scope:
    """The volumes of one call. may_discard: it may drop uncommitted work."""

    def __init__(self, *, is_async: bool = False, may_discard: bool = False) -> None:
        self.is_async = is_async
        self.may_discard = may_discard
        self.listed: list[tuple[TaskVolume, Opened]] = []
        """The volumes of the decorator's list, mounted."""
        self.mounted: list[Opened] = []
        """Objects that were mounted meanwhile, those of the list among them."""
        self.had_no_work: list[Opened] = []
        """Of a call that may discard: the writers whose uncommitted work began after the mount."""

    def find(self, wanted: str | os.PathLike[str]) -> Opened:
        """NotFoundError: the call has no such volume."""
        text = os.fspath(wanted)
        found = {id(volume): volume for spec, volume in self.listed if _fits(text, spec, volume)}
        if len(found) == 1:
            return next(iter(found.values()))
        if found:
            raise InvalidInputError(f"several volumes of this task are {text!r}", hint="Name one by its path.")
        raise NotFoundError(f"this task has no volume {text!r}", hint=self._describe())

    def _describe(self) -> str:
        if not self.listed:
            return "Its decorator lists none: @cowfs.task(volumes=[...])."
        return f"It has {', '.join(f'{spec.source} ({volume.name})' for spec, volume in self.listed)}."


def _fits(text: str, spec: TaskVolume, volume: Opened) -> bool:
    if text in (spec.source, spec.path, volume.name):
        return True
    return volume.is_mounted and os.path.abspath(os.path.expanduser(text)) == str(volume.path)


_scope: ContextVar[Scope | None] = ContextVar("cowfs_task", default=None)


@contextmanager
def enter(scope: Scope) -> Iterator[Scope]:
    token = _scope.set(scope)
    try:
        yield scope
    finally:
        _scope.reset(token)


def get_running() -> Scope | None:
    return _scope.get()


def note_mounted(volume: Opened) -> None:
    """Call it when an object has mounted itself: the running call leaves it at its end."""
    scope = _scope.get()
    if scope is not None and all(each is not volume for each in scope.mounted):
        scope.mounted.append(volume)
        if scope.may_discard and hasattr(volume, "finalize"):
            with suppress(CowfsError):
                if not volume.has_changes():
                    scope.had_no_work.append(volume)
