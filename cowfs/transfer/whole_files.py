"""A directory of this machine for durable copies: a file that has its name and its time is
complete, even after a power loss.

A download takes a file with the right size and time for one that exists already. Unless told
otherwise, file systems write names and times before contents: a file that was renamed before it was
synced may consist of zeros after a power loss, and would stay that way.

    large files    are synced one by one, by the thread that wrote them
    small ones     wait under temporary names, locked like half-written files; one sync of their
                   file system covers a batch of them, which then get their names; where that is
                   not reliable (`syncing.does_for_all`), or has failed, they are synced one by one, too

Waiting files are removed when the copy is abandoned, and those left by a killed copy by the next
one. The copy does not wait until the names are durable: a file that has lost its name is copied
again.
"""

from __future__ import annotations

import contextlib
import os
import resource
import threading
from collections.abc import Iterable, Sequence

from cowfs.base import clock
from cowfs.base.errors import CowfsError
from cowfs.base.fast_dataclass import dataclass
from cowfs.machine import syncing
from cowfs.transfer.local_files import LocalFiles, write_new

LARGE_BYTES = 8 << 20
BATCH_FILES = 128
"""Each is open. All waiting files of this process take at most an eighth of its open-file limit, in
addition to one or two per copy."""
BATCH_BYTES = 64 << 20
FEW_FILES = 8
"""So few files are synced one by one: other programs may have much unwritten data."""
BATCH_S = 5.0
"""For a slow source: bounds what a copy has to repeat after a kill."""
_UNNAMED_MODE = 0o600


@dataclass(slots=True)
class _Disk:
    """A file system. fd: opened before any file that is written there, so that a sync reports the
    loss of any of them. An error is reported once: is_synced_as_one is False from then on."""

    fd: int
    is_synced_as_one: bool


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A complete file without its final name and mode; it can be opened if it is left behind."""

    path: bytes
    beside: bytes
    fd: int
    size: int
    mode: int
    disk: _Disk


class _Counter:
    """Counts the waiting files of this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.count = 0

    def add(self, number: int) -> None:
        with self._lock:
            self.count += number


_waiting = _Counter()


class WholeFiles(LocalFiles):
    """Several threads may put files at once; call `settle` after them. Only then does every file
    have its name."""

    def __init__(self, root: bytes) -> None:
        super().__init__(root)
        self._most_waiting = resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 8
        self._batch: list[_Waiting] = []
        self._begun_s = 0.0
        self._disks: dict[int, _Disk] = {}
        self._lock = threading.Lock()  # guards `_batch`, `_begun_s`, `_disks`
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
        with self._parent(path) as (directory, name), self._temporary_name(path, directory, name) as beside:
            disk = self._disk(directory)
            fd = write_new(beside, directory, pieces, mode=_UNNAMED_MODE, mtime_ns=mtime_ns, xattrs=xattrs)
            size = os.fstat(fd).st_size
            if disk.is_synced_as_one and size < LARGE_BYTES:
                full = self._add(_Waiting(path, beside, fd, size, mode, disk))
            else:
                try:
                    os.fsync(fd)
                    os.fchmod(fd, mode)
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

    def _prepare_name(self, fd: int) -> None:
        os.fsync(fd)

    def _disk(self, directory: int) -> _Disk:
        device = os.fstat(directory).st_dev
        with self._lock:
            if device not in self._disks:
                self._disks[device] = _Disk(os.dup(directory), syncing.does_for_all(directory))
            return self._disks[device]

    def _add(self, file: _Waiting) -> list[_Waiting]:
        """Adds a file. Returns the batch if it is full now; the caller then holds `_naming` and
        must release it."""
        with self._lock:
            if not self._batch:
                self._begun_s = clock.monotonic_s()
            self._batch.append(file)
            _waiting.add(1)
            if (
                len(self._batch) < BATCH_FILES
                and _waiting.count < self._most_waiting
                and sum(each.size for each in self._batch) < BATCH_BYTES
                and clock.monotonic_s() - self._begun_s < BATCH_S
            ):
                return []
            self._naming.acquire()
            full, self._batch = self._batch, []
            return full

    def _name(self, batch: list[_Waiting]) -> None:
        """Gives the files of a batch their names. OSError: the content of one is not on stable
        storage, and none of the batch gets its name; or one name is blocked, and the others have
        theirs."""
        left = list(reversed(batch))
        in_the_way: OSError | CowfsError | None = None
        try:
            self._sync(batch)
            while left:
                file = left[-1]
                try:
                    with self._parent(file.path) as (directory, name):
                        os.fchmod(file.fd, file.mode)
                        self._give_name(file.path, file.beside, directory, name)
                except (OSError, CowfsError) as error:
                    in_the_way = in_the_way or error
                    self._drop([left.pop()])
                    continue
                os.close(left.pop().fd)
                _waiting.add(-1)
        finally:
            self._drop(left)
        if in_the_way is not None:
            raise in_the_way

    def _sync(self, batch: list[_Waiting]) -> None:
        for disk in {file.disk.fd: file.disk for file in batch}.values():
            files = [file for file in batch if file.disk is disk]
            if len(files) > FEW_FILES and disk.is_synced_as_one:
                try:
                    syncing.sync_file_system(disk.fd, os.fsdecode(self._path))
                    continue
                except OSError:  # caused by another program's file, perhaps, or one of the next batch
                    disk.is_synced_as_one = False
            for file in files:
                with self._name_errors(file.path):
                    os.fsync(file.fd)

    def _drop(self, files: list[_Waiting]) -> None:
        while files:
            file = files.pop()
            with contextlib.suppress(OSError), self._open_parent(file.path) as (directory, _):
                os.unlink(file.beside, dir_fd=directory)
            os.close(file.fd)
            _waiting.add(-1)
