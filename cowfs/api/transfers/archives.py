"""Imports an archive as the next version of a volume. The result is that of unpacking the archive,
which is not unpacked (`transfer.imports.archive_tree`,
docs/decisions/0087-archives-in-one-pass.md)."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import TYPE_CHECKING

from cowfs.api.transfers import uploading
from cowfs.api.transfers.transfer_report import Source, TransferReport
from cowfs.store.origin import Origin
from cowfs.store.origin.archive import Address, open_archive
from cowfs.version.commit import CommitRequest, ProgressListener

if TYPE_CHECKING:
    from cowfs.api.access.volume_handle import VolumeHandle
    from cowfs.api.versions.located_version import LocatedVersion


def import_archive(
    address: Address,
    origin: Origin,
    key: str,
    volume: VolumeHandle,
    request: CommitRequest,
    progress: ProgressListener | None,
    *,
    delete: bool,
    excluded: Callable[[bytes], bool],
) -> tuple[LocatedVersion, TransferReport]:
    """The archive is the object `key` of the origin. It is checked before the volume is made."""
    from cowfs.transfer.imports.archive_tree import ArchiveTree

    archive = open_archive(address, origin, key)
    with closing(ArchiveTree(archive, address.root, excluded, progress)) as tree:
        tree.foresee()
        with uploading.telling_of_empty(volume):
            target = volume.to_upload()
            uploading.require_not_mounted(target, b"")
            source = Source(tree, b"", address.root.rpartition(b"/")[2])
            options = uploading.PublishOptions(delete=delete, excluded=excluded, prepare=tree.prepare)
            return uploading.publish_to(volume, target, source, b"", request, progress, **options)
