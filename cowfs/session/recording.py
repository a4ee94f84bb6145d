"""Writes down what is read of a mount: the profile of a job (`format.profile`).

The engine notes what is read, whoever serves it and wherever the bytes come from: each byte that a
program reads of a new mount passes the engine at least once, from a cold cache and from a warm one.
Passthrough would pass it by, so a mount that records does without.

    engine.take_reads ─▶ paths, as the engine knows names now ─▶ FILE, replaced whole

`step` is called by the keeper, `finish` when the session ends. FILE is replaced while the mount is
used, so a killed job leaves a profile, too: it lacks the last seconds. The longer a step takes, the
rarer they are: finding names looks at every entry in memory (26 ms for a million). A mount that has
read nothing leaves a profile that is there as it is.

A file without a name any more is left out, and so is one whose directory has left memory meanwhile.
A directory keeps the name under which it was first met.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING

from cowfs import clock, log
from cowfs.errors import CowfsError
from cowfs.format.profile import MAX_OFFSET, ReadRange
from cowfs.native.constants import ROOT_INO
from cowfs.session import profile_files

if TYPE_CHECKING:
    from cowfs.native import Engine

SHARE = 20
"""Steps take one part in so many of the time, or less."""

_Names = dict[int, tuple[int, bytes]]
"""Directory and name of inodes."""

_logger = log.get("recording")


class Recorder:
    """Of what is read from now on. folder: the directory of the version that is the engine's root.
    Any thread may call. Errors of `profile_files`."""

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
        """Writes down what was read, if that is due."""
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
        """While the engine is open still. What cannot be written is logged: nothing else is
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
                # Rounded out, the last bytes that a file may have would end behind the largest
                # offset.
                self._ranges.append(ReadRange(path, offset, min(length, MAX_OFFSET - offset)))

    def _names_of(self, inodes: set[int]) -> _Names:
        """Theirs. Those of all directories above are remembered."""
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
        """None: it cannot be said. names: of inodes whose directories are known."""
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
