"""What an upload or a download tells, and what it needs to know of its source and of a volume."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cowfs.api import stores
from cowfs.machine.working_copy import WorkingCopy

if TYPE_CHECKING:
    from cowfs.session.upload_reading import SourceTree


@dataclass(frozen=True)
class Source:
    """What is at `at` of a tree. name: of a file."""

    tree: SourceTree
    at: bytes
    name: bytes


@dataclass(frozen=True)
class TransferReport:
    """What was looked at, and what became of it.

    files, directories, symlinks: in the source, without what is excluded. bytes: of the files'
    sizes. skipped: devices, pipes and sockets, which are left out; skipped_paths: the first of
    them, in the source. unchanged: files that the target had already. removed: names that are gone
    from the target. locator: of an upload the volume's last version, of a download the one that was
    read; is_new: whether this made it. mount_path: of a volume that is mounted here, where files
    went or came from; locator then is its last version's, empty before the first.
    """

    files: int
    directories: int
    symlinks: int
    bytes: int
    skipped: int
    unchanged: int
    removed: int
    locator: str
    is_new: bool
    mount_path: str | None = None
    skipped_paths: tuple[str, ...] = ()


@dataclass(frozen=True)
class Target:
    """A volume that this process is going to write to."""

    name: str
    store: stores.OpenStore
    working_copy: WorkingCopy
