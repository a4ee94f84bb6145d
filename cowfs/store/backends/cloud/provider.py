"""Requests through a provider's own client, for what fsspec's calls leave out: whether an answer
proves that an object exists or is absent, whether a list is a genuine one, and how long a
request waits. fsspec's calls also give a meaning to some characters of names.

`cloud` calls it; `gcs` and `azure` implement it. Paths are the file system's: bucket or container,
"/", and the object's name. Each request is sent once. NoAnswer: the response is not the provider's
answer to the request, which is sent again. FileNotFoundError: the provider says that there is no
such object, or no such bucket or container. Every other error is the library's own (`errors`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol

from fsspec import AbstractFileSystem

from cowfs.store.contract import AcceptsSize, Data, ObjectInfo, any_size
from cowfs.store.credentials.identity import Credentials

NO_LIST = "it sends no reliable list"
NO_OBJECT = "it sends an answer that is not of this provider"
OTHER_RANGE = "it sends another range than the requested one"
NOT_FOUND_BY_OTHERS = "it answers with status 404, and not in the words of this provider"


class Provider(Protocol):
    credentials_hint: str
    file_system: type[AbstractFileSystem]
    """Its class, which interprets the URL."""

    def open(self, options: dict[str, Any], given: Credentials | None) -> AbstractFileSystem:
        """The file system whose connection and credentials the other calls use. options: of the
        URL."""
        ...

    def look(self, file_system: AbstractFileSystem, path: str) -> ObjectInfo:
        """Its key is its name in the bucket."""
        ...

    def read(
        self,
        file_system: AbstractFileSystem,
        path: str,
        offset: int = 0,
        length: int | None = None,
        accepts: AcceptsSize = any_size,
    ) -> bytes:
        """The object's bytes as they are stored, fewer if it ends before; None: all."""
        ...

    def read_state(
        self, file_system: AbstractFileSystem, path: str, tag: str, offset: int, length: int
    ) -> bytes | None:
        """Of the state that `look` and lists show with this tag. None: the object is in another
        one."""
        ...

    def put(self, file_system: AbstractFileSystem, path: str, data: Data, *, is_new: bool) -> bool:
        """Whether the answer proves that the object is there. FileExistsError: is_new, and
        something was there."""
        ...

    def put_parts(
        self,
        file_system: AbstractFileSystem,
        path: str,
        size: int,
        parts: Iterator[bytes],
        repeat: Callable[[Callable[[], Any]], Any],
    ) -> bool:
        """As `put`, for an object of any size; replaces an existing one. parts: each a multiple of
        PART_STEP_BYTES long, except the last; at most PARTS_MAX. repeat: for each request.
        InvalidStateError: the upload is gone and has to be started again."""
        ...

    def objects(
        self, file_system: AbstractFileSystem, place: str, start_after: str = "", limit: int | None = None
    ) -> Iterable[ObjectInfo]:
        """Objects whose path begins with `place`, after the path `start_after` (""), in byte order,
        at most `limit`. Their keys are names in the bucket."""
        ...

    def everything(self, file_system: AbstractFileSystem, place: str) -> Iterable[ObjectInfo]:
        """As `objects`, without a limit, and with the markers that stand for directories: their
        names end in "/"."""
        ...

    def delete(self, file_system: AbstractFileSystem, path: str) -> None: ...


PART_STEP_BYTES = 256 << 10
PARTS_MAX = 50_000
