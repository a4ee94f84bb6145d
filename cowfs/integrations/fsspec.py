"""cowfs as an fsspec file system: for pandas, pyarrow, duckdb, zarr, dask and everything else that
opens URLs.

    cowfs://NAME/path             the newest version of a volume in the default store; may be written
    cowfs://NAME@TAG/path         a version; NAME@VERSION likewise, 8 digits or more, NAME@{3}, NAME@{2026-11-20T12:00}
    LOCATOR/path                  cowfs+s3://bucket/prefix/-/NAME@ID/path: a version, wherever its store is
    cowfs+s3://bucket/-/NAME/path a volume there; `store=` says the same of cowfs:// URLs

A file system stands for a store. Its paths are NAME[@…]/path, its root lists the volumes.

Writing publishes: each file when it is closed, each other call when it returns, as one version.
`with fs.transaction:` is one version for all that is in it, or none if it raises; until then it
shows what was there before, and directories that it has made. A forked child cannot add to it.
What is written lies in temporary files of this machine meanwhile. Work of others in between is kept
if it concerns other paths, and ConflictError otherwise (head_changes).
A version that is read stays the same for as long as a file of it is open.

A file that is not closed is not published: one whose `with` block raises, one that is forgotten.
Pickles and tokens have the store's URL, never credentials: those come from where the process that
uses it has them.
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

from cowfs.api import overview, sources, stores
from cowfs.api.files import Entry, RWFiles
from cowfs.api.head_changes import Change
from cowfs.api.ro_volume import ROVolume
from cowfs.api.volume import Volume
from cowfs.errors import InvalidInputError, NotFoundError, ReadOnlyError
from cowfs.integrations.fsspec_files import CompressedFile, ReadFile, TextFile, WrittenFile
from cowfs.integrations.fsspec_transactions import Batch, CowfsTransaction

STORES = ("abfs", "abfss", "az", "file", "gs", "http", "https", "memory", "s3")
PIECE_BYTES = 1 << 20
VERSIONS_KEPT = 8
"""With their sessions, which have threads; others are opened anew. Open files keep theirs."""
_OF_TEXT = ("encoding", "errors", "newline")
_LOCATOR = re.compile(r"(cowfs\+.*?)/-/(.*)", re.DOTALL)
_MAGIC = re.compile(r"[*?\[]")
_PINNED = re.compile(r"@([0-9a-f]{8,64})$")


class CowfsFileSystem(AbstractFileSystem):  # type: ignore[misc]
    """store: URL of a store; None: the default store. Credentials are those of the process; a
    server that only a locator names (located) is sent none, unless the user has named it before."""

    protocol = ("cowfs", *(f"cowfs+{each}" for each in STORES))
    root_marker = ""

    def __init__(self, store: str | None = None, *, located: str | None = None, **options: Any) -> None:
        if not isinstance(store, str | None):
            raise InvalidInputError(f"store is {store!r}", hint="Give the URL of a store, or the path of a directory.")
        super().__init__(store=store, located=located, **options)
        self._store = store if store is not None else located
        if store is not None:
            stores.name(store)
        self._versions: OrderedDict[str, ROVolume] = OrderedDict()
        self._versions_lock = threading.Lock()
        self._batches = threading.local()
        self._transacted: Batch | None = None

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
        if self._store is None:
            return f"cowfs://{path}"
        return f"cowfs+{self._url.rstrip('/')}/-/{quote(path, safe='/@', errors='surrogateescape')}"

    def __reduce__(self) -> tuple[Any, ...]:
        return _made, (type(self), self._url)

    @property
    def fsid(self) -> str:
        return f"cowfs+{self._url}"

    @property
    def _url(self) -> str:
        return stores.canonical_url(self._store)

    # -- reading

    def info(self, path: str, **options: Any) -> dict[str, Any]:
        source, inner = _parted(self._strip_protocol(path))
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
        source, inner = _parted(self._strip_protocol(path))
        if not source:
            found = [{"name": each.name, "size": 0, "type": "directory"} for each in overview.volumes_of(self._store)]
        else:
            version = self._version(source)
            here = self._entry(version, source, inner, path, follow=True)
            above = f"{source}/{inner}".rstrip("/")
            if here is None or version is None:
                found = []
            elif here.type == "directory":
                with _of_paths(path):
                    found = [_info(version, f"{above}/{each.name}", each) for each in version.files.ls(inner)]
            else:
                found = [_info(version, above, here)]
        return found if detail else [each["name"] for each in found]

    def _entry(self, version: ROVolume | None, source: str, inner: str, path: str, *, follow: bool) -> Entry | None:
        """None: an empty directory, that of a volume without versions, or one that this transaction
        has made."""
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

    def modified(self, path: str) -> datetime:
        return datetime.fromtimestamp(self.info(path).get("mtime", 0), UTC)

    def created(self, path: str) -> datetime:
        return self.modified(path)

    def ukey(self, path: str) -> str:
        """Changes when the file may have."""
        version, inner = self._file(path)
        return f"{version.id}/{inner}"

    def _file(self, path: str) -> tuple[ROVolume, str]:
        source, inner = _parted(self._strip_protocol(path))
        version = self._version(source) if source else None
        if version is None or not inner:
            raise (IsADirectoryError if not inner else FileNotFoundError)(path)
        return version, inner

    def _version(self, source: str) -> ROVolume | None:
        """What NAME, NAME@TAG or NAME@VERSION means now; None: a volume without versions."""
        with self._versions_lock:
            known = self._versions.get(source)
            pinned = _PINNED.search(source)  # unless it is a tag, which may move
            if known is not None and pinned is not None and known.id.startswith(pinned[1]):
                self._versions.move_to_end(source)
                return known
        try:
            found = sources.find(source, self._store)
        except NotFoundError as error:
            raise FileNotFoundError(2, error.message, source) from error
        if found.version is None:
            return None
        if known is None or known.id != found.version.hex():
            known = ROVolume(found.locator(), storage=found.store.storage).resolve()
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
        """What is written by way of a compressor, or as text, is closed with it, and not published
        if its `with` block raises."""
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
        batch = self._batch() or Batch(self)
        seen = batch.seen(volume)
        if mode == "xb" and self.exists(path):
            raise FileExistsError(path)
        return WrittenFile(
            path,
            mode,
            lambda content: batch.add(volume, seen, _written(inner, mode, content), content),
            autocommit=autocommit or batch.holds,
        )

    def mkdir(self, path: str, create_parents: bool = True, **options: Any) -> None:
        self._make_directory(path, parents=create_parents, exist_ok=False)

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        self._make_directory(path, parents=True, exist_ok=exist_ok)

    def _make_directory(self, path: str, *, parents: bool, exist_ok: bool) -> None:
        volume, inner = self._writable(path)
        if self.exists(at := path if inner else volume):
            if not exist_ok or not self.isdir(at):
                raise FileExistsError(path)
            return
        if not inner:
            Volume.new(volume, store=self._store, strict=True).resolve()
            return
        self._change(volume, lambda files: files.mkdir(inner, parents=parents, exist_ok=True))
        if (batch := self._batch()) is not None:
            batch.make(volume, inner)

    def rmdir(self, path: str) -> None:
        """An empty directory, and nothing else."""
        volume, inner = self._writable(path)
        self._change(volume, partial(_remove, inner, is_directory=True), inner)

    def rm_file(self, path: str) -> None:
        """A file or a link."""
        volume, inner = self._writable(path)
        self._change(volume, partial(_remove, inner, is_directory=False), inner)

    def _rm(self, path: str) -> None:
        self.rm_file(path)

    def rm(self, path: Any, recursive: bool = False, maxdepth: int | None = None) -> None:
        """As of local files, what links lead to stays, but where the path itself names it."""
        is_whole = recursive and maxdepth is None
        with self._one_version():
            for each in reversed(self._to_remove(path, maxdepth if recursive else None)):
                volume, inner = self._writable(each)
                if recursive:
                    self._change(volume, methodcaller("remove", inner, recursive=is_whole), inner)
                else:
                    self.rm_file(each)

    def _to_remove(self, path: Any, depth: int | None) -> list[str]:
        """What is named or matches, and what lies so many levels below. FileNotFoundError: nothing
        matches."""
        if depth is not None and depth < 1:
            raise ValueError("maxdepth must be at least 1")
        found = set[str]()
        for each in [path] if isinstance(path, str | os.PathLike) else path:
            named = self._strip_protocol(each)
            if not _MAGIC.search(named):
                found |= {named, *self._below(named, depth)}
                continue
            matching = [at for at in self.glob(named, maxdepth=depth) if not self._is_beyond_link(at, named)]
            found.update(matching)
            for at in matching:
                found.update(self._below(at, depth and depth - 1))
        if not found:
            raise FileNotFoundError(path)
        return sorted(found)

    def _below(self, path: str, depth: int | None) -> Iterator[str]:
        here = self.info(path) if depth else {}
        if depth and here["type"] == "directory" and not here.get("islink"):
            for name in self.ls(path, detail=False):
                yield name
                yield from self._below(name, depth - 1)

    def _is_beyond_link(self, path: str, pattern: str) -> bool:
        """Whether a link leads there that the pattern does not name."""
        above = path.rpartition("/")[0]
        named = _MAGIC.split(pattern, maxsplit=1)[0].rpartition("/")[0]
        while len(above) > len(named):
            if self.info(above).get("islink"):
                return True
            above = above.rpartition("/")[0]
        return False

    def cp_file(self, path1: str, path2: str, **options: Any) -> None:
        """Within a volume chunks are shared."""
        if self.isdir(path1):
            self.makedirs(path2, exist_ok=True)
            return
        (source, old), (volume, new) = _parted(self._strip_protocol(path1)), self._writable(path2)
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
        """Each within a volume as os.rename, else copied and removed; of several (a pattern, or a
        list) each into path2, unless that is a list, too. InvalidInputError: maxdepth, or one of
        several would take the place of another."""
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
                    self._move(source, target, recursive=recursive, **options)

    def _moves(self, path1: Any, path2: Any) -> list[tuple[str, str]]:
        if isinstance(path1, str) and not _MAGIC.search(self._strip_protocol(path1)):
            into = path2.endswith("/") or self.isdir(path2)
            name = _plain(path1).rpartition("/")[2]
            return [(path1, f"{path2.rstrip('/')}/{name}" if into else path2)]
        sources = [*path1] if not isinstance(path1, str) else self.expand_path(path1)
        if not isinstance(path2, str):
            return [*zip(sources, path2, strict=True)]
        return [(source, f"{path2.rstrip('/')}/{_plain(source).rpartition('/')[2]}") for source in sources]

    def _move(self, path1: str, path2: str, *, recursive: bool, **options: Any) -> None:
        (source, old), (volume, new) = _parted(self._strip_protocol(path1)), self._writable(path2)
        found = self.info(path1)
        if found["type"] == "directory" and not found.get("islink") and not recursive:
            raise IsADirectoryError(path1)
        if source != volume or not old:
            super().mv(path1, path2, recursive=recursive, **options)
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
        source, inner = _parted(self._strip_protocol(path))
        if "@" in source:
            raise ReadOnlyError(
                f"{source} is a version, and a version never changes",
                hint="Write to the volume, cowfs://NAME/path; a fork of the version is one (`cowfs fork`, fork()).",
            )
        if not source:
            raise IsADirectoryError(path)
        return source, inner

    def _change(
        self, volume: str, apply: Callable[[RWFiles], None], touches: str | None = None, *, reads: str | None = None
    ) -> None:
        with self._one_version() as batch:
            touched = [_bytes(each) for each in (touches, reads) if each is not None]
            batch.add(volume, batch.seen(volume), Change(touched, apply))

    def _batch(self) -> Batch | None:
        """What changes of this moment belong to; None: each is published by itself."""
        if (batch := self._current()) is not None:
            batch.require_own()
        return batch

    def _current(self) -> Batch | None:
        return cast("Batch | None", getattr(self._batches, "current", None)) or self._transacted

    @contextmanager
    def _one_version(self) -> Iterator[Batch]:
        """Publishes what the block changes as one version, unless it is part of more."""
        if (batch := self._batch()) is not None:
            yield batch
            return
        batch = self._batches.current = Batch(self)
        batch.holds = True
        try:
            yield batch
        except BaseException:
            batch.drop()
            raise
        finally:
            self._batches.current = None
        batch.publish()


def _written(inner: str, mode: str, content: BinaryIO) -> Change:
    def write(files: RWFiles) -> None:
        _make_parents(files, inner)
        if mode == "xb" and files.exists(inner):
            raise FileExistsError(17, "File exists", inner)
        content.seek(0)
        with files.open(inner, "ab" if mode == "ab" else "wb") as target:
            shutil.copyfileobj(content, target, PIECE_BYTES)

    return Change([_bytes(inner)], write)


def _remove(inner: str, files: RWFiles, *, is_directory: bool) -> None:
    if (files.stat(inner, follow=False).type == "directory") != is_directory:
        number = errno.ENOTDIR if is_directory else errno.EISDIR
        raise OSError(number, os.strerror(number), inner)
    files.remove(inner)


def _make_parents(files: RWFiles, inner: str) -> None:
    if "/" in inner:
        files.mkdir(inner.rpartition("/")[0], parents=True, exist_ok=True)


def _parted(path: str) -> tuple[str, str]:
    """(source, path in it)."""
    source, _, inner = path.partition("/")
    return source, inner.strip("/")


def _plain(path: str) -> str:
    """The path without empty parts."""
    return "/".join(filter(None, CowfsFileSystem._strip_protocol(path).split("/")))


def _bytes(inner: str) -> bytes:
    return b"/".join(part for part in inner.encode(errors="surrogateescape").split(b"/") if part)


def _info(version: ROVolume, name: str, entry: Entry) -> dict[str, Any]:
    """Of a link what it leads to; "other" when that is nothing."""
    found: dict[str, Any] = {"name": name}
    if entry.type == "symlink":
        found |= {"islink": True, "destination": entry.target}
        try:
            entry = version.files.stat(entry.path)
        except OSError:
            return {**found, "size": 0, "type": "other", "mtime": entry.mtime_ns / 1e9, "mode": entry.mode}
    kind = entry.type if entry.type in ("file", "directory") else "other"
    size = entry.size if kind == "file" else 0
    return {**found, "size": size, "type": kind, "mtime": entry.mtime_ns / 1e9, "mode": entry.mode}


@contextmanager
def _of_paths(path: str) -> Iterator[None]:
    """Errors name the path as the caller knows it."""
    try:
        yield
    except OSError as error:
        error.filename = path
        raise


def _made(cls: type[CowfsFileSystem], store: str) -> CowfsFileSystem:
    return cls(located=store)
