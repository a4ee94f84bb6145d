"""What fsspec opens at a URL that is no store's, as an origin: an archive, a repository, a chain of
file systems. For copying imports that the user names; one request at a time, since readers of some
archives share one file position.

An archive is listed member by member: fsspec's listing passes over names that no directory leads to
("/a", what lies below a file), and calls everything a file that is no directory. A link in a tar to
a file of the same archive is that file; other links, and special files, are listed with their
fault.
"""

from __future__ import annotations

import re
import stat
import threading
from collections.abc import Iterator
from dataclasses import replace
from tarfile import TarFile, TarInfo
from typing import Any

from fsspec import AbstractFileSystem
from fsspec.archive import AbstractArchiveFileSystem
from fsspec.implementations.tar import TarFileSystem
from fsspec.implementations.zip import ZipFileSystem

from cowfs.store.identity import Credentials
from cowfs.store.origin.contract import OriginObject
from cowfs.store.origin.fsspec import FsspecOrigin


class PlainOrigin(FsspecOrigin):
    def __init__(self, file_system: AbstractFileSystem, root: str, url: str) -> None:
        self._given = file_system
        self._names: dict[str, str] = {}  # of keys that are named otherwise
        super().__init__("plain", root=root.rstrip("/"), url=url)
        self._exclusive = threading.RLock()
        self._faults = self._call("", self._members_at_fault)

    def list(self) -> Iterator[OriginObject]:  # type: ignore[override]
        if not isinstance(self._given, AbstractArchiveFileSystem):
            yield from super().list()
            return
        self._call("", self._given._get_dirs)
        above = f"{self._root}/" if self._root else ""
        for name, info in self._given.dir_cache.items():
            if info["type"] != "directory" and name.startswith(above):
                yield self._object(self._key(name), info)

    def _make(self, given: Credentials | None) -> AbstractFileSystem:
        return self._given

    def _key(self, name: str) -> str:
        """Archives of "." name all they have as ./NAME."""
        is_whole = isinstance(self._given, AbstractArchiveFileSystem) and not self._root
        key = name if is_whole else super()._key(name)
        if key.startswith("./"):
            key = key.removeprefix("./")
            self._names[key] = name  # of two members of one name the last counts
        else:
            self._names.pop(key, None)
        return key

    def _path(self, key: str) -> str:
        return self._names.get(key) or super()._path(key)

    def _object(self, key: str, info: dict[str, Any]) -> OriginObject:
        found = super()._object(key, info)
        fault = self._faults.get(info["name"])
        return replace(found, fault=fault) if fault else found

    def _members_at_fault(self) -> dict[str, str]:
        """By their names in fsspec. Of members of one name the last counts."""
        faults: dict[str, str] = {}
        if isinstance(self._given, TarFileSystem):
            for member in self._given.tar.getmembers():
                faults[re.sub("/+", "/", member.name.rstrip("/"))] = _fault_in_tar(self._given.tar, member)
        elif isinstance(self._given, ZipFileSystem):
            for entry in self._given.zip.infolist():
                faults[entry.filename] = "a symbolic link" if stat.S_ISLNK(entry.external_attr >> 16) else ""
        return {name: fault for name, fault in faults.items() if fault}


def _fault_in_tar(archive: TarFile, member: TarInfo) -> str:
    """Nothing, of a file, a directory, or a link to a file."""
    seen: set[str] = set()
    found = member
    while found.issym() or found.islnk():
        is_absolute = found.issym() and found.linkname.startswith("/")
        if is_absolute or found.name in seen:
            return f"a link to {member.linkname!r}, which is no file of the archive"
        seen.add(found.name)
        try:
            found = archive._find_link_target(found)  # type: ignore[attr-defined]
        except KeyError:
            return f"a link to {member.linkname!r}, which is no file of the archive"
    if found.isdir() and found is not member:
        return f"a link to the directory {member.linkname!r}"
    if found.ischr() or found.isblk() or found.isfifo():
        return "a device or a named pipe"
    return ""
