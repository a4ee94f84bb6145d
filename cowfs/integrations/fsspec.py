"""cowfs as an fsspec file system: for pandas, pyarrow, duckdb, zarr, dask and other libraries that
open URLs.

    cowfs://NAME/path             the newest version of a volume in the default store; may be written
    cowfs://NAME@TAG/path         a version; NAME@VERSION likewise, 8 digits or more, NAME@{3}, NAME@{2026-11-20T12:00}
    LOCATOR/path                  cowfs+s3://bucket/prefix/-/NAME@ID/path: a version, wherever its store is
    cowfs+s3://bucket/-/NAME/path a volume there; `store=` says the same of cowfs:// URLs

A file system represents a store. Its paths are NAME[@…]/path, and its root lists the volumes.

Writes publish versions: a file when it is closed, any other call when it returns, each as one
version. `with fs.transaction:` publishes all its changes as one version, or none if it raises.
Until then the old contents are visible, plus directories that the transaction has made. A forked
child cannot add to it. Written data is held in temporary files of this machine meanwhile. Changes
that others publish in between are kept if they concern other paths; otherwise ConflictError is
raised. A version stays the same for as long as a file of it is open for reading.

A file that is not closed is not published, for example because its `with` block raises or because
it is forgotten. Pickles and tokens contain the store's URL, never credentials. These come from the
environment of the process that uses them.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from operator import methodcaller
from typing import Any, BinaryIO, cast
from urllib.parse import quote, unquote

from fsspec.compression import compr, noop_file
from fsspec.core import get_compression
from fsspec.spec import AbstractFileSystem

from cowfs import storage
from cowfs.blocking import Entry, ROVolume, RWFiles, Store
from cowfs.errors import Command, InvalidInputError, NotFoundError, ReadOnlyError
from cowfs.integrations.fsspec_files import CompressedFile, ReadFile, TextFile, WrittenFile
from cowfs.integrations.fsspec_transactions import Batch, CowfsTransaction

PIECE_BYTES = 1 << 20
VERSIONS_KEPT = 8
"""The number of versions kept open with their sessions, which have threads; others are reopened.
Open files keep their version."""
_OF_TEXT = ("encoding", "errors", "newline")
_LOCATOR = re.compile(r"(cowfs\+.*?)/-/(.*)", re.DOTALL)
_MAGIC = re.compile(r"[*?\[]")
_PINNED = re.compile(r"@([0-9a-f]{8,64})$")


class CowfsFileSystem(AbstractFileSystem):  # type: ignore[misc]
    """store: URL of a store; None: the default store. Credentials are those of the process. A
    server that only a locator names (located) gets none, unless the user has named it before."""

    protocol = ("cowfs", *(f"cowfs+{each}" for each in storage.protocols()))
    root_marker = ""

    def __init__(self, store: str | None = None, *, located: str | None = None, **options: Any) -> None:
        if not isinstance(store, str | None):
            raise InvalidInputError(f"store is {store!r}", hint="Give the URL of a store, or the path of a directory.")
        super().__init__(store=store, located=located, **options)
        self._store = Store(store) if store is not None else Store(located, located=True)
        self._is_default = store is None and located is None
        self._versions: OrderedDict[str, ROVolume] = OrderedDict()
        self._versions_lock = threading.Lock()
        self._batches = threading.local()

    transaction_type = CowfsTransaction

    # -- names

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, list):
            return [cls._strip_protocol(each) for each in path]
        text = str(path)
        if (found := _LOCATOR.match(text)) is not None:
            text = unquote(found[2], errors="surrogateescape")
        return text.removeprefix("cowfs://").strip("/")

    @staticmethod
    def _get_kwargs_from_urls(path: str) -> dict[str, str]:
        found = _LOCATOR.match(str(path))
        return {"located": found[1].removeprefix("cowfs+")} if found is not None else {}

    def unstrip_protocol(self, name: str) -> str:
        path = self._strip_protocol(name)
        if self._is_default:
            return f"cowfs://{path}"
        return f"cowfs+{self._url.rstrip('/')}/-/{quote(path, safe='/@', errors='surrogateescape')}"

    def __reduce__(self) -> tuple[Any, ...]:
        return _make, (type(self), self._url)

    @property
    def fsid(self) -> str:
        return f"cowfs+{self._url}"

    @property
    def _url(self) -> str:
        return self._store.url

    # -- reading

    def info(self, path: str, **options: Any) -> dict[str, Any]:
        source, inner = _part(self._strip_protocol(path))
        if not source:
            return {"name": "", "size": 0, "type": "directory"}
        version = self._version(source)
        if not inner:
            return {"name": source, "size": 0, "type": "directory"}
        here = self._entry(version, source, inner, path, follow=False)
        if here is None or version is None:
            return {"name": f"{source}/{inner}", "size": 0, "type": "directory"}
        return _info(version, f"{source}/{inner}", here)

    def ls(self, path: str, detail: bool = True, **options: Any) -> list[Any]:
        source, inner = _part(self._strip_protocol(path))
        if not source:
            found = [{"name": each.name, "size": 0, "type": "directory"} for each in self._store.volumes()]
        else:
            version = self._version(source)
            here = self._entry(version, source, inner, path, follow=True)
            above = f"{source}/{inner}".rstrip("/")
            if here is None or version is None:
                found = []
            elif here.type == "directory":
                with _of_paths(path):
                    found = [_list(version, f"{above}/{each.name}", each) for each in version.files.ls(inner)]
            else:
                found = [_info(version, above, here)]
        return found if detail else [each["name"] for each in found]

    def exists(self, path: str, **options: Any) -> bool:
        """False if the path does not exist. If the store does not answer, this raises an error,
        where fsspec would return False."""
        return self._type(path) is not None

    def isfile(self, path: str) -> bool:
        return self._type(path) == "file"

    def isdir(self, path: str) -> bool:
        return self._type(path) == "directory"

    def _type(self, path: str) -> str | None:
        """None: it does not exist. Nothing exists at a place where this machine has never seen a
        store."""
        try:
            return cast("str", self.info(path)["type"])
        except OSError as error:
            _require_absent(error)
        except NotFoundError:
            if self._store.was_used:
                self._store.check()  # the store exists, but not the version
        return None

    def walk(
        self, path: str, maxdepth: int | None = None, topdown: bool = True, on_error: Any = None, **options: Any
    ) -> Iterator[tuple[str, Any, Any]]:
        """As in fsspec, but also for trees deeper than Python's stack. on_error None: missing
        entries are left out; other errors are raised."""
        on_error = on_error or _require_absent
        if maxdepth is not None and maxdepth < 1:
            raise ValueError("maxdepth must be at least 1")
        waiting: list[tuple[str, int | None, Any]] = [(self._strip_protocol(path), maxdepth, None)]
        while waiting:
            at, depth, listed = waiting.pop()
            if listed is not None:
                yield listed
                continue
            for found in super().walk(at, maxdepth=1, on_error=on_error, **options):
                if topdown:
                    yield found
                else:
                    waiting.append((at, None, found))
                if depth is None or depth > 1:
                    names = reversed(list(found[1]))
                    waiting += ((f"{at}/{name}".lstrip("/"), depth and depth - 1, None) for name in names)

    def _entry(self, version: ROVolume | None, source: str, inner: str, path: str, *, follow: bool) -> Entry | None:
        """None: an empty directory: a volume without versions, or a directory made by this
        transaction."""
        batch = self._current()
        is_empty = not inner or (batch is not None and batch.has_made(source, inner))
        with _of_paths(path):
            if version is None:
                if is_empty:
                    return None
                raise FileNotFoundError(path)
            try:
                return version.files.stat(inner or "/", follow=follow)
            except FileNotFoundError:
                if is_empty:
                    return None
                raise

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **options: Any) -> bytes:
        version, inner = self._file(path)
        with _of_paths(path):
            size = version.files.stat(inner).size
            first, last, _ = slice(start, end).indices(size)
            return version.files.read(inner, first, max(last - first, 0))

    def get(self, rpath: Any, lpath: Any, recursive: bool = False, *arguments: Any, **options: Any) -> None:
        """recursive: links to directories become empty directories, as for local files. Links that
        lead nowhere or out of the volume, pipes and similar files are left out."""
        super().get(rpath, lpath, recursive, *arguments, files_only=recursive, **options)

    def get_file(self, rpath: str, lpath: Any, *arguments: Any, files_only: bool = False, **options: Any) -> None:
        if not files_only or self.info(rpath)["type"] != "other":
            super().get_file(rpath, lpath, *arguments, **options)

    def modified(self, path: str) -> datetime:
        return datetime.fromtimestamp(self.info(path).get("mtime", 0), UTC)

    def created(self, path: str) -> datetime:
        return self.modified(path)

    def ukey(self, path: str) -> str:
        """A key that changes whenever the file may have changed."""
        version, inner = self._file(path)
        return f"{version.id}/{inner}"

    def _file(self, path: str) -> tuple[ROVolume, str]:
        source, inner = _part(self._strip_protocol(path))
        version = self._version(source) if source else None
        if version is None or not inner:
            raise (IsADirectoryError if not inner else FileNotFoundError)(path)
        return version, inner

    def _version(self, source: str) -> ROVolume | None:
        """The current meaning of NAME, NAME@TAG or NAME@VERSION; None: a volume without
        versions."""
        with self._versions_lock:
            known = self._versions.get(source)
            pinned = _PINNED.search(source)  # unless it is a tag, which may move
            if known is not None and pinned is not None and known.id.startswith(pinned[1]):
                self._versions.move_to_end(source)
                return known
        try:
            locator = self._store.locator(source)
        except NotFoundError as error:
            self._store.check()
            raise FileNotFoundError(2, error.message, source) from error
        if locator is None:
            return None
        if known is None or known.locator != locator:
            known = self._store.version(locator)
        with self._versions_lock:  # the object keeps its session open
            self._versions[source] = known
            self._versions.move_to_end(source)
            while len(self._versions) > VERSIONS_KEPT:
                self._versions.popitem(last=False)
        return known

    # -- writing

    def open(
        self,
        path: str,
        mode: str = "rb",
        block_size: int | None = None,
        cache_options: Any = None,
        compression: str | None = None,
        **options: Any,
    ) -> Any:
        """Text and compressed data are written through a wrapper. It is closed with the file, and
        nothing is published if its `with` block raises."""
        of_text = {name: options.pop(name) for name in _OF_TEXT if name in options and "b" not in mode}
        if "r" in mode:
            return super().open(path, mode, block_size, cache_options, compression, **of_text, **options)
        compress = compr[get_compression(self._strip_protocol(path), compression)]
        file = super().open(path, mode.replace("t", "").replace("b", "") + "b", block_size, cache_options, **options)
        if compress is not noop_file:
            file = CompressedFile(compress(file, mode=mode[0]), file)
        return file if "b" in mode else TextFile(file, **of_text)

    def _open(
        self,
        path: str,
        mode: str = "rb",
        block_size: int | None = None,
        autocommit: bool = True,
        cache_options: Any = None,
        **options: Any,
    ) -> Any:
        if mode == "rb":
            version, inner = self._file(path)
            with _of_paths(path):
                return ReadFile(self, version, path, inner)
        if mode not in ("wb", "xb", "ab"):
            raise NotImplementedError(f"a file cannot be opened in mode {mode!r}: rb, wb, xb and ab can")
        volume, inner = self._writable(path)
        if not inner:
            raise IsADirectoryError(path)
        batch = self._batch() or self.new_batch()
        batch.begin(volume)
        if mode == "xb" and self.exists(path):
            raise FileExistsError(path)
        return WrittenFile(
            path,
            mode,
            lambda content: batch.add(volume, [_bytes(inner)], _write(inner, mode, content), content),
            autocommit=autocommit or batch.holds,
        )

    def mkdir(self, path: str, create_parents: bool = True, **options: Any) -> None:
        self._make_directory(path, parents=create_parents, exist_ok=False)

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        self._make_directory(path, parents=True, exist_ok=exist_ok)

    def _make_directory(self, path: str, *, parents: bool, exist_ok: bool) -> None:
        volume, inner = self._writable(path)
        if self._has_made(at := path if inner else volume):
            if not exist_ok or not self.isdir(at):
                raise FileExistsError(path)
            return
        if not inner:
            self._store.create(volume)
            return
        self._change(volume, lambda files: files.mkdir(inner, parents=parents, exist_ok=True))
        if (batch := self._batch()) is not None:
            batch.make(volume, inner)

    def _has_made(self, path: str) -> bool:
        """As `exists`, but also works before the store is created."""
        try:
            return self.exists(path)
        except NotFoundError:  # Volume.new creates one
            return False

    def rmdir(self, path: str) -> None:
        """Removes an empty directory, and nothing else."""
        volume, inner = self._writable(path)
        self._change(volume, partial(_remove, inner, is_directory=True), inner)

    def rm_file(self, path: str) -> None:
        """Removes a file or a link."""
        volume, inner = self._writable(path)
        self._change(volume, partial(_remove, inner, is_directory=False), inner)

    def _rm(self, path: str) -> None:
        self.rm_file(path)

    def rm(self, path: Any, recursive: bool = False, maxdepth: int | None = None) -> None:
        """As for local files, targets of links stay, except where the path itself names the
        target."""
        is_whole = recursive and maxdepth is None
        with self._one_version():
            for each in reversed(self._to_remove(path, maxdepth if recursive else None)):
                volume, inner = self._writable(each)
                if recursive:
                    self._change(volume, methodcaller("remove", inner, recursive=is_whole), inner)
                else:
                    self.rm_file(each)

    def _to_remove(self, path: Any, depth: int | None) -> list[str]:
        """The named or matching paths and everything below them, down to the given number of
        levels. FileNotFoundError: nothing matches."""
        if depth is not None and depth < 1:
            raise ValueError("maxdepth must be at least 1")
        found = set[str]()
        for each in [path] if isinstance(path, str | os.PathLike) else path:
            named = self._strip_protocol(each)
            if not _MAGIC.search(named):
                found |= {named, *self._below(named, depth)}
                continue
            matching = self.glob(named, maxdepth=depth)
            found.update(matching)
            for at in matching:
                found.update(self._below(at, depth and depth - 1))
        if not found:
            raise FileNotFoundError(path)
        return sorted(found)

    def _below(self, path: str, depth: int | None) -> Iterator[str]:
        waiting = [(path, depth or 0)]
        while waiting:
            at, left = waiting.pop()
            here = self.info(at) if left else {}
            if left and here["type"] == "directory" and not here.get("islink"):
                names = self.ls(at, detail=False)
                yield from names
                waiting += ((name, left - 1) for name in names)

    def cp_file(self, path1: str, path2: str, **options: Any) -> None:
        """Copies a file; within a volume chunks are shared."""
        if self.isdir(path1):
            self.makedirs(path2, exist_ok=True)
            return
        (source, old), (volume, new) = _part(self._strip_protocol(path1)), self._writable(path2)
        self.info(path1)

        def copied(files: RWFiles) -> None:
            _make_parents(files, new)
            files.copy(old, new)

        if source == volume:
            self._change(volume, copied, new, reads=old)
            return
        with self.open(path1) as file, self.open(path2, "wb") as target:
            shutil.copyfileobj(file, target, PIECE_BYTES)

    def copy(
        self, path1: Any, path2: Any, recursive: bool = False, maxdepth: int | None = None, **options: Any
    ) -> None:
        with self._one_version():
            super().copy(path1, path2, recursive=recursive, maxdepth=maxdepth, **options)

    def mv(self, path1: Any, path2: Any, recursive: bool = False, maxdepth: int | None = None, **options: Any) -> None:
        """Moves paths: within a volume as os.rename, otherwise by copying and removing. Several
        paths (a pattern, or a list) are moved into path2, unless that is a list, too.
        InvalidInputError: maxdepth is given, or one of several would replace another. Directories
        are moved whole, even without recursive, as local ones are."""
        if maxdepth is not None:
            raise InvalidInputError("a move takes all that lies below", hint="Leave maxdepth out.")
        pairs = self._moves(path1, path2)
        sources, targets = {_plain(source) for source, _ in pairs}, [_plain(target) for _, target in pairs]
        if len(pairs) > 1 and (len({*targets}) < len(targets) or sources & {*targets}):
            raise InvalidInputError(
                "several would be moved to one path, or to one another's", hint="Move them one by one."
            )
        with self._one_version():
            for source, target in pairs:
                if _plain(source) != _plain(target):
                    self._move(source, target, **options)

    def _moves(self, path1: Any, path2: Any) -> list[tuple[str, str]]:
        if isinstance(path1, str) and not _MAGIC.search(self._strip_protocol(path1)):
            into = path2.endswith("/") or self.isdir(path2)
            name = _plain(path1).rpartition("/")[2]
            return [(path1, f"{path2.rstrip('/')}/{name}" if into else path2)]
        sources = [*path1] if not isinstance(path1, str) else self.expand_path(path1)
        if not isinstance(path2, str):
            return [*zip(sources, path2, strict=True)]
        return [(source, f"{path2.rstrip('/')}/{_plain(source).rpartition('/')[2]}") for source in sources]

    def _move(self, path1: str, path2: str, **options: Any) -> None:
        (source, old), (volume, new) = _part(self._strip_protocol(path1)), self._writable(path2)
        self.info(path1)
        if source != volume or not old:
            super().mv(path1, path2, recursive=True, **options)
            return

        def moved(files: RWFiles) -> None:
            _make_parents(files, new)
            files.move(old, new)

        self._change(volume, moved, new, reads=old)

    def put(self, lpath: Any, rpath: Any, recursive: bool = False, **options: Any) -> None:
        with self._one_version():
            super().put(lpath, rpath, recursive=recursive, **options)

    def pipe(self, path: Any, value: bytes | None = None, **options: Any) -> None:
        with self._one_version():
            super().pipe(path, value, **options)

    # -- publishing

    def _writable(self, path: str) -> tuple[str, str]:
        source, inner = _part(self._strip_protocol(path))
        if "@" in source:
            raise ReadOnlyError(
                f"{source} is a version, and a version never changes",
                hint=f"Write to the volume, cowfs://NAME/path; a fork of the version is one ({Command('fork')}, fork()).",
            )
        if not source:
            raise IsADirectoryError(path)
        return source, inner

    def _change(
        self, volume: str, apply: Callable[[RWFiles], None], touches: str | None = None, *, reads: str | None = None
    ) -> None:
        with self._one_version() as batch:
            touched = [_bytes(each) for each in (touches, reads) if each is not None]
            batch.begin(volume)
            batch.add(volume, touched, apply)

    def _batch(self) -> Batch | None:
        """The batch that current changes belong to; None: each change is published on its own."""
        if (batch := self._current()) is not None:
            batch.require_own()
        return batch

    def _current(self) -> Batch | None:
        # not self.transaction: it makes one, which could replace that of another thread
        return cast(
            "Batch | None", getattr(self._batches, "current", None) or getattr(self._transaction, "batch", None)
        )

    def new_batch(self) -> Batch:
        """Changes that become one version of each affected volume."""
        return Batch(self._store)

    @contextmanager
    def _one_version(self) -> Iterator[Batch]:
        """Publishes the changes of the block as one version, unless the block is part of a larger
        batch."""
        if (batch := self._batch()) is not None:
            yield batch
            return
        batch = self._batches.current = self.new_batch()
        batch.holds = True
        try:
            yield batch
        except BaseException:
            batch.drop()
            raise
        finally:
            self._batches.current = None
        batch.publish()


def _write(inner: str, mode: str, content: BinaryIO) -> Callable[[RWFiles], None]:
    def write(files: RWFiles) -> None:
        _make_parents(files, inner)
        if mode == "xb" and files.exists(inner):
            raise FileExistsError(17, "File exists", inner)
        content.seek(0)
        with files.open(inner, "ab" if mode == "ab" else "wb") as target:
            shutil.copyfileobj(content, target, PIECE_BYTES)

    return write


def _remove(inner: str, files: RWFiles, *, is_directory: bool) -> None:
    if (files.stat(inner, follow=False).type == "directory") != is_directory:
        number = errno.ENOTDIR if is_directory else errno.EISDIR
        raise OSError(number, os.strerror(number), inner)
    files.remove(inner)


def _require_absent(error: OSError) -> None:
    """Raises any error except an error that means that a path leads nowhere."""
    is_absent = isinstance(error, FileNotFoundError | NotADirectoryError)
    if not is_absent and error.errno not in (errno.ELOOP, errno.ENAMETOOLONG):
        raise error


def _make_parents(files: RWFiles, inner: str) -> None:
    if "/" in inner:
        files.mkdir(inner.rpartition("/")[0], parents=True, exist_ok=True)


def _part(path: str) -> tuple[str, str]:
    """(source, path in it)."""
    source, _, inner = path.partition("/")
    return source, inner.strip("/")


def _plain(path: str) -> str:
    """The path without empty parts."""
    return "/".join(filter(None, CowfsFileSystem._strip_protocol(path).split("/")))


def _bytes(inner: str) -> bytes:
    return b"/".join(part for part in inner.encode(errors="surrogateescape").split(b"/") if part)


def _list(version: ROVolume, name: str, entry: Entry) -> dict[str, Any]:
    """As `_info`, except that a link to a directory is "other". Code that walks listings then does
    not enter it: links may form loops."""
    found = _info(version, name, entry)
    return {**found, "type": "other"} if found.get("islink") and found["type"] == "directory" else found


def _info(version: ROVolume, name: str, entry: Entry) -> dict[str, Any]:
    """For a link, the information of its target; "other" if the target does not exist."""
    found: dict[str, Any] = {"name": name}
    if entry.type == "symlink":
        found |= {"islink": True, "destination": entry.target}
        try:
            entry = version.files.stat(entry.path)
        except OSError as error:
            _require_absent(error)
            return {**found, "size": 0, "type": "other", "mtime": entry.mtime_ns / 1e9, "mode": entry.mode}
    kind = entry.type if entry.type in ("file", "directory") else "other"
    size = entry.size if kind == "file" else 0
    return {**found, "size": size, "type": kind, "mtime": entry.mtime_ns / 1e9, "mode": entry.mode}


@contextmanager
def _of_paths(path: str) -> Iterator[None]:
    """Rewrites errors to name the path as the caller wrote it."""
    try:
        yield
    except OSError as error:
        error.filename = path
        raise


def _make(cls: type[CowfsFileSystem], store: str) -> CowfsFileSystem:
    return cls(located=store)
