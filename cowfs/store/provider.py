"""What is done through a provider's own client, where fsspec's calls leave out what matters:
whether an answer proves that an object is there, whether a list is one, and for how long is waited.

`fsspec_backend` calls it; `gcs` and `azure` are the two there are. Paths are the file system's:
bucket or container, "/", and the object's name. NoAnswer: whoever answered did not answer what was
asked, and is asked again. FileNotFoundError of `put` and `objects`: there is no such bucket or
container. Every other error is the library's own (`errors`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

from fsspec import AbstractFileSystem

from cowfs.store.contract import Data, ObjectInfo
from cowfs.store.identity import Credentials

NO_LIST = "it lists nothing that can be relied on"
NOT_FOUND_BY_OTHERS = "it answers with status 404, and not in the words of this provider"


class Provider(Protocol):
    credentials_hint: str

    def open(self, options: dict[str, Any], given: Credentials | None) -> AbstractFileSystem:
        """One that sends each request once, and waits no longer than cowfs grants it. options: of
        the URL."""
        ...

    def size(self, file_system: AbstractFileSystem, path: str) -> int: ...

    def put(self, file_system: AbstractFileSystem, path: str, data: Data, *, is_new: bool) -> bool:
        """Whether the answer proves that the object is there. FileExistsError: is_new, and
        something was there."""
        ...

    def objects(
        self, file_system: AbstractFileSystem, place: str, start_after: str, limit: int | None
    ) -> Iterable[ObjectInfo]:
        """Those whose path begins with `place`, behind the path `start_after` (""), in byte order,
        at most `limit`. Their keys are names in the bucket."""
        ...
