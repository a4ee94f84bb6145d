"""A directory of this machine as an origin: its regular files. For links only; a copying import of
a directory is an upload, which keeps permissions and links as well.

Size and time of modification alone identify a file's state, so that a copy of the directory
elsewhere, or a change of permissions, is the same state. A symbolic link below the directory is
never followed, and no key leads out of it; special files are left out.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cowfs.base.beneath import Root, UnexpectedEntry
from cowfs.base.errors import CowfsError, NotFoundError, from_local_disk
from cowfs.format.store_url import StoreUrl
from cowfs.store.credentials.identity import Access
from cowfs.store.origin.contract import OriginObject, source_changed, source_gone

_I64 = (1 << 63) - 1


def open_directory_origin(
    place: StoreUrl, *, is_page: bool, access: Access, untrusted_server: str | None
) -> DirectoryOrigin:
    root = Path("/" + place.path)
    if not root.is_dir():
        raise NotFoundError(f"there is no directory {root}", hint="Give the directory that is to be linked.")
    return DirectoryOrigin(root, url=str(place))


class DirectoryOrigin:
    """root: an existing directory."""

    def __init__(self, root: Path, *, url: str) -> None:
        self._root = root
        self._url = url

    @property
    def url(self) -> str:
        return self._url

    def list(self) -> Iterator[OriginObject]:
        waiting = [""]
        try:
            root = Root.open(self._root)
        except FileNotFoundError:
            return
        except OSError as error:
            raise self._error(error, "") from error
        with root:
            while waiting:
                directory = waiting.pop()
                try:
                    with root.directory(directory.rstrip("/")) as fd, os.scandir(fd) as entries:
                        for entry in entries:
                            key = f"{directory}{entry.name}"
                            if entry.is_dir(follow_symlinks=False):
                                waiting.append(f"{key}/")
                            elif entry.is_file(follow_symlinks=False):
                                yield _object(key, entry.stat(follow_symlinks=False))
                except FileNotFoundError:
                    continue  # removed meanwhile
                except OSError as error:
                    raise self._error(error, directory) from error

    def look(self, key: str) -> OriginObject | None:
        try:
            with self._open_file(key) as fd:
                return _object(key, os.fstat(fd))
        except (FileNotFoundError, NotADirectoryError, UnexpectedEntry):
            return None
        except OSError as error:
            raise self._error(error, key) from error

    def read(self, found: OriginObject, offset: int, length: int) -> bytes:
        try:
            with self._open_file(found.key) as fd:
                data = os.pread(fd, length, offset)
                now = os.fstat(fd)
        except (FileNotFoundError, NotADirectoryError):
            raise source_gone(self._url, found.key) from None
        except UnexpectedEntry:
            raise source_changed(self._url, found.key) from None
        except OSError as error:
            raise self._error(error, found.key) from error
        if not found.is_now(_object(found.key, now)) or len(data) != length:
            raise source_changed(self._url, found.key)
        return data

    @contextmanager
    def _open_file(self, key: str) -> Iterator[int]:
        if {"", ".", ".."} & {*key.split("/")}:  # a version may come from an untrusted source
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), key)
        with Root.open(self._root) as root:
            fd = root.open_file(key)
        try:
            yield fd
        finally:
            os.close(fd)

    def close(self) -> None:
        """Nothing is held open."""

    def _error(self, error: OSError, key: str) -> CowfsError:
        if error.errno == errno.ELOOP:  # a link took its place
            return source_changed(self._url, key)
        return from_local_disk(error, f"{self._root / key} cannot be read", elsewhere="leave it out.")


def _object(key: str, found: os.stat_result) -> OriginObject:
    mtime_ns = max(-_I64, min(found.st_mtime_ns, _I64))  # as a version keeps it
    return OriginObject(key, found.st_size, mtime_ns, str(mtime_ns))
