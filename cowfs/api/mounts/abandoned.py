"""Messages about work that a block or a program leaves in no version. Each is given once.

For a block that ends by an exception they are attached as notes, which a traceback shows. If a
program or task ends without a traceback (SystemExit, a cancellation), they are logged instead.
"""

from __future__ import annotations

from collections.abc import Iterable

from cowfs.api import hints
from cowfs.base import log
from cowfs.base.hints import Command

_log = log.get("volume")


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


def overtaken_hint(name: str, store_url: str | None) -> str:
    """What to do with work after a LeaseLostError: a mount could not publish it."""
    opened = hints.opening(name, store_url)
    return hints.about(
        store_url,
        f"Uncommitted work of volume {name!r} was not published, since the volume has another writer or was deleted. "
        f"It is kept on this machine: save it under another name with {opened}.fork(NAME) or {Command('fork', name, 'NAME')}, "
        f"or drop it with {opened}.discard() or {Command('unmount', name, '--discard')}.",
    )


def tell(error: BaseException, notes: Iterable[str], *, is_logged: bool = False) -> None:
    """is_logged: log them in any case. A task system shows its users the message of an error and
    the log, and no notes."""
    has_traceback = isinstance(error, Exception | KeyboardInterrupt)
    for note in notes:
        if has_traceback:
            error.add_note(f"cowfs: {note}")
        if is_logged or not has_traceback:
            _log.warning("%s", note)
