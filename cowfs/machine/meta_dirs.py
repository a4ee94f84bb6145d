"""Remembers working copies outside of the state directory: those of mounts with a `meta_dir`.

    <state dir>/elsewhere/<16 hex of the path's hash>      the path of one working copy, as bytes

After a mount with a `meta_dir` has ended, its work must be found without naming that directory
again: otherwise `commit NAME` would publish a version without it. A path is remembered once its
working copy has a state, and forgotten when that is deleted. A missing working copy stays
remembered: cowfs cannot tell whether it was removed or its disk is not attached.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from pathlib import Path

from cowfs.base import config, private_directories
from cowfs.base.errors import unusable
from cowfs.machine import state as states


def remember(working_copy: Path) -> None:
    """Durable when it returns. AccessDeniedError, ReadOnlyError, NoSpaceError: the state directory
    cannot be written."""
    note = _note(working_copy)
    if note.exists():
        return
    try:
        private_directories.make(note.parent)
        states.replace_durably(note, os.fsencode(working_copy))
    except OSError as error:
        raise unusable(
            error,
            f"{note.parent}, which records where uncommitted work lies, cannot be written",
            elsewhere="choose another place with COWFS_STATE_DIR.",
        ) from error


def forget(working_copy: Path) -> None:
    """Durable when it returns."""
    note = _note(working_copy)
    with contextlib.suppress(FileNotFoundError):
        note.unlink()
        states.sync_directory(note.parent)


def list_remembered() -> list[Path]:
    """The paths of the remembered working copies, including unreachable ones."""
    notes = (note for note in config.list_directory(_directory()) if not note.suffix)
    return [path for path in map(_read, notes) if path is not None]


def _read(note: Path) -> Path | None:
    """None: the note was just removed."""
    try:
        return Path(os.fsdecode(note.read_bytes()))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise config.inaccessible(note, error) from error


def _directory() -> Path:
    return config.state_subdirectory("elsewhere")


def _note(working_copy: Path) -> Path:
    return _directory() / hashlib.sha256(os.fsencode(working_copy)).hexdigest()[:16]
