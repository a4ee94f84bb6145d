"""The jobs of a worker on a file system: each prepares, does the timed part, and checks the result.

A job is a generator. It prepares up to its first `yield`, where it waits for all workers. The part
up to its second `yield` is timed. The rest checks the result and returns it. A wrong result raises
Wrong: the run fails.

    files   create, stat, traverse, read, rename, unlink on directories of small files; contents differ from file to file
    large   write, read, random_read, random_write on one file whose bytes are those of the material file (`material`)
    programs   sqlite

Uses the standard library only, and nothing of cowfs but the clock, so that nothing else affects the
numbers.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Generator
from functools import cache
from pathlib import Path
from typing import Any

from cowfs.base import clock

BLOCK_BYTES = 1 << 20
PAGE_BYTES = 4096

Job = Generator[None, None, Any]


class Wrong(Exception):
    """The file system returned something else than was written."""


# -- small files: `directories` are full paths, each holds `count` files named PREFIX and a number


def make_directories(directories: list[str]) -> Job:
    yield
    for directory in directories:
        os.mkdir(directory)
    yield
    return len(directories)


def create(directories: list[str], count: int, size: int) -> Job:
    contents = [small_content(name, size) for name in range(count)]
    names = _names(directories, "f", count)
    jobs = list(zip(names, contents * len(directories), strict=True))
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    written = 0
    yield
    for name, content in jobs:
        fd = os.open(name, flags, 0o644)
        written += os.write(fd, content)
        os.close(fd)
    yield
    _expect(written, size * len(jobs), "bytes written")
    return len(jobs)


def stat(directories: list[str], count: int, size: int) -> Job:
    names = _names(directories, "f", count)
    total = 0
    yield
    for name in names:
        total += os.stat(name).st_size
    yield
    _expect(total, size * len(names), "sum of the sizes")
    return len(names)


def traverse(directories: list[str], count: int, size: int) -> Job:
    """Names and types, as `find` reads them."""
    found = 0
    yield
    for directory in directories:
        with os.scandir(directory) as entries:
            for entry in entries:
                found += entry.is_file(follow_symlinks=False)
    yield
    _expect(found, count * len(directories), "files listed")
    return found


def read(directories: list[str], count: int, size: int, checks: bool = True) -> Job:
    names = _names(directories, "f", count)
    contents: list[bytes] = []
    yield
    for name in names:
        fd = os.open(name, os.O_RDONLY)
        contents.append(os.read(fd, size + 1))
        os.close(fd)
    yield
    _expect(sum(map(len, contents)), size * len(names), "bytes read")
    if checks:
        expected = [small_content(name, size) for name in range(count)] * len(directories)
        wrong = [name for name, got, want in zip(names, contents, expected, strict=True) if got != want]
        _expect(wrong, [], "wrong files")
    return len(names)


def rename(directories: list[str], count: int, size: int, checks: bool = True) -> Job:
    pairs = list(zip(_names(directories, "f", count), _names(directories, "r", count), strict=True))
    yield
    for old, new in pairs:
        os.rename(old, new)
    yield
    if checks:
        for directory in directories:
            _expect(sorted(os.listdir(directory)), sorted(f"r{number}" for number in range(count)), directory)
    return len(pairs)


def unlink(directories: list[str], count: int, size: int, checks: bool = True) -> Job:
    names = _names(directories, "r", count)
    yield
    for name in names:
        os.unlink(name)
    yield
    if checks:
        for directory in directories:
            _expect(os.listdir(directory), [], directory)
    return len(names)


def remove(path: str) -> Job:
    """Removes the path, if it exists, and syncs the disk, so that the next job finds it idle."""
    yield
    if os.path.lexists(path):
        shutil.rmtree(path)
    os.sync()
    yield
    return 1


# -- one large file


def write(path: str, material: str, syncs: bool) -> Job:
    """Writes a new file in whole 1 MiB blocks. Returns the seconds until the last write returned,
    without fsync."""
    content = memoryview(_material(material))
    blocks = [content[offset : offset + BLOCK_BYTES] for offset in range(0, len(content), BLOCK_BYTES)]
    yield
    start_s = clock.monotonic_s()
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    written = sum(os.write(fd, block) for block in blocks)
    written_s = clock.monotonic_s() - start_s
    if syncs:
        os.fsync(fd)
    os.close(fd)
    yield
    _expect(written, len(content), "bytes written")
    return written_s


def sequential_read(path: str, material: str, checks: bool = True) -> Job:
    expected = memoryview(_material(material))
    buffer = bytearray(BLOCK_BYTES)
    length = 0
    yield
    fd = os.open(path, os.O_RDONLY)
    while got := os.readv(fd, [buffer]):
        length += got
    os.close(fd)
    yield
    _expect(length, len(expected), "bytes read")
    if checks:  # the pages that were just read, most of them still in memory
        with Path(path).open("rb", buffering=0) as file:
            for offset in range(0, len(expected), BLOCK_BYTES):
                block = file.read(BLOCK_BYTES)
                _expect(block == expected[offset : offset + len(block)], True, f"contents at {offset}")
    return length


def random_read(path: str, material: str, count: int, checks: bool = True) -> Job:
    expected = memoryview(_material(material))
    offsets = _offsets(len(expected), count, b"read")
    pages: list[bytes] = []
    fd = os.open(path, os.O_RDONLY)
    yield
    for offset in offsets:
        pages.append(os.pread(fd, PAGE_BYTES, offset))  # noqa: PERF401 - the loop is measured
    yield
    os.close(fd)
    _expect(sum(map(len, pages)), PAGE_BYTES * count, "bytes read")
    if checks:
        wrong = [at for at, page in zip(offsets, pages, strict=True) if page != expected[at : at + PAGE_BYTES]]
        _expect(wrong, [], "wrong pages")
    return count


def random_write(path: str, material: str, count: int, checks: bool = True) -> Job:
    content = memoryview(_material(material))
    offsets = sorted(set(_offsets(len(content), count, b"write")), key=lambda at: hashlib.blake2b(b"%d" % at).digest())
    pages = [content[len(content) - at - PAGE_BYTES :][:PAGE_BYTES] for at in offsets]  # differs from the old bytes
    fd = os.open(path, os.O_RDWR)
    yield
    for offset, page in zip(offsets, pages, strict=True):
        os.pwrite(fd, page, offset)
    yield
    if checks:
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        wrong = [at for at, page in zip(offsets, pages, strict=True) if os.pread(fd, PAGE_BYTES, at) != page]
        _expect(wrong, [], "wrong pages")
    os.close(fd)
    return len(offsets)


# -- programs


def sqlite(path: str, count: int) -> Job:
    import sqlite3  # noqa: TID251 - a process that never opens an index; what programs use is measured

    writer = sqlite3.connect(path, isolation_level=None)
    writer.execute("PRAGMA journal_mode = WAL")
    writer.execute("PRAGMA synchronous = NORMAL")
    writer.execute("CREATE TABLE rows (id INTEGER PRIMARY KEY, text TEXT)")
    yield
    for number in range(count):
        writer.execute("BEGIN")
        writer.execute("INSERT INTO rows VALUES (?, ?)", (number, f"row {number:090}"))
        writer.execute("COMMIT")
    yield
    reader = sqlite3.connect(path)
    _expect(reader.execute("SELECT count(*), sum(id) FROM rows").fetchone(), (count, count * (count - 1) // 2), "rows")
    _expect(reader.execute("PRAGMA integrity_check").fetchone(), ("ok",), "integrity check")
    reader.close()
    writer.close()
    return count


# -- contents


def small_content(number: int, size: int) -> bytes:
    """The bytes of file `number` of a directory: different for each number, and not
    compressible."""
    return hashlib.shake_128(b"%d" % number).digest(size)


@cache
def _material(path: str) -> bytes:
    return Path(path).read_bytes()


def _names(directories: list[str], prefix: str, count: int) -> list[str]:
    return [f"{directory}/{prefix}{number}" for directory in directories for number in range(count)]


def _offsets(length: int, count: int, seed: bytes) -> list[int]:
    """Pseudo-random multiples of a page within `length`, the same ones every time."""
    pages = length // PAGE_BYTES
    bits = hashlib.shake_128(seed).digest(8 * count)
    return [int.from_bytes(bits[8 * n : 8 * n + 8], "big") % pages * PAGE_BYTES for n in range(count)]


def _expect(found: object, expected: object, what: str) -> None:
    if found != expected:
        raise Wrong(f"{what}: {str(found)[:200]}, not {str(expected)[:200]}")
