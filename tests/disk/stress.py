"""Work on a mount whose disk fails, and what must hold: a call that succeeds gives the bytes that
were written, or it fails.

`FileWorker` is fsstress's kind of work with a memory: one thread in a directory of its own writes,
reads, copies, renames, truncates and syncs files and knows each byte. After a call that changes a
file has failed, nobody knows what is in it: the file is removed. `DatabaseWorker` does the same
with SQLite databases. `Checker.wrong` collects what must never be.
"""

from __future__ import annotations

import errno
import os
import random
import sqlite3
from pathlib import Path

FILE_MAX_BYTES = 300_000
FILES = 12
# What a failing disk may answer.
FAULTS = frozenset({errno.EIO, errno.ENOSPC, errno.ENOTCONN, errno.ECONNABORTED})


class Checker:
    def __init__(self) -> None:
        self.wrong: list[str] = []
        self.calls = 0
        self.faults = 0

    def compare(self, what: str, found: bytes, expected: bytes) -> None:
        if found != expected:
            other = [at for at, pair in enumerate(zip(found, expected, strict=False)) if pair[0] != pair[1]] or [-1]
            self.wrong.append(
                f"{what}: {len(found)} of {len(expected)} bytes, {len(other)} others from {other[0]} to {other[-1]}: "
                f"{found[other[0] :][:16]!r}"
            )

    def fault(self, what: str, error: OSError) -> None:
        self.faults += 1
        if error.errno not in FAULTS:
            self.wrong.append(f"{what}: {error!r}")


class FileWorker:
    def __init__(self, root: Path, name: str, seed: int, checker: Checker) -> None:
        self.root, self.name = root, name
        self.random = random.Random(seed)
        self.checker = checker
        self.known: dict[str, bytearray] = {}  # file → its bytes
        self.synced: dict[str, bytes] = {}  # file → what the last fsync covered, until it is changed
        self.unknown: set[str] = set()  # files after a call that failed
        self.number = 0

    def path(self, file: str) -> Path:
        return self.root / self.name / file

    def start(self) -> None:
        self.path("").mkdir(exist_ok=True)

    def step(self) -> None:
        self.checker.calls += 1
        for file in sorted(self.unknown):
            self._remove(file)
        work = [
            self.write,
            self.write,
            self.append,
            self.read,
            self.read,
            self.sync,
            self.truncate,
            self.rename,
            self.copy,
        ]
        if len(self.known) > FILES:
            self._remove(self.random.choice(sorted(self.known)))
            return
        if not self.known:
            self.create()
            return
        self.random.choice([*work, self.create])()

    def create(self) -> None:
        self.number += 1
        file = f"f{self.number}"
        data = self._data(self.random.choice([100, 4096, 20_000, FILE_MAX_BYTES]))
        self._change(file, bytearray(), lambda fd: self._put(fd, data, 0), data, os.O_CREAT | os.O_EXCL)

    def write(self) -> None:
        file, old = self._any()
        offset = self.random.randrange(len(old) + 1)
        data = self._data(self.random.choice([10, 4096, 30_000]))
        new = bytearray(old)
        new[offset : offset + len(data)] = data
        self._change(file, old, lambda fd: self._put(fd, data, offset), new)

    def append(self) -> None:
        file, old = self._any()
        if len(old) < FILE_MAX_BYTES:
            data = self._data(1000)
            self._change(file, old, lambda fd: self._put(fd, data, len(old)), old + data)

    def truncate(self) -> None:
        file, old = self._any()
        size = self.random.randrange(FILE_MAX_BYTES)
        new = old[:size] + bytes(max(0, size - len(old)))
        self._change(file, old, lambda fd: os.ftruncate(fd, size), new)

    def copy(self) -> None:
        (file, old), (source, data) = self._any(), self._any()
        if file == source or not data:
            return
        first = self.random.randrange(len(data))
        length = self.random.randrange(1, len(data) - first + 1)
        at = self.random.randrange(len(old) + 1)
        new = bytearray(old)
        new[at : at + length] = data[first : first + length]
        self._change(file, old, lambda fd: self._copy(fd, source, first, at, length), new)

    def rename(self) -> None:
        (file, data), (target, _) = self._any(), self._any()
        try:
            os.rename(self.path(file), self.path(target))
        except OSError as error:
            self.checker.fault(f"rename {file}", error)
            for name in {file, target}:
                self._forget(name)
            return
        if file != target:
            self._forget(target, is_unknown=False)
            self.known[target] = data
            if file in self.synced:
                self.synced[target] = self.synced[file]
            self._forget(file, is_unknown=False)

    def sync(self) -> None:
        file, data = self._any()
        try:
            fd = os.open(self.path(file), os.O_RDWR)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)
            self.synced[file] = bytes(data)
        except OSError as error:
            self.checker.fault(f"fsync {file}", error)

    def read(self) -> None:
        file, data = self._any()
        first = self.random.randrange(len(data) + 1)
        length = self.random.choice([10, 4096, FILE_MAX_BYTES])
        self.check(file, bytes(data), first, length, must=file in self.synced)

    def check_all(self) -> None:
        for file, data in self.known.items():
            self.check(file, bytes(data), 0, FILE_MAX_BYTES * 2, must=file in self.synced)

    def check(self, file: str, data: bytes, first: int, length: int, *, must: bool) -> None:
        """must: the bytes were synced, so an error is a loss."""
        what = f"{self.name}/{file}"
        expected, found = data[first : first + length], b""
        try:
            fd = os.open(self.path(file), os.O_RDONLY)
            try:
                os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
                # A read ends early in front of what it cannot have.
                while len(found) < length and (part := os.pread(fd, length - len(found), first + len(found))):
                    found += part
            finally:
                os.close(fd)
        except OSError as error:
            self.checker.fault(what, error)
            if must and error.errno == errno.EIO:
                self.checker.wrong.append(f"{what}: synced bytes are lost")
            expected = expected[: len(found)]
        self.checker.compare(what, found, expected)

    def _change(self, file: str, old: bytes | bytearray, call: object, new: bytes | bytearray, flags: int = 0) -> None:
        assert callable(call)
        self.synced.pop(file, None)
        try:
            fd = os.open(self.path(file), os.O_RDWR | flags)
            try:
                call(fd)
            finally:
                os.close(fd)
            self.known[file] = bytearray(new)
        except OSError as error:
            self.checker.fault(f"change {file}", error)
            self._forget(file)

    def _put(self, fd: int, data: bytes, offset: int) -> None:
        done = 0
        while done < len(data):
            done += os.pwrite(fd, data[done:], offset + done)

    def _copy(self, fd: int, source: str, first: int, at: int, length: int) -> None:
        from_fd = os.open(self.path(source), os.O_RDONLY)
        try:
            done = 0
            while done < length:
                count = os.copy_file_range(from_fd, fd, length - done, first + done, at + done)
                if count == 0:
                    raise OSError(errno.EIO, "the source ended early")
                done += count
        finally:
            os.close(from_fd)

    def _remove(self, file: str) -> None:
        try:
            self.path(file).unlink(missing_ok=True)
            self.unknown.discard(file)
            self._forget(file, is_unknown=False)
        except OSError as error:
            self.checker.fault(f"unlink {file}", error)
            self._forget(file)

    def _forget(self, file: str, *, is_unknown: bool = True) -> None:
        self.known.pop(file, None)
        self.synced.pop(file, None)
        if is_unknown:
            self.unknown.add(file)

    def _any(self) -> tuple[str, bytearray]:
        file = self.random.choice(sorted(self.known))
        return file, self.known[file]

    def _data(self, length: int) -> bytes:
        return self.random.randbytes(length)


