"""Records what is read of a mount: the profile of a job (`format.profile`).

The engine notes reads, whichever server handles them and wherever the bytes come from: each byte
that a program reads of a new mount passes the engine at least once, whether the cache is cold or
warm. Passthrough would bypass the engine, so a mount that records does not use it.

    engine.take_reads ─▶ paths, as the engine knows names now ─▶ FILE, replaced whole

The keeper calls `step`; the end of the session calls `finish`. FILE is replaced while the mount is
in use, so a killed job leaves a profile as well, without the last seconds. The longer a step takes,
the rarer steps become: finding names looks at every entry in memory (26 ms for a million). A mount
that has read nothing leaves an existing profile unchanged.

Files without a name are left out, as are files whose directory has been evicted from memory
meanwhile. A directory keeps the name under which it was first seen.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING

from cowfs.base import clock, log
from cowfs.base.errors import CowfsError
from cowfs.format.profile import MAX_OFFSET, ReadRange
from cowfs.native.constants import ROOT_INO
from cowfs.session.profiles import profile_files

if TYPE_CHECKING:
    from cowfs.native import Engine

SHARE = 20
"""Steps take at most one part in so many of the time."""

_Names = dict[int, tuple[int, bytes]]
"""Maps inodes to directory and name."""

_logger = log.get("recording")


class Recorder:
    """Records reads from now on. folder: the directory of the version that is the engine's root.
    Any thread may call. Raises the errors of `profile_files`."""

    def __init__(self, engine: Engine, path: Path, folder: bytes) -> None:
        self._engine = engine
        self._path = path
        self._folder = folder
        self._lock = threading.Lock()  # guards what follows
        self._ranges: list[ReadRange] = []
        self._directories: _Names = {}
        self._written = 0
        self._next_s = 0.0
        profile_files.require_writable(path)
        engine.note_reads()

    def step(self) -> None:
        """Writes the profile, if that is due."""
        with self._lock:
            begun_s = clock.monotonic_s()
            if begun_s < self._next_s:
                return
            self._take()
            if len(self._ranges) > self._written:
                self._write()
            done_s = clock.monotonic_s()
            self._next_s = done_s + (done_s - begun_s) * SHARE

    def finish(self) -> None:
        """Writes the rest while the engine is still open. A failure is only logged: nothing else is
        lost."""
        try:
            with self._lock:
                self._take()
                if len(self._ranges) > self._written or not self._path.exists():
                    self._write()
        except (CowfsError, OSError) as error:
            _logger.error("the profile was not written: %s", error)

    def _take(self) -> None:
        reads = self._engine.take_reads()
        names = self._names_of({ino for ino, _, _ in reads})
        paths = {ino: self._path_of(ino, names) for ino, _, _ in reads}
        for ino, offset, length in reads:
            if (path := paths[ino]) is not None:
                # Rounded up, a range at the largest possible file size would end after the largest
                # offset.
                self._ranges.append(ReadRange(path, offset, min(length, MAX_OFFSET - offset)))

    def _names_of(self, inodes: set[int]) -> _Names:
        """Their names. The names of all parent directories are remembered."""
        found = self._ask(inodes)
        above = {parent for parent, _ in found.values()}
        while unknown := above - self._directories.keys():
            directories = self._ask(unknown)
            self._directories |= directories
            above = {parent for parent, _ in directories.values()}
        return found

    def _ask(self, inodes: set[int]) -> _Names:
        inodes.discard(ROOT_INO)
        return {ino: (parent, name) for ino, parent, name in self._engine.names_of(sorted(inodes))} if inodes else {}

    def _path_of(self, ino: int, names: _Names) -> bytes | None:
        """None if the path is unknown. names: of inodes whose directories are known."""
        parts: list[bytes] = []
        seen: set[int] = set()
        while ino != ROOT_INO:
            named = names.get(ino) or self._directories.get(ino)
            if named is None or ino in seen:  # directories that were moved may look like a loop
                return None
            seen.add(ino)
            ino, name = named
            parts.append(name)
        return b"/".join(filter(None, (self._folder, *reversed(parts))))

    def _write(self) -> None:
        profile_files.store(self._path, self._ranges)
        self._written = len(self._ranges)
