"""A directory of this machine that files are copied to for good: a file that has its name and its
time is whole, also after a power loss.

A download takes a file of the right size and time for one that is there already. File systems write
names and times before contents, if nobody asks for another order: a file that was renamed to its
name before it was synced may be one of zeros after a power loss, and stay that.

    large files    are synced one by one, each by who has written it
    small ones     wait under the names of half-written ones, locked as these are; one sync of their
                   file system is for a batch of them, which then get their names; where that does
                   not do (`syncing.does_for_all`), or has failed, they are synced one by one, too

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
from cowfs.errors import CowfsError
from cowfs.machine import syncing
from cowfs.session.local_files import LocalFiles, written
from cowfs.values import dataclass

LARGE_BYTES = 8 << 20
BATCH_FILES = 128
"""Each is open. All that wait in this process are an eighth of the files that it may have open,
beside one or two of each copy."""
BATCH_BYTES = 64 << 20
FEW_FILES = 8
"""Are synced one by one: other programs may have much to be written."""
BATCH_S = 5.0
"""From a slow source: what a killed copy has to copy again."""
_UNNAMED_MODE = 0o600


@dataclass(slots=True)
class _Disk:
    """A file system. fd: opened before any file that is written there, so that a sync tells of what
    is lost of each. It tells that once: is_synced_as_one is False from then on."""

    fd: int
    is_synced_as_one: bool


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A file that is whole, and has not got its name, nor its mode: it can be opened if it is
    left."""

    path: bytes
    beside: bytes
    fd: int
    size: int
    mode: int
    disk: _Disk


class _Counter:
    """Files that wait in this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.count = 0

    def add(self, number: int) -> None:
        with self._lock:
            self.count += number


_waiting = _Counter()


class WholeFiles(LocalFiles):
    """Several threads may put files at once; `settle` comes after them. What was put has its name
    then, not before."""

    def __init__(self, root: bytes) -> None:
        super().__init__(root)
        self._most_waiting = resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 8
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
            fd = written(beside, directory, pieces, mode=_UNNAMED_MODE, mtime_ns=mtime_ns, xattrs=xattrs)
            size = os.fstat(fd).st_size
            if disk.is_synced_as_one and size < LARGE_BYTES:
                full = self._added(_Waiting(path, beside, fd, size, mode, disk))
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
        """OSError: the content of one of them is not on stable storage, and none of the batch gets
        its name; or there is something in one's way, and the others have theirs."""
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
                except OSError:  # about another program's file, perhaps, or one of the next batch
                    disk.is_synced_as_one = False
            for file in files:
                with self._named_errors(file.path):
                    os.fsync(file.fd)

    def _drop(self, files: list[_Waiting]) -> None:
        while files:
            file = files.pop()
            with contextlib.suppress(OSError), self._opened_parent(file.path) as (directory, _):
                os.unlink(file.beside, dir_fd=directory)
            os.close(file.fd)
            _waiting.add(-1)
