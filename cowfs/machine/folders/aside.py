"""Moves the folder of a copy out of the way, for a mount that begins without its work.

cowfs removes no file that it cannot put back. So the folder gets another name beside its path, with
all that is in it, and is an ordinary folder of the user from then on. The caller has the copy's
turn.
"""

from __future__ import annotations

import os
from contextlib import suppress

from cowfs.base import clock
from cowfs.base.beneath import rename_new
from cowfs.base.errors import ConflictError
from cowfs.machine import mount_table
from cowfs.machine.folders import record
from cowfs.machine.folders.folder import Copy

_SUFFIX_BYTES = 3


def move_aside(copy: Copy) -> str | None:
    """Returns the folder's new path; None: it is not at its path, and nothing was done.
    ConflictError: it is in use, or cannot be renamed."""
    path = copy.record.mount_path
    if copy.is_there:
        copy.require_unused()
    if (root := copy.open()) is None:
        return None
    with root:
        mount_table.require_nothing_inside(os.path.realpath(path))
        name = os.path.basename(path)
        moved = f"{name}.dropped-{clock.random_bytes(_SUFFIX_BYTES).hex()}"
        try:
            _rename(root.fileno(), os.fsencode(name), os.fsencode(moved))
        except OSError as error:
            raise ConflictError(
                f"the folder {path}, which has uncommitted work, cannot be renamed: {error.strerror}",
                hint="Remove what is in it by hand, or mount at another path.",
            ) from error
        with suppress(OSError):
            os.removexattr(root.fileno(), record.MARK)
    copy.forget()
    return os.path.join(os.path.dirname(path), moved)


def _rename(folder: int, name: bytes, moved: bytes) -> None:
    """In the directory above the folder, wherever its path leads by now."""
    above = os.open("..", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=folder)
    try:
        if not os.path.samestat(os.stat(name, dir_fd=above, follow_symlinks=False), os.fstat(folder)):
            raise FileNotFoundError(2, "it has another name by now")
        if not rename_new(name, moved, src_dir_fd=above, dst_dir_fd=above):
            raise FileExistsError(17, "the new name is taken")
    finally:
        os.close(above)
