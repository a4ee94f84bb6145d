"""Any other fsspec file system as an object store: memory://, and whatever else is installed (gs://, az://, sftp://, …).

Only fsspec's own file calls are used, so this works everywhere and is fast nowhere: a list walks all files below the prefix's
directory. What put_if_absent is worth depends on the file system (`pipe_file(mode="create")`); the probe finds out. memory:// is
one store per process, and there a lock makes it exact.

Credentials come from wherever the file system's package looks for them by itself. Its listings cache is off.
"""

from __future__ import annotations

import builtins
import threading
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from datetime import datetime
from typing import Any

import fsspec

from cowfs.errors import ConflictError, CorruptError, NotFoundError, UnavailableError
from cowfs.store.contract import Data, ObjectInfo, ObjectStore, check_key
from cowfs.store.errors import from_os_error
from cowfs.store.readonly import ReadOnlyStore

_MODIFIED = ("mtime", "LastModified", "last_modified", "updated", "modified", "created")
_memory_lock = threading.RLock()


class FsspecStore:
    """The files below `root` (a path as the file system writes it, without '/' at its end)."""

    def __init__(self, protocol: str, *, root: str, url: str) -> None:
        self._file_system = fsspec.filesystem(protocol, use_listings_cache=False, skip_instance_cache=True)
        self._root = root
        self._url = url
        self._exclusive: AbstractContextManager[object] = _memory_lock if protocol == "memory" else nullcontext()

    @property
    def url(self) -> str:
        return self._url

    def get(self, key: str) -> bytes:
        data: bytes = self._call(key, "cat_file", self._path(key))
        return data

    def get_range(self, key: str, offset: int, length: int) -> bytes:
        path = self._path(key)
        data: bytes = self._call(key, "cat_file", path, start=offset, end=offset + length) if length else b""
        if len(data) != length:
            raise CorruptError(f"{self._url}: {key} gave {len(data)} bytes at {offset}, {length} were expected")
        return data

    def size(self, key: str) -> int | None:
        try:
            with self._exclusive:
                info = self._file_system.info(self._path(key))
        except FileNotFoundError:
            return None
        except OSError as error:
            raise from_os_error(error, f"{self._url}: {key}") from error
        return int(info["size"]) if info["type"] == "file" else None

    def put(self, key: str, data: Data) -> None:
        self._write(key, data, "overwrite")

    def put_if_absent(self, key: str, data: Data) -> None:
        try:
            self._write(key, data, "create")
        except FileExistsError as error:
            raise ConflictError(f"{self._url}: {key} exists already", details={"key": key}) from error

    def list(self, prefix: str, *, start_after: str = "", limit: int | None = None) -> builtins.list[ObjectInfo]:
        directory = prefix.rpartition("/")[0]
        try:
            files = self._call(prefix, "find", f"{self._root}/{directory}".rstrip("/"), detail=True)
        except NotFoundError:
            return []
        found = []
        for path, info in files.items():
            key = path.removeprefix(self._root).lstrip("/")
            if key.startswith(prefix) and key > start_after:
                found.append(ObjectInfo(key, int(info["size"]), _modified_ns(info)))
        return sorted(found, key=lambda info: info.key)[:limit]

    def delete(self, keys: Iterable[str]) -> None:
        for key in keys:
            try:
                with self._exclusive:
                    self._file_system.rm_file(self._path(key))
            except FileNotFoundError:
                continue
            except OSError as error:
                raise from_os_error(error, f"{self._url}: deleting {key}") from error

    def read_only(self) -> ObjectStore:
        return ReadOnlyStore(self)

    def close(self) -> None:
        pass

    def _path(self, key: str) -> str:
        check_key(key)
        return f"{self._root}/{key}"

    def _call(self, key: str, method: str, *arguments: Any, **named: Any) -> Any:
        try:
            with self._exclusive:
                return getattr(self._file_system, method)(*arguments, **named)
        except OSError as error:
            raise from_os_error(error, f"{self._url}: {key}") from error

    def _write(self, key: str, data: Data, mode: str) -> None:
        path = self._path(key)
        try:
            with self._exclusive:
                if parent := path.rpartition("/")[0]:
                    self._file_system.makedirs(parent, exist_ok=True)
                self._file_system.pipe_file(path, bytes(data), mode=mode)
        except FileExistsError:
            if mode == "create":
                raise
            raise UnavailableError(f"{self._url}: {key} could not be replaced") from None
        except OSError as error:
            raise from_os_error(error, f"{self._url}: {key}") from error


def _modified_ns(info: dict[str, Any]) -> int:
    """0 where the file system does not say."""
    for name in _MODIFIED:
        value = info.get(name)
        if isinstance(value, datetime):
            return int(value.timestamp() * 1e9)
        if isinstance(value, (int, float)):
            return int(value * 1e9)
    return 0
