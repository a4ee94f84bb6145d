"""Commits a volume, wherever its work is on this machine.

mounted here               the mount's daemon commits; a copy is committed by this process
`files` of this process    their session commits
neither                    the working copy is opened for the commit, if there is work or a first version is due
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cowfs.api import arguments
from cowfs.api.mounts import folder, kept_work, unmounted
from cowfs.api.mounts.base import mount_of
from cowfs.base.errors import UnavailableError
from cowfs.folders import work_left
from cowfs.version.names import volumes

if TYPE_CHECKING:
    from cowfs.api.access.volume_handle import VolumeHandle
    from cowfs.api.versions.located_version import LocatedVersion
    from cowfs.machine.registry import MountEntry
    from cowfs.version.commit import CommitRequest, ProgressListener


def commit(volume: VolumeHandle, request: CommitRequest, progress: ProgressListener | None = None) -> LocatedVersion:
    """`RWVolume.commit`. The daemon runs commits one after another and reports progress to all
    waiting callers. No lock is held for that."""
    hears = arguments.listener(progress)
    with volume.mutex:
        volume.resolve()
        entry = volume.live()
        volume.mount_used.require_kept(volume.name, entry)
    if entry is not None:
        try:
            done = mount_of(entry).commit(request, progress and hears, target=volume.target(), options=volume.options)
        except UnavailableError:
            if not mount_of(entry).has_left_work():
                raise
            volume.mount_used.require_kept(volume.name, volume.live())
        else:
            return volume.record(done.head_number, done.version, done.known, is_new=done.is_new)
    elif volume.find_files() is not None and (made := volume.files_used.commit(request, hears)) is not None:
        before, base = made
        assert base.version_id is not None
        return volume.record(base.head_number, base.version_id, base.manifest, is_new=base.version_id != before)
    return _commit_unmounted(volume, entry, request, hears)


def _commit_unmounted(
    volume: VolumeHandle, died: MountEntry | None, request: CommitRequest, progress: ProgressListener
) -> LocatedVersion:
    """died: the mount whose daemon has just died. Opening the volume shows whether that daemon
    published."""
    with volume.mutex:
        store, working_copy = volume.opened, volume.working_copy()
        if volume.options.meta_path is None:
            kept_work.require_all(working_copy, store)
        head = volumes.read_head(store.objects, volume.name)  # another writer may have committed since
        if working_copy.may_have_uncommitted or unmounted.is_commit_due(store, head, request):
            if working_copy.copy is not None:
                base, _ = folder.commit(volume.target(), volume.options, request, progress)
                if not work_left.tidy(working_copy):
                    working_copy.delete_if_committed()
            else:
                base = unmounted.commit(store, working_copy, volume.options, request, progress)
            assert base.version_id is not None
            before = head.version if died is None else volume.version
            return volume.record(base.head_number, base.version_id, is_new=base.version_id != before)
        assert head.version is not None
        is_new = died is not None and head.version != volume.version  # made by the daemon that died
        return volume.record(head.number, head.version, is_new=is_new)
