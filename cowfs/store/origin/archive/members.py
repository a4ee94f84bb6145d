"""What an archive yields: its members, one after the other.

    foresee    the members that are known before contents are read: all of a zip, without the targets of its links; the first
               one of a tar
    members    all members, each with its contents; the next one is asked for when the last was read, or passed over

`members` ends only when the archive was read to its end and every checksum in it was right. It
raises `Damaged` for bytes that contradict the format, and InvalidInputError for an archive of an
unknown kind. Both may be called again, and begin at the beginning.

Which checksums exist depends on the format:

    .tar.gz, .bz2, .xz, .zst    contents, names and attributes; for .xz and .zst, if the writer has added them
    .zip                        contents of files (CRC-32); names are stored twice; not kinds, permissions and times
    .tar                        headers alone
    .tar.lzma                   as .tar

For one thread at a time.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import field

from cowfs.base.fast_dataclass import dataclass
from cowfs.store.origin.archive.input import Input

TARGET_BYTES = 4095
"""Of a symbolic link: as on Linux."""


class Damaged(Exception):
    """Bytes of an archive are not what its format says, or are missing. The text says which."""


def _nothing(target: memoryview) -> None:
    assert not target, "it has no bytes"


@dataclass
class Member:
    """One entry of an archive.

    path: relative, without empty parts and "."; b"": the directory that was packed. mode: kind and
    permissions. mtime_ns: 0: not known. target: of a symbolic link; of a hard link the path of an
    earlier member. ranges: (offset, length) of a file's bytes that are no hole, ascending. fill:
    takes the next of these bytes, one range behind the other, and fills the buffer, or raises.
    fault: why it cannot be imported; "": it can.
    """

    path: bytes
    mode: int
    mtime_ns: int
    size: int = 0
    target: bytes = b""
    is_hard_link: bool = False
    ranges: tuple[tuple[int, int], ...] = ()
    fill: Callable[[memoryview], None] = field(default=_nothing)
    fault: str = ""


class Archive(ABC):
    """url: without credentials. input: it is closed with the archive."""

    def __init__(self, url: str, input: Input) -> None:
        self.url = url
        self._input = input

    @property
    def size(self) -> int:
        """Of the archive as it is stored."""
        return self._input.size

    def tell(self) -> int:
        """How much of it was taken."""
        return self._input.tell()

    def close(self) -> None:
        self._input.close()

    @abstractmethod
    def foresee(self) -> Iterator[Member]: ...

    @abstractmethod
    def members(self) -> Iterator[Member]: ...


def link_fault(target: bytes) -> str:
    """Of a symbolic link that leads there."""
    return "" if 0 < len(target) <= TARGET_BYTES and b"\0" not in target else "is a link that leads nowhere"


def clean(path: bytes) -> bytes:
    """The path of a member as `Member` has it: relative, as tar and unzip make it. ".." stays."""
    return b"/".join(part for part in path.split(b"/") if part not in (b"", b"."))
