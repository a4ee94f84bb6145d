"""The files of a version, for functions that have no object of it."""

from __future__ import annotations

from cowfs.api.access import file_access
from cowfs.api.access.file_access import SessionAccess
from cowfs.api.access.file_session import FileSession
from cowfs.api.files import ROFiles
from cowfs.api.versions.located_version import LocatedVersion


class _Session:
    """Opens the session of a version at the first use. It stays open as long as this object
    lives."""

    def __init__(self, version: LocatedVersion) -> None:
        self._version = version
        self._held: FileSession | None = None

    def __call__(self) -> FileSession:
        if self._held is None or not self._held.is_usable:
            self._held = file_access.open_version(self._version)
        return self._held


def files_of(version: LocatedVersion) -> ROFiles:
    return ROFiles(SessionAccess(_Session(version)), lambda: version)
