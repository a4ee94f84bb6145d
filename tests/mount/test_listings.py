"""Positions in directories: what readers of a directory keep while its daemon is exchanged."""

from __future__ import annotations

import ctypes
import os
import struct
from pathlib import Path

import pytest

from cowfs.blocking import Volume

LIBC = ctypes.CDLL(None, use_errno=True)
SERVERS = pytest.mark.parametrize("fast_lane", [True, False], ids=["lane", "pyfuse3"])
FILES = 700
LINKS = 300


def entries_from(fd: int, position: int, size: int) -> list[tuple[str, int, int]]:
    """Name, inode and position behind it, of the entries that one getdents64 returns."""
    os.lseek(fd, position, os.SEEK_SET)
    buffer = ctypes.create_string_buffer(size)
    length = LIBC.getdents64(fd, buffer, size)
    assert length >= 0, os.strerror(ctypes.get_errno())
    found, at = [], 0
    while at < length:
        ino, offset, record = struct.unpack_from("<QqH", buffer.raw, at)
        name = buffer.raw[at + 19 : at + record].split(b"\0", 1)[0]
        found.append((name.decode(), ino, offset))
        at += record
    return found


def listing_from(path: Path, position: int) -> list[str]:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    names = []
    try:
        while entries := entries_from(fd, position, 4096):
            position = entries[-1][2]
            names += [name for name, _, _ in entries]
    finally:
        os.close(fd)
    return names


@SERVERS
def test_a_listing_goes_on_on_a_later_mount(fast_lane: bool) -> None:
    volume = Volume.new("v")
    path = volume.mount(fast_lane=fast_lane) / "d"
    path.mkdir()
    for number in range(FILES):
        (path / f"file {number}").touch()
    for number in range(LINKS):
        os.link(path / "file 7", path / f"link {number}")
    names = set(os.listdir(path))
    for commits in (True, False):
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        first: list[str] = []
        position = 0
        entries: list[tuple[str, int, int]] = []
        while len(first) < FILES // 2:
            entries = entries_from(fd, position, 1024)
            first += [name for name, _, _ in entries]
            position = entries[-1][2]
        for name, ino, _ in entries:
            assert os.stat(path / name).st_ino == ino
        os.close(fd)
        if commits:
            volume.commit()
        volume.unmount()
        path = volume.mount(fast_lane=fast_lane) / "d"
        rest = listing_from(path, position)
        assert len(first) + len(rest) == len(set(first + rest)), "no entry twice"
        assert set(first + rest) == names | {".", ".."}
        assert [*first, *rest] == listing_from(path, 0)
    volume.unmount()
