"""A directory of this machine that files are copied to for good: a file that has its name and its
time is whole, also after a power loss.

A download takes a file of the right size and time for one that is there already. File systems write
names and times before contents, if nobody asks for another order: a file that was renamed to its
name before it was synced may be one of zeros after a power loss, and stay that.

    large files    are synced one by one, each by who has written it
    small ones     wait under the names of half-written ones, locked as these are; one sync of their
                   file system is for a batch of them, which then get their names; where that does
                   not do (`syncing.does_for_all`), they are synced one by one, too

What waits when the copy is given up goes, and what a killed one leaves is removed by the next one.
That the names stay is not waited for: what has lost its name is copied again.
"""

from __future__ import annotations

import contextlib
import os
import resource
import threading
from collections.abc import Iterable, Sequence

from cowfs import clock
from cowfs.machine import syncing
from cowfs.session.local_files import LocalFiles, written
from cowfs.values import dataclass

LARGE_BYTES = 8 << 20
BATCH_FILES = 128
"""Each is open, and as many may wait for the batch before theirs: no more than an eighth of the
files that this process may have open."""
BATCH_BYTES = 64 << 20
FEW_FILES = 8
"""Are synced one by one: other programs may have much to be written."""
BATCH_S = 5.0
"""From a slow source: what a killed copy has to copy again."""


@dataclass(frozen=True, slots=True)
class _Disk:
    """A file system. fd: opened before any file that is written there, so that a sync tells of what
    is lost of each."""

    fd: int
    is_synced_as_one: bool


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A file that is whole, and has not got its name."""

    path: bytes
    beside: bytes
    fd: int
    size: int
    disk: _Disk


class WholeFiles(LocalFiles):
    """Several threads may put files at once; `settle` comes after them. What was put has its name
    then, not before."""

    def __init__(self, root: bytes) -> None:
        super().__init__(root)
        self._batch_files = max(1, min(BATCH_FILES, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 8))
        self._batch: list[_Waiting] = []
        self._begun_s = 0.0
        self._disks: dict[int, _Disk] = {}
        self._lock = threading.Lock()  # `_batch`, `_begun_s`, `_disks`
        self._naming = threading.Lock()  # one batch at a time; taken under `_lock`, so that no third one begins

    def close(self) -> None:
        self._drop(self._batch)
        for disk in self._disks.values():
            os.close(disk.fd)
        super().close()

    def put(
        self,
        path: bytes,
        pieces: Iterable[tuple[int, bytes]],
        *,
        mode: int,
        mtime_ns: int,
        xattrs: Sequence[tuple[bytes, bytes]] = (),
    ) -> None:
        full: list[_Waiting] = []
        with self._parent(path) as (directory, name), self._beside(path, directory, name) as beside:
            disk = self._disk(directory)
            fd = written(beside, directory, pieces, mode=mode, mtime_ns=mtime_ns, xattrs=xattrs)
            size = os.fstat(fd).st_size
            if disk.is_synced_as_one and size < LARGE_BYTES:
                full = self._added(_Waiting(path, beside, fd, size, disk))
            else:
                try:
                    os.fsync(fd)
                    self._give_name(path, beside, directory, name)
                finally:
                    os.close(fd)
        if full:
            try:
                self._name(full)
            finally:
                self._naming.release()

    def settle(self) -> None:
        batch, self._batch = self._batch, []
        self._name(batch)

    def _before_name(self, fd: int) -> None:
        os.fsync(fd)

    def _disk(self, directory: int) -> _Disk:
        device = os.fstat(directory).st_dev
        with self._lock:
            if device not in self._disks:
                self._disks[device] = _Disk(os.dup(directory), syncing.does_for_all(directory))
            return self._disks[device]

    def _added(self, file: _Waiting) -> list[_Waiting]:
        """A batch that is full now; its turn to get names is the caller's, who gives it back."""
        with self._lock:
            if not self._batch:
                self._begun_s = clock.monotonic_s()
            self._batch.append(file)
            if (
                len(self._batch) < self._batch_files
                and sum(each.size for each in self._batch) < BATCH_BYTES
                and clock.monotonic_s() - self._begun_s < BATCH_S
            ):
                return []
            self._naming.acquire()
            full, self._batch = self._batch, []
            return full

    def _name(self, batch: list[_Waiting]) -> None:
        """OSError: the content of one of them is not on stable storage. None of the batch gets its
        name then."""
        left = list(reversed(batch))
        try:
            self._sync(batch)
            while left:
                file = left[-1]
                with self._parent(file.path) as (directory, name):
                    self._give_name(file.path, file.beside, directory, name)
                os.close(left.pop().fd)
        finally:
            self._drop(left)

    def _sync(self, batch: list[_Waiting]) -> None:
        for disk in {file.disk.fd: file.disk for file in batch}.values():
            files = [file for file in batch if file.disk is disk]
            if len(files) > FEW_FILES:
                with contextlib.suppress(OSError):  # perhaps about another program's file
                    syncing.sync_file_system(disk.fd, os.fsdecode(self._path))
                    continue
            for file in files:
                with self._named_errors(file.path):
                    os.fsync(file.fd)

    def _drop(self, files: list[_Waiting]) -> None:
        while files:
            file = files.pop()
            with contextlib.suppress(OSError), self._opened_parent(file.path) as (directory, _):
                os.unlink(file.beside, dir_fd=directory)
            os.close(file.fd)
