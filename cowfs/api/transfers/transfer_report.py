"""Reports of uploads and downloads, and their views of a source and a volume."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cowfs.api import stores
from cowfs.base.short_repr import short_repr
from cowfs.machine.working_copy import WorkingCopy

if TYPE_CHECKING:
    from cowfs.transfer.upload.upload_reading import SourceTree


@dataclass(frozen=True)
class Source:
    """The entry at `at` in a tree. name: of a file."""

    tree: SourceTree
    at: bytes
    name: bytes


@short_repr
@dataclass(frozen=True)
class TransferReport:
    """The entries that were examined, and the result.

    files, directories, symlinks: in the source, without excluded entries. bytes: the sum of the
    files' sizes. skipped: devices, pipes and sockets, which are left out; skipped_paths: the first
    of them, in the source. unchanged: files that the target had already. removed: names removed
    from the target. locator: for an upload the volume's last version, for a download the version
    that was read; is_new: whether this call made it. mount_path: for a volume that is mounted here,
    the place that files went to or came from; locator then is its last version's, empty before the
    first. made_store_url: URL of the store, if it was created for this.
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
    made_store_url: str | None = None


@dataclass(frozen=True)
class Target:
    """A volume that this process will write to."""

    name: str
    store: stores.OpenStore
    working_copy: WorkingCopy
