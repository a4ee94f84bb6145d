"""A version that is known, or that is found when it is first needed: a text in a config names it,
and reading a config makes no request.

The first look-up decides: NAME then means the version that is the volume's last one at that moment,
for as long as the object lives. Any thread may call.
"""

from __future__ import annotations

from threading import Lock

from cowfs.api import hints, sources
from cowfs.api.versions.located_version import LocatedVersion
from cowfs.format.locator import is_locator


class SoughtVersion:
    def __init__(self, found: LocatedVersion | None, source: str = "") -> None:
        """source: what names the version if it is not found yet."""
        self.source = source
        self.found = found
        self._lock = Lock()

    @classmethod
    def of_source(cls, source: str) -> SoughtVersion:
        """InvalidInputError: the text names no version. Nothing is requested."""
        sources.names_version(source)
        meant = sources.place(source)
        if is_locator(meant.source):
            return cls(sources.of_locator(source, None))
        return cls(None, source)

    def find(self) -> LocatedVersion:
        """Requests only if a name was not looked up yet. Errors as for `Volume.version`."""
        if self.found is None:
            with self._lock:
                if self.found is None:
                    with hints.of_store(None):
                        self.found = sources.find_version(self.source, None)
        return self.found
