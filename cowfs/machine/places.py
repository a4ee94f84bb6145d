"""Where working copies lie that are not in the state directory: those of mounts with a `meta_dir`.

    <state dir>/elsewhere/<16 hex of the path's hash>      the path of one working copy, as bytes

A mount with a `meta_dir` may end, and its work must be found without naming that directory again:
`commit NAME` would publish a version without it. A path is remembered when its working copy has a
state, and forgotten when that is deleted. One that is not there any more is remembered all the
same: somebody may have removed it, or its disk is not attached, and nobody can tell.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from pathlib import Path

from cowfs import config
from cowfs.errors import unusable
from cowfs.machine import state as states


def remember(working_copy: Path) -> None:
    """Durable when it returns. AccessDeniedError, ReadOnlyError, NoSpaceError where the state
    directory cannot be written."""
    note = _note(working_copy)
    if note.exists():
        return
    try:
        note.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        states.replace_durably(note, os.fsencode(working_copy))
    except OSError as error:
        raise unusable(
            error,
            f"{note.parent}, which says where uncommitted work lies, cannot be written",
            elsewhere="choose another place with COWFS_STATE_DIR.",
        ) from error


def forget(working_copy: Path) -> None:
    """Durable when it returns."""
    note = _note(working_copy)
    with contextlib.suppress(FileNotFoundError):
        note.unlink()
        states.sync_directory(note.parent)


def remembered() -> list[Path]:
    """Paths of working copies, also of those that are out of reach."""
    notes = (note for note in config.listed(_directory()) if not note.suffix)
    return [path for path in map(_read, notes) if path is not None]


def _read(note: Path) -> Path | None:
    """None for one that was just removed."""
    try:
        return Path(os.fsdecode(note.read_bytes()))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise config.inaccessible(note, error) from error


def _directory() -> Path:
    return config.state_dir() / "elsewhere"


def _note(working_copy: Path) -> Path:
    return _directory() / hashlib.sha256(os.fsencode(working_copy)).hexdigest()[:16]
