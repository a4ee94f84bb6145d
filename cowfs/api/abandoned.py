"""What a user is told when a block over a volume ends by an exception: once, and only what is so.

A traceback shows notes, so that is where they go. What ends a program or a task without one (SystemExit, a cancellation) has
them logged instead.
"""

from __future__ import annotations

from collections.abc import Iterable

from cowfs import log

_log = log.get("volume")


def resume_hint(name: str) -> str:
    """How to go on with work that is in no version."""
    return (
        f"Uncommitted work of volume {name!r} was not published; it is kept on this machine: "
        f"go on with Volume.open({name!r}).mount() or `cowfs mount {name} PATH`, "
        f"drop it with Volume.open({name!r}).discard() or `cowfs unmount {name} --discard`, "
        f"or save it under another name with Volume.open({name!r}).fork(NAME) or `cowfs fork {name} NAME`."
    )


def tell(error: BaseException, notes: Iterable[str]) -> None:
    has_traceback = isinstance(error, Exception | KeyboardInterrupt)
    for note in notes:
        if has_traceback:
            error.add_note(f"cowfs: {note}")
        else:
            _log.warning("%s", note)