class DatabaseWorker:
    """One SQLite database after the other: a new one when a call has failed, since what is in the
    old one then depends on the disk."""

    def __init__(self, root: Path, name: str, seed: int, checker: Checker) -> None:
        self.root, self.name = root, name
        self.random = random.Random(seed)
        self.checker = checker
        self.number = 0
        self.rows: dict[int, bytes] = {}
        self.file: Path | None = None

    def start(self) -> None:
        (self.root / self.name).mkdir(exist_ok=True)

    def step(self) -> None:
        self.checker.calls += 1
        if self.file is None:
            self.number += 1
            self.file, self.rows = self.root / self.name / f"{self.number}.db", {}
        try:
            self._transaction(self.file)
        except sqlite3.DatabaseError as error:
            self._give_up(error)

    def check_all(self) -> None:
        if self.file is not None:
            try:
                self._check(self.file)
            except sqlite3.DatabaseError as error:
                self._give_up(error)

    def _transaction(self, file: Path) -> None:
        changes = {self.random.randrange(200): self.random.randbytes(2000) for _ in range(20)}
        connection = sqlite3.connect(file, isolation_level=None)
        try:
            connection.execute("CREATE TABLE IF NOT EXISTS t (id INTEGER PRIMARY KEY, data BLOB)")
            connection.execute("BEGIN IMMEDIATE")
            connection.executemany("INSERT OR REPLACE INTO t VALUES (?, ?)", changes.items())
            connection.execute("COMMIT")
        finally:
            connection.close()
        self.rows |= changes
        if self.random.random() < 0.2:
            self._check(file)

    def _check(self, file: Path) -> None:
        connection = sqlite3.connect(file)
        try:
            verdict = connection.execute("PRAGMA integrity_check").fetchall()
            rows = dict(connection.execute("SELECT id, data FROM t")) if self.rows else {}
        finally:
            connection.close()
        if verdict != [("ok",)] or rows != self.rows:
            self.checker.wrong.append(f"{file.name}: {verdict[:3]}, {len(rows)} of {len(self.rows)} rows")

    def _give_up(self, error: sqlite3.DatabaseError) -> None:
        self.checker.faults += 1
        if "malformed" in str(error) or "not a database" in str(error):
            self.checker.wrong.append(f"{self.file}: {error}")
        self.file = None
