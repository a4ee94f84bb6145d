"""What an origin does: lists its objects, and reads ranges of the one state of an object that was
listed.

    list    every object below the URL, in any order                  NotFoundError: no such bucket or directory
    look    the object of that key as it is now, None when absent
    read    exactly those bytes of the listed state                   SourceChangedError: it is another one now, or gone;
                                                                      CorruptError: the answer has not that many bytes,
                                                                      or others

Keys are relative to the URL; "" is the object that the URL itself names. Size, tag and time of
modification identify the state of an object. How reliably depends on the server:

    s3                       GET with If-Match, and the ETag of the answer is compared: never a byte of another state
    gs, abfs                 the tag of the bytes that are read
    a directory              size and time of modification, after each read
    any other file system    what it lists of the object, after each read

An export writes to one (`Destination`): any key, each object whole or not at all.

    put      the object is there, with these bytes; its state is what a later list shows
    delete   none of the keys exists

Every call may raise UnavailableError and AccessDeniedError, and is safe to repeat. Blocking; any
number of threads may call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import Any, Protocol, TypeVar

from cowfs.base.errors import CorruptError, SourceChangedError
from cowfs.base.fast_dataclass import dataclass
from cowfs.base.hints import Command
from cowfs.store.contract import nanoseconds

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class OriginObject:
    """mtime_ns: by the origin's clock, 0: unknown. tag: an ETag, or another name that the origin
    gives to a state of an object; "": it has no name. fault: why a listed object cannot be a
    file of ours; "": it can. The key of such an object may end in '/': then it stands for
    everything below it."""

    key: str
    size: int
    mtime_ns: int
    tag: str
    fault: str = ""

    @property
    def state(self) -> str:
        """What tells this state of the object from others of its size; "": nothing does."""
        return self.tag or (str(self.mtime_ns) if self.mtime_ns else "")

    def is_now(self, now: OriginObject) -> bool:
        """Whether the object is in this state still."""
        return (now.key, now.size, now.state) == (self.key, self.size, self.state)


def mtime_of(moment: datetime | float) -> int:
    """In ns; 0 for a time that no file can have: some servers send the year 1 for an unknown
    time."""
    try:
        return fitting(nanoseconds(moment))
    except (ValueError, OverflowError):  # also NaN and infinity
        return 0


def fitting(mtime_ns: int) -> int:
    """0 for what does not fit into 64 bits."""
    return mtime_ns if -(1 << 63) <= mtime_ns < 1 << 63 else 0


class Origin(Protocol):
    @property
    def url(self) -> str:
        """Canonical URL, without credentials."""
        ...

    def list(self) -> Iterator[OriginObject]: ...

    def look(self, key: str) -> OriginObject | None: ...

    def read(self, found: OriginObject, offset: int, length: int) -> bytes: ...

    def close(self) -> None: ...


Repeat = Callable[[Callable[[], T]], T]
"""Repeats a call that failed because there was no answer."""


class Destination(Origin, Protocol):
    def put(self, key: str, size: int, pieces: Callable[[], Iterator[bytes]], repeat: Repeat[Any]) -> OriginObject:
        """pieces: all `size` bytes from the beginning, each time it is called. repeat: for each
        request, or for all of it, as the origin can."""
        ...

    def delete(self, keys: Sequence[str], repeat: Repeat[Any]) -> None: ...


def split_parts(pieces: Iterator[bytes], size: int) -> Iterator[bytes]:
    """The same bytes, cut at multiples of `size`."""
    part = bytearray()
    for piece in pieces:
        part += piece
        while len(part) >= size:
            yield bytes(part[:size])
            del part[:size]
    if part:
        yield bytes(part)


_HINT = (
    f"Its earlier content is not in the store. Import again to take its present state ({Command('import')}, Store.import_); "
    "versions that link the earlier state can show only the parts of this file that a cache still holds."
)
_ON_THE_WAY = "Something between this machine and the server changes answers: a cache, or another proxy. Go around it."


def require_unchanged(origin: Origin, found: OriginObject) -> None:
    """SourceChangedError unless the object is in the state in which it was listed."""
    now = origin.look(found.key)
    if now is None:
        raise source_gone(origin.url, found.key)
    if not found.is_now(now):
        raise source_changed(origin.url, found.key)


def source_changed(url: str, key: str) -> SourceChangedError:
    return SourceChangedError(
        f"{object_url(url, key)} has changed since it was listed: it was replaced",
        hint=_HINT,
        details={"url": url, "key": key, "gone": False},
    )


def source_gone(url: str, key: str) -> SourceChangedError:
    return SourceChangedError(
        f"{object_url(url, key)} is gone", hint=_HINT, details={"url": url, "key": key, "gone": True}
    )


def cut(url: str, key: str, length: int, got: int) -> CorruptError:
    """Of an object that has not changed."""
    return CorruptError(
        f"{object_url(url, key)} was read in part: an answer has {got} bytes, {length} were asked for, and the object has not changed",
        hint="It was asked for again. Something between this machine and the server cuts answers, or the object is damaged "
        "there: read it with another program to see which.",
        details={"url": url, "key": key},
    )


def other_range(url: str, key: str) -> CorruptError:
    return CorruptError(
        f"{object_url(url, key)} gave another range than was asked for, or does not say which",
        hint=_ON_THE_WAY,
        details={"url": url, "key": key},
    )


def etag_missing(url: str, key: str) -> CorruptError:
    return CorruptError(
        f"{object_url(url, key)} was read without its ETag: which state of it that is, is not known",
        hint=_ON_THE_WAY,
        details={"url": url, "key": key},
    )


def object_url(url: str, key: str) -> str:
    return f"{url.rstrip('/')}/{key}" if key else url
