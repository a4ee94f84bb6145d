"""The report of a fork of a volume or a version: the outcome for uncommitted work and the mount."""

from __future__ import annotations

from cowfs.api import hints, names, sources, stores
from cowfs.api.ro_volume import ROVolume
from cowfs.api.rw_volume import RWVolume
from cowfs.base.fast_dataclass import dataclass
from cowfs.base.hints import Command


@dataclass(frozen=True)
class ForkReport:
    """name, locator, store_url: of the new volume. committed: locator of the version of `source`
    that was made from uncommitted work for this fork; is_first: it is its first version, and empty.
    uncommitted: the work moved to the new volume and is in no version, since another writer has the
    source. ended_mount: the former mount path of the source."""

    name: str
    locator: str | None
    store_url: str | None
    source: str
    source_volume: str
    committed: str | None
    is_first: bool
    uncommitted: bool
    ended_mount: str | None

    @property
    def notes(self) -> list[str]:
        """The outcome, in sentences."""
        said = []
        if self.committed is not None and self.is_first:
            said.append(f"Made a first, empty version of {self.source_volume}, which had none: {self.committed}")
        elif self.committed is not None:
            said.append(f"Committed uncommitted work of {self.source_volume} first: {self.committed}")
        said.append(f"Made volume {self.name} from {self.source}")
        if self.uncommitted:
            said.append(
                f"The uncommitted work of {self.source_volume}, which another writer has, is now that of {self.name}; it is in "
                f"no version yet: {hints.about(self.store_url, Command('commit', self.name))}"
            )
        if self.ended_mount is not None:
            again = hints.about(self.store_url, Command("mount", self.name, self.ended_mount))
            said.append(f"The mount at {self.ended_mount} has ended; to go on there: {again}")
        return said


def fork(source: str, name: str, store: stores.Named = None) -> ForkReport:
    """Creates volume `name` from NAME, NAME@TAG, NAME@VERSION or a locator. Uncommitted work of
    NAME is committed first. ConflictError: the name is taken."""
    wanted = names.checked(name)
    found = sources.find(source, store, with_manifest=True)
    mounted_at, is_work = None, True
    if found.head is not None:
        volume = RWVolume.made(found.store, found.head, None)
        mounted_at = str(volume.path) if volume.is_mounted else None
        is_work = found.head.version is not None or volume.has_changes()
        made = volume.fork(wanted, strict=True)
    else:
        made = ROVolume(found.locator(), found.manifest).resolve().fork(wanted, strict=True)
    base = made.forked_from
    committed = base.locator if base is not None and base.is_new else None
    is_moved = committed is None and made.has_changes()
    return ForkReport(
        name=made.name,
        locator=made.locator,
        store_url=made.store_url,
        source=source,
        source_volume=found.volume,
        committed=committed,
        is_first=committed is not None and not is_work,
        uncommitted=is_moved,
        ended_mount=mounted_at if is_moved else None,
    )
