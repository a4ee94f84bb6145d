"""Forks versions and volumes, and reports the outcome for uncommitted work and the mount.

Uncommitted work of a volume is committed first. If that is impossible because another writer has
the volume, the work moves to the fork (`mounts.rescue`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

from cowfs.api import hints, names, sources, stores
from cowfs.api.access.volume_handle import VolumeHandle
from cowfs.api.claiming import claimed
from cowfs.api.mounts import rescue, version_mount
from cowfs.api.mounts.base import mount_of
from cowfs.api.provenance import author, commit_request
from cowfs.api.versions import committing
from cowfs.api.versions.located_version import LocatedVersion
from cowfs.base import interruptible
from cowfs.base.errors import ConflictError, LeaseHeldError, LeaseLostError
from cowfs.base.hints import Command
from cowfs.base.short_repr import short_repr
from cowfs.format.locator import Locator
from cowfs.version.names import volumes
from cowfs.version.names.volumes import Head


@short_repr
@dataclass(frozen=True)
class ForkReport:
    """name, locator, store_url: of the new volume. committed_locator: locator of the version of
    `source` that was made from uncommitted work for this fork; is_first: it is its first version,
    and empty. has_uncommitted: the work moved to the new volume and is in no version, since another
    writer has the source. ended_mount: the former mount path of the source."""

    name: str
    locator: str | None
    store_url: str | None
    source: str
    source_volume: str
    committed_locator: str | None
    is_first: bool
    has_uncommitted: bool
    ended_mount: str | None

    @property
    def notes(self) -> list[str]:
        """The outcome, in sentences."""
        said = []
        if self.committed_locator is not None and self.is_first:
            said.append(
                f"Made a first, empty version of {self.source_volume}, which had none: {self.committed_locator}"
            )
        elif self.committed_locator is not None:
            said.append(f"Committed uncommitted work of {self.source_volume} first: {self.committed_locator}")
        said.append(f"Made volume {self.name} from {self.source}")
        if self.has_uncommitted:
            said.append(
                f"The uncommitted work of {self.source_volume}, which another writer has, is now that of {self.name}; it is in "
                f"no version yet: {hints.about(self.store_url, Command('commit', self.name))}"
            )
        if self.ended_mount is not None:
            again = hints.about(self.store_url, Command("mount", self.name, self.ended_mount))
            said.append(f"The mount at {self.ended_mount} has ended; to go on there: {again}")
        return said


@dataclass(frozen=True)
class Forked:
    """volume: the new one. base: the version that it was forked from; None: it has none."""

    volume: VolumeHandle
    base: LocatedVersion | None


def fork(source: str, name: str, store: stores.Named = None) -> ForkReport:
    """`Store.fork`."""
    wanted = names.checked(name)
    found = sources.find(source, store, with_manifest=True)
    mounted_at, is_work = None, True
    if found.head is not None:
        volume = VolumeHandle.of_head(found.store, found.head)
        entry = volume.live()
        mounted_at = entry.mount_path if entry is not None else None
        is_work = found.head.version is not None or volume.has_changes()
        made = fork_volume(volume, wanted, strict=True)
    else:
        version = found.located().resolve()
        made = Forked(fork_version(version, wanted, strict=True), version)
    committed = made.base.locator if made.base is not None and made.base.is_new else None
    is_moved = committed is None and made.volume.has_changes()
    return ForkReport(
        name=made.volume.name,
        locator=made.volume.locator,
        store_url=made.volume.store_url,
        source=source,
        source_volume=found.volume,
        committed_locator=committed,
        is_first=committed is not None and not is_work,
        has_uncommitted=is_moved,
        ended_mount=mounted_at if is_moved else None,
    )


def fork_version(version: LocatedVersion, name: str | None, *, strict: bool) -> VolumeHandle:
    """`ROVolume.fork`."""
    version_mount.require_whole(version, "forked")
    store = version.open_store()

    def create(new_name: str) -> Head:
        return volumes.fork_volume(store.objects, new_name, version.named, owner=author())

    wanted = names.checked(name) if name is not None else names.generated()
    return VolumeHandle.of_head(store, claimed(wanted, create, strict=strict))


def fork_volume(volume: VolumeHandle, name: str | None, *, strict: bool) -> Forked:
    """`RWVolume.fork`."""
    with volume.mutex:
        message = f"before the fork {name}" if name else "before a fork"
        if name is not None:
            names.checked(name)
        if (rescued := _complete_rescue(volume, name)) is not None:
            return rescued
        if name is not None and strict and volume.has_changes():  # a fork that is refused publishes nothing
            volumes.require_free(volume.resolve().objects, name)
        try:
            version = committing.commit(volume, replace(commit_request(message), given=frozenset()))
        except LeaseLostError:
            if (entry := volume.live()) is not None and not mount_of(entry).keeps_work:
                raise
            return _rescue(volume, name, strict=strict)
        except LeaseHeldError:
            if volume.live() is not None or not _is_left_alone(volume):
                raise
            return _rescue(volume, name, strict=strict)
        except ConflictError as error:
            if "newer_version" not in error.details:  # of a copy that was overtaken
                raise
            return _rescue(volume, name, strict=strict)
        return Forked(fork_version(version, name, strict=strict), version)


def _is_left_alone(volume: VolumeHandle) -> bool:
    """Whether this machine has uncommitted work that no process uses."""
    working_copy = volume.working_copy()
    return working_copy.may_have_uncommitted and working_copy.holder() is None


def _rescue(volume: VolumeHandle, name: str | None, *, strict: bool) -> Forked:
    store, working_copy = volume.opened, volume.working_copy()
    volume.end_files(force=True)
    interruptible.run(partial(volume.mount_used.end, volume.live(), lambda mount: mount.unmount(), force=False))
    return _to_forked(volume, *rescue.fork(store, working_copy, name, strict=strict))


def _complete_rescue(volume: VolumeHandle, name: str | None) -> Forked | None:
    """Completes an earlier fork that was killed half way; None: nothing to complete."""
    if volume.is_unclaimed or volume.live() is not None:
        return None
    found = rescue.ended(volume.resolve(), volume.name, name)
    return _to_forked(volume, *found) if found is not None else None


def _to_forked(volume: VolumeHandle, head: Head, base: Locator | None) -> Forked:
    """The work of the volume goes on under the head of another, with the same options."""
    store = volume.opened
    made = VolumeHandle.of_head(store, head)
    made.options = volume.options
    return Forked(made, LocatedVersion(base, storage=store.storage) if base is not None else None)
