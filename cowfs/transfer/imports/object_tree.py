"""A listing of foreign objects as a tree of files: the source of an import.

    key              file
    a/b/c.bin        c.bin in the directory a/b
    a/b/             the directory a/b, if the object is empty: a marker, as consoles make them

Objects have no permissions, links or empty directories of their own: files get 0644, directories
0755, and a directory has the time of the newest file below it. Names that a file system cannot have
are refused, all together and before anything is read: empty parts, "." and "..", parts of more than
255 bytes, a key that is a file and a directory at once, a marker with bytes in it. Objects that the
origin lists but cannot read (`OriginObject.fault`) are refused as well. Excluded keys are not
checked.

An object is read in the state that was listed; if it was replaced since, it is looked up again and
read anew. The listing is in memory: some 500 bytes an object.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterable, Iterator

from cowfs.base.errors import InvalidInputError, SourceChangedError
from cowfs.base.fast_dataclass import dataclass
from cowfs.base.thread_pool import Threads
from cowfs.store.origin import Origin, OriginObject
from cowfs.transfer.source_files import SourceChanged, SourceExtent, Stamp
from cowfs.transfer.upload.upload_plan import is_left_out

RECORD = ".cowfs-export.json"
"""The record that an export keeps below its target URL: not a file of the user."""
FILE_MODE = stat.S_IFREG | 0o644
DIRECTORY_MODE = stat.S_IFDIR | 0o755
NAME_BYTES = 255
SHOWN = 5
RANGE_BYTES = 2 << 20
RANGE_THREADS = 16


STATE = b"user.cowfs.state"
"""Extended attribute of an imported file: the state of its object (`OriginObject.state`)."""


@dataclass(frozen=True, slots=True)
class ObjectAttr:
    """object: None for a directory."""

    mode: int
    size: int
    mtime_ns: int
    object: OriginObject | None = None
    ino: int = 0
    nlink: int = 1


class ObjectTree:
    """name: of the file, where the URL names a single object. excluded: as in `UploadPlan`.
    InvalidInputError lists keys that cannot be file names, and objects that cannot be files."""

    def __init__(
        self,
        origin: Origin,
        objects: Iterable[OriginObject],
        *,
        name: str = "",
        excluded: Callable[[bytes], bool] = lambda path: False,
    ) -> None:
        self._origin = origin
        self._excluded = excluded
        self._files: dict[bytes, dict[bytes, ObjectAttr]] = {}
        self._directories: dict[bytes, int] = {b"": 0}  # → the time of the newest file below
        self._bad: list[str] = []
        self._faulty: list[str] = []
        for found in objects:
            if name or found.key != RECORD:
                self._add(found, name or found.key)
        self._check_directories()
        self._refuse_bad()
        self._below: dict[bytes, list[bytes]] = {}
        for path in self._directories:
            if path:
                self._below.setdefault(path.rpartition(b"/")[0], []).append(path)
        self._threads = Threads(RANGE_THREADS, name="cowfs-range")

    def close(self) -> None:
        self._threads.shutdown(cancel_futures=True)

    def objects(self) -> Iterator[tuple[bytes, OriginObject]]:
        """Yields each object with its path."""
        for directory, files in self._files.items():
            for name, attr in files.items():
                if attr.object is not None:
                    yield (directory + b"/" + name if directory else name), attr.object

    def stat(self, path: bytes) -> ObjectAttr:
        if (mtime_ns := self._directories.get(path)) is not None:
            return ObjectAttr(DIRECTORY_MODE, 0, mtime_ns)
        above, _, name = path.rpartition(b"/")
        found = self._files.get(above, {}).get(name)
        if found is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), os.fsdecode(path))
        return found

    def list(self, path: bytes) -> list[tuple[bytes, ObjectAttr]]:
        """Sorted by name."""
        directories = [(each.rpartition(b"/")[2], self.stat(each)) for each in self._below.get(path, ())]
        return sorted([*self._files.get(path, {}).items(), *directories], key=lambda entry: entry[0])

    def readlink(self, path: bytes) -> bytes:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), os.fsdecode(path))

    def open_file(self, path: bytes) -> ObjectFile:
        above, _, name = path.rpartition(b"/")
        found = self._files[above][name].object
        assert found is not None, "only directories have none"
        return ObjectFile(self._origin, found, self._threads)

    # -- from keys to names

    def _add(self, found: OriginObject, key: str) -> None:
        if found.fault:
            if not is_left_out(self._excluded, os.fsencode(key)):
                self._faulty.append(f"{key!r} ({found.fault})")
            return
        path = os.fsencode(key)
        is_marker = path.endswith(b"/")
        parts = path.removesuffix(b"/").split(b"/")
        if any(part in (b"", b".", b"..") or len(part) > NAME_BYTES or b"\0" in part for part in parts) or (
            is_marker and found.size
        ):
            self._note_bad(key)
            return
        *above, name = parts
        directory = b""
        for part in [*above, name] if is_marker else above:
            directory = directory + b"/" + part if directory else part
            self._directories[directory] = max(self._directories.get(directory, 0), found.mtime_ns)
        if not is_marker:
            self._directories[b""] = max(self._directories[b""], found.mtime_ns)
            self._files.setdefault(directory, {})[name] = ObjectAttr(FILE_MODE, found.size, found.mtime_ns, found)

    def _check_directories(self) -> None:
        for path in self._directories:
            above, _, name = path.rpartition(b"/")
            if path and name in self._files.get(above, {}) and not self._excluded(path + b"/"):
                self._note_bad(os.fsdecode(path))

    def _note_bad(self, key: str) -> None:
        if not is_left_out(self._excluded, os.fsencode(key)):
            self._bad.append(repr(key))

    def _refuse_bad(self) -> None:
        if self._bad:
            raise InvalidInputError(
                f"{self._origin.url} has keys that cannot be file names: {_first(self._bad)}",
                hint="An empty part, '.', '..', a part of more than 255 bytes, a file that is a directory as well, or bytes "
                "in an object whose key ends in '/'. Rename them, or leave them out (--exclude, exclude=).",
            )
        if self._faulty:
            raise InvalidInputError(
                f"{self._origin.url} lists objects that cannot be imported: {_first(self._faulty)}",
                hint="Leave them out (--exclude, exclude=), or repair them in the bucket.",
            )


def _first(names: list[str]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more


def state_of(attr: object) -> str | None:
    """The state of an object; "": the origin gives none. None: it is a file of this machine, or of
    a version."""
    return attr.object.state if isinstance(attr, ObjectAttr) and attr.object is not None else None


def marks(attr: object) -> list[tuple[bytes, bytes]]:
    """Extended attributes of the file that the object becomes."""
    state = state_of(attr)
    return [(STATE, state.encode())] if state else []


class ObjectFile:
    """One object, in the state that was listed or looked up last. Any thread may read."""

    def __init__(self, origin: Origin, found: OriginObject, threads: Threads) -> None:
        self.ino = 0
        self._origin = origin
        self._found = found
        self._threads = threads
        self._is_stale = False

    def close(self) -> None:
        """Does nothing: no connection is held open."""

    @property
    def object(self) -> OriginObject:
        """The state that is read."""
        return self._found

    def stamp(self) -> Stamp:
        return Stamp(0, FILE_MODE, self._found.size, self._found.mtime_ns, int(self._is_stale))

    def settle(self) -> Stamp | None:
        """Looks up the object again if it has changed. FileNotFoundError: it is gone."""
        if self._is_stale:
            now = self._origin.look(self._found.key)
            if now is None:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), self._found.key)
            self._found, self._is_stale = now, False
        return self.stamp()

    def extents(self, size: int) -> list[SourceExtent]:
        """Returns the whole object as one extent: cutting detects zeros."""
        return [SourceExtent(0, size)] if size else []

    def read(self, extent: SourceExtent, first: int, length: int) -> bytes:
        if length <= RANGE_BYTES:
            return self._range(extent.offset + first, length)
        data = bytearray(length)
        self.read_into(extent.offset + first, memoryview(data))
        return bytes(data)

    def read_into(self, offset: int, target: memoryview) -> None:
        """Fetches ranges in parallel, since sequential requests are slow."""

        def fetch(start: int) -> None:
            end = min(start + RANGE_BYTES, len(target))
            target[start:end] = self._range(offset + start, end - start)

        for _ in self._threads.map(fetch, range(0, len(target), RANGE_BYTES)):
            pass

    def _range(self, offset: int, length: int) -> bytes:
        try:
            return self._origin.read(self._found, offset, length)
        except SourceChangedError:
            self._is_stale = True
            raise SourceChanged from None
