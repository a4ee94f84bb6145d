"""The note in a working copy whose mount was ended by its daemon alone, because the process that
the mount was bound to is gone: one line for people, in the file `left`.

It stays until a writer opens the working copy. The lock of the working copy must be held to write
or delete it. Nothing but messages depends on it, so errors of the disk are ignored.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

_NAME = "left"
_LONGEST_BYTES = 4096


def write(working_copy: Path, note: str) -> None:
    with suppress(OSError):
        (working_copy / _NAME).write_text(" ".join(note.split()), encoding="utf-8", errors="replace")


def read(working_copy: Path) -> str | None:
    """None: there is no note."""
    try:
        with (working_copy / _NAME).open("rb") as file:
            return file.read(_LONGEST_BYTES).decode(errors="replace") or None
    except OSError:
        return None


def delete(working_copy: Path) -> None:
    with suppress(OSError):
        (working_copy / _NAME).unlink()
