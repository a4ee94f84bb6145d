"""Finds files of which the local disk has lost uncommitted bytes, and refuses to commit them.

If a segment is gone when a working copy is mounted, the ranges stored in it are lost
(`native/engine/src/disk/lost.rs`). They read as EIO. A version with zeros, older bytes or a gap in
their place would be false, so a commit is refused, with the paths, until those files are
overwritten, truncated or removed.

The engine knows names whose directories are in memory; others are searched in the base version's
index, which reads all of its entries, once.
"""

from __future__ import annotations

import contextlib
import errno
import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING, NoReturn

from cowfs.base.errors import CorruptError, CowfsError, UnavailableError
from cowfs.base.hints import Command
from cowfs.native.constants import ROOT_INO
from cowfs.session.layer_changes import layer_files

if TYPE_CHECKING:
    from cowfs.native import Engine
    from cowfs.session.residency.residency import Residency

NAMED_FILES = 20  # in one message
DEPTH_LIMIT = 4096  # PATH_MAX: a damaged index may have loops


class LostFiles:
    """Thread-safe."""

    def __init__(self, engine: Engine, residency: Residency) -> None:
        self._engine = engine
        self._residency = residency
        self._lock = threading.Lock()
        self._paths: dict[int, str] = {}  # as they were when first requested

    def paths(self) -> list[tuple[str, int]]:
        """(path in the volume, bytes lost) of each file that has a name, by path."""
        files = self._engine.lost_files()
        with self._lock:
            unknown = [ino for ino, _ in files if ino not in self._paths]
            if unknown:
                self._paths |= paths_of(self._engine, self._residency, unknown)
            return sorted((self._paths[ino], size) for ino, size in files)

    def refuse(self) -> None:
        """Raises CorruptError with the paths if there are lost files."""
        if not (lost := self.paths()):
            return
        named = ", ".join(path for path, _ in lost[:NAMED_FILES])
        if len(lost) > NAMED_FILES:
            named += f" and {len(lost) - NAMED_FILES} more"
        raise CorruptError(
            f"this machine's disk has lost bytes of {len(lost)} file(s) that were never committed: {named}",
            hint="Overwrite, truncate or remove these files, then commit again; everything else is kept. "
            f"{Command('status', '--json')} lists them all.",
            details={"lost_files": [{"path": path, "bytes": size} for path, size in lost]},
        )

    def refuse_unreadable(self, layer: int, ino: int, error: OSError) -> NoReturn:
        """Handles staged bytes that cannot be read or are not what was written: raises an error
        that names the files and the remedy."""
        for other, _ in layer_files(self._engine, layer):  # all at once, not one more with each commit
            self.lose_unreadable(other, error)
        self.refuse()
        raise UnavailableError(
            f"uncommitted bytes of inode {ino} could not be read from this machine's disk: {error}",
            hint="The file has been changed since, or the disk fails intermittently: commit again.",
        ) from error

    def lose_unreadable(self, ino: int, error: OSError) -> None:
        """Makes the engine check the file's staged bytes and record bad ones as lost. Errors other
        than EIO are raised."""
        if error.errno != errno.EIO:
            raise error
        with contextlib.suppress(FileNotFoundError):  # removed meanwhile
            self._engine.lose_unreadable(ino)


def paths_of(engine: Engine, residency: Residency, inodes: Iterable[int]) -> dict[int, str]:
    """One path of each inode; `inode N` where no name can be found."""
    wanted = set(inodes)
    names: dict[int, tuple[int, bytes]] = {}
    unknown = set(wanted)
    while unknown:
        found = {ino: (parent, name) for ino, parent, name in engine.names_of(sorted(unknown))}
        if missing := unknown - found.keys():
            with contextlib.suppress(CowfsError):  # a name is only for display: the number will do
                found |= residency.names_of(missing)
        names |= found
        unknown = {parent for parent, _ in found.values()} - names.keys() - {ROOT_INO}
    return {ino: _path(ino, names) for ino in wanted}


def _path(ino: int, names: dict[int, tuple[int, bytes]]) -> str:
    parts: list[bytes] = []
    at = ino
    while at != ROOT_INO and len(parts) < DEPTH_LIMIT:
        if at not in names:
            return f"inode {ino}"
        at, name = names[at]
        parts.append(name)
    return b"/".join(reversed(parts)).decode(errors="backslashreplace")
