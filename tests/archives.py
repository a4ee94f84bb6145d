"""Archives for tests: in memory, read as an import reads them, and what Debian's programs make of
them."""

from __future__ import annotations

import os
import stat
import subprocess
from pathlib import Path

from cowfs.store.origin import OriginObject
from cowfs.store.origin.archive import Address, Archive, open_archive
from cowfs.transfer.imports.archive_names import ArchiveNames
from cowfs.transfer.upload.upload_plan import nothing_excluded

# path → (kind, permissions, time in ns, bytes or target)
Tree = dict[bytes, tuple[str, int, int, bytes]]


class Bytes:
    """An origin with one object, which counts what is read of it."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.read_bytes = 0

    url = "memory://archive"

    def list(self) -> list[OriginObject]:
        return [OriginObject("", len(self.data), 0, "")]

    def look(self, key: str) -> OriginObject | None:
        return OriginObject(key, len(self.data), 0, "")

    def read(self, found: OriginObject, offset: int, length: int) -> bytes:
        self.read_bytes += length
        return self.data[offset : offset + length]

    def close(self) -> None:
        """Nothing is open."""


def opened(kind: str, data: bytes | Bytes, root: bytes = b"") -> Archive:
    origin = data if isinstance(data, Bytes) else Bytes(data)
    return open_archive(Address(kind, root, "an-archive"), origin, "")  # type: ignore[arg-type]


def unpacked(kind: str, data: bytes | Bytes) -> Tree:
    """What an import makes of the archive. Raises what it is refused for."""
    archive = opened(kind, data)
    try:
        names = ArchiveNames("an-archive", b"", nothing_excluded)
        contents: dict[int, bytes] = {}
        for member in archive.members():
            if (attr := names.add(member)) is not None:
                whole = bytearray(member.size)
                for offset, length in member.ranges:
                    member.fill(memoryview(whole)[offset : offset + length])
                contents[attr.ino] = bytes(whole)
    finally:
        archive.close()
    found: Tree = {}
    waiting = [b""]
    while waiting:
        directory = waiting.pop()
        for name, attr in names.list(directory):
            path = directory + b"/" + name if directory else name
            if stat.S_ISDIR(attr.mode):
                waiting.append(path)
            data_of = attr.target if stat.S_ISLNK(attr.mode) else contents.get(attr.ino, b"")
            found[path] = (_KINDS.get(stat.S_IFMT(attr.mode), "other"), stat.S_IMODE(attr.mode), attr.mtime_ns, data_of)
    return found


_KINDS = {
    stat.S_IFREG: "file",
    stat.S_IFDIR: "directory",
    stat.S_IFLNK: "link",
    stat.S_IFIFO: "pipe",
    stat.S_IFCHR: "device",
}


def on_disk(root: Path) -> Tree:
    """What lies below a directory."""
    found: Tree = {}
    for above, directories, files in os.walk(os.fsencode(root)):
        for name in [*directories, *files]:
            path = os.path.join(above, name)
            state = os.lstat(path)
            kind = _KINDS[stat.S_IFMT(state.st_mode)]
            data = b""
            if kind == "link":
                data = os.readlink(path)
            elif kind == "file":
                data = Path(os.fsdecode(path)).read_bytes()
            found[os.path.relpath(path, os.fsencode(root))] = (
                kind,
                stat.S_IMODE(state.st_mode),
                state.st_mtime_ns,
                data,
            )
    return found


def plain(tree: Tree) -> dict[bytes, tuple[str, bytes]]:
    """Kinds and bytes alone."""
    return {path: (kind, data) for path, (kind, _, _, data) in tree.items()}


def run(*command: str | Path, cwd: Path | None = None, **environment: str) -> None:
    subprocess.run(command, cwd=cwd, check=True, capture_output=True, env={**os.environ, **environment})
