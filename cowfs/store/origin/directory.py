"""A directory of this machine as an origin: its regular files. For links; a copying import of a
directory is an upload, which keeps permissions and links as well.

A file's state is told by its size and its time of modification alone, so that a copy of the
directory elsewhere, or a change of permissions, does not make another state of it. A symbolic link
below the directory is never followed, nor does a key lead out of it; special files are left out.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from cowfs.errors import CowfsError, from_local_disk
from cowfs.store.origin.contract import OriginObject, changed, gone

_I64 = (1 << 63) - 1
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_DIRECTORY = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


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
        while waiting:
            directory = waiting.pop()
            try:
                with os.scandir(self._root / directory) as entries:
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
            with _Opened(self._root, key) as opened:
                found = os.fstat(opened.fd)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise self._error(error, key) from error
        return _object(key, found) if stat.S_ISREG(found.st_mode) else None

    def read(self, found: OriginObject, offset: int, length: int) -> bytes:
        try:
            with _Opened(self._root, found.key) as opened:
                data = os.pread(opened.fd, length, offset)
                now = os.fstat(opened.fd)
        except (FileNotFoundError, NotADirectoryError):
            raise gone(self._url, found.key) from None
        except OSError as error:
            raise self._error(error, found.key) from error
        if not stat.S_ISREG(now.st_mode) or not found.is_now(_object(found.key, now)) or len(data) != length:
            raise changed(self._url, found.key)
        return data

    def close(self) -> None:
        """Nothing is held open."""

    def _error(self, error: OSError, key: str) -> CowfsError:
        if error.errno == errno.ELOOP:  # a link took its place
            return changed(self._url, key)
        return from_local_disk(error, f"{self._root / key} cannot be read", elsewhere="leave it out.")


class _Opened:
    """A file, opened component by component; no link is followed below the root."""

    def __init__(self, root: Path, key: str) -> None:
        self.fd = -1
        directory = os.open(root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            *above, name = key.split("/")
            if {"", ".", ".."} & {*above, name}:  # a version may have been made by anybody
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), key)
            for part in above:
                following = os.open(part, _DIRECTORY, dir_fd=directory)
                os.close(directory)
                directory = following
            self.fd = os.open(name, _READ, dir_fd=directory)
        finally:
            os.close(directory)

    def __enter__(self) -> _Opened:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.fd)


def _object(key: str, found: os.stat_result) -> OriginObject:
    mtime_ns = max(-_I64, min(found.st_mtime_ns, _I64))  # as a version keeps it
    return OriginObject(key, found.st_size, mtime_ns, str(mtime_ns))
