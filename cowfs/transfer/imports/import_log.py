"""Records which chunks an import has made of which objects, so that an import does not read them
again after a kill.

One line of text an object, appended when it was read and its chunks were handed to packs:

    <BLAKE3 of URL, key, size, time and state: 64 hex> <offset>:<length>:<chunk hash, 64 hex> …\\n

The file is in the volume's working copy, and is removed once a version is published. It is a hint
and never synced: an import looks up each chunk of a recorded object, and reads the object if one of
them is not known to be in the store. A torn line is ignored. Any thread may ask and append.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from blake3 import blake3

from cowfs.base import log
from cowfs.base.ids import ChunkHash
from cowfs.format.canonical import encode
from cowfs.store.origin import OriginObject

if TYPE_CHECKING:
    from cowfs.index import ExtentRow

Part = tuple[int, int, ChunkHash]

_log = log.get("uploads")


class ImportLog:
    """url: of the origin. An object without a state to identify it is not recorded."""

    def __init__(self, path: Path, url: str) -> None:
        self._path = path
        self._url = url
        self._lock = threading.Lock()
        self._found: dict[str, str] = {}
        with contextlib.suppress(FileNotFoundError):
            for line in path.read_text("ascii", "replace").splitlines(keepends=True):
                name, _, parts = line.partition(" ")
                if line.endswith("\n"):
                    self._found[name] = parts

    def find(self, found: OriginObject) -> list[Part] | None:
        """The parts that the object was stored as."""
        text = self._found.get(self._name(found))
        if text is None:
            return None
        parts: list[Part] = []
        try:
            for part in text.split():
                offset, length, hash = part.split(":")
                parts.append((int(offset), int(length), ChunkHash.from_hex(hash)))
        except ValueError:
            return None
        return parts

    def append(self, found: OriginObject, rows: Iterable[ExtentRow]) -> None:
        """rows: of whole chunks."""
        if found.state:
            self._write(self._name(found), _text((row[0], row[1], row[2]) for row in rows))

    def take_up(self, found: OriginObject, parts: Iterable[Part]) -> None:
        """Records what another worker has read and stored; `find` returns it from now on."""
        name, text = self._name(found), _text(parts)
        self._found[name] = text
        self._write(name, text)

    def _write(self, name: str, text: str) -> None:
        try:
            with self._lock, self._path.open("a", encoding="ascii") as file:
                file.write(f"{name} {text}\n")
        except OSError as error:  # a full disk, for example: nothing depends on the file
            _log.info("%s cannot be written: %s", self._path, error.strerror)

    def delete(self) -> None:
        """Deletes the log, because its contents are in a version now."""
        self._path.unlink(missing_ok=True)

    def _name(self, found: OriginObject) -> str:
        said = {"url": self._url, "key": found.key.encode(errors="surrogateescape").hex(), "state": found.state}
        return blake3(encode({**said, "size": found.size, "mtime_ns": found.mtime_ns})).hexdigest()


def _text(parts: Iterable[tuple[int, int, bytes | ChunkHash]]) -> str:
    return " ".join(f"{offset}:{length}:{bytes(hash).hex()}" for offset, length, hash in parts)
