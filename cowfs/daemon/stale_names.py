"""What the kernel may know of paths that a restore changes without it, in a file of the working
copy until the kernel has forgotten it. If the daemon is killed in between, the next one of a
supervised mount makes the kernel forget; without supervision the kernel's knowledge ends with the
mount.

    <working copy>/stale     [[path in hex, inode of its directory | 0, its inode | 0], …], before the restore
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

from cowfs.base.errors import CowfsError
from cowfs.native.constants import ROOT_INO
from cowfs.session.work_restoring import Stale

_NAME = "stale"


def note(working_copy: Path, changed: Iterable[tuple[bytes, int, int]]) -> None:
    """Call it before the first of the paths is changed. The file need not outlive the machine."""
    new = working_copy / f"{_NAME}.new"
    new.write_text(json.dumps([(path.hex(), parent, ino) for path, parent, ino in changed]), encoding="ascii")
    new.replace(working_copy / _NAME)


def recall(working_copy: Path, find: Callable[[bytes], int]) -> Stale | None:
    """find: the inode of a path now. None: no restore was interrupted."""
    try:
        noted = json.loads((working_copy / _NAME).read_text(encoding="ascii"))
    except (FileNotFoundError, ValueError):
        return None
    stale = Stale(inodes={ROOT_INO})
    for hexadecimal, parent, ino in noted:
        directory, _, name = bytes.fromhex(hexadecimal).rpartition(b"/")
        parents = {int(parent)}
        stale.inodes.add(int(ino))
        with suppress(OSError, CowfsError):
            parents.add(find(directory))
            stale.inodes.add(find(bytes.fromhex(hexadecimal)))
        stale.names |= {(each, name) for each in parents if each}
        stale.inodes |= parents
    stale.inodes.discard(0)
    return stale


def forget(working_copy: Path) -> None:
    """Call it when the kernel has forgotten them, or knows nothing of the volume."""
    with suppress(FileNotFoundError):
        (working_copy / _NAME).unlink()
