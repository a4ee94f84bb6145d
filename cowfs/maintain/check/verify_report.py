"""The result of a verification. Plain values, also used in repair plans and JSON documents."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from cowfs.base.hints import Command, insert_store
from cowfs.base.short_repr import has_card, short_repr
from cowfs.format import keys


@has_card
@dataclass(frozen=True)
class DamagedPack:
    """lost_blobs, lost_bytes: needed by versions and not readable from anywhere. is_repaired:
    versions name some of its blobs, and all of these can be read from elsewhere."""

    pack: str
    key: str
    kind: str
    problem: str
    lost_blobs: int
    lost_bytes: int
    is_repaired: bool


@has_card
@dataclass(frozen=True)
class DamagedRecord:
    """A damaged head, tag, pruned record, newest lease or newest volume record, or a missing head;
    its content is unknown. key: of its object. A repair cannot restore it: only a backup of the
    store has it. The next writer replaces a lease, and `Store.set_quota` writes a new volume
    record."""

    key: str
    volume: str
    problem: str


@short_repr
@dataclass(frozen=True)
class BrokenPath:
    """volume_names: those that have the versions. path None: the version itself cannot be read."""

    path: str | None
    problem: str
    volume_names: list[str]
    version_ids: list[str]


@short_repr
@dataclass(frozen=True)
class VerifyReport:
    """packs: those that the versions name, or that the store has; checked_packs, read_bytes: those
    of them that were read, right or not; packs read before a resumed run count. links: linked
    objects that were checked. notes: what could not be checked. records: of a whole store; versions
    named only by such records were not checked. purged: what a purge took from versions; it is not
    broken."""

    store_url: str
    checked_versions: int
    packs: int
    checked_packs: int
    read_bytes: int
    links: int
    damaged: list[DamagedPack]
    broken: list[BrokenPath]
    notes: list[str]
    records: list[DamagedRecord] = field(default_factory=list)
    purged: list[BrokenPath] = field(default_factory=list)

    @property
    def is_sound(self) -> bool:
        return not (self.broken or self.records or any(pack.lost_blobs for pack in self.damaged))

    @property
    def advice(self) -> list[str]:
        """What to do about each kind of damaged record."""
        return advise(self.records, self.store_url)


def advise(records: Sequence[DamagedRecord], store_url: str) -> list[str]:
    """Advice for each kind of damage. Its commands name the store: a report is read elsewhere,
    too."""
    meta = list(dict.fromkeys(each.volume for each in records if each.key.startswith(keys.meta_prefix(each.volume))))
    is_lease = any(each.key.startswith(keys.lease_prefix(each.volume)) for each in records)
    others = (keys.meta_prefix, keys.lease_prefix)
    found = []
    if any(not each.key.startswith(tuple(prefix(each.volume) for prefix in others)) for each in records):
        found.append(
            "Of heads, tags and what is pruned there is no second copy in a store: put these objects back from a backup of "
            f"it, or from the bucket's earlier versions. Until then {Command('gc')} deletes nothing. Without a backup, copy what "
            f"is whole to a new store, version by version: {Command('push', 'LOCATOR', 'NEWSTORE')}, Store().push()."
        )
    if is_lease:
        found.append("The place of a lease is taken by that of the next writer, two minutes later at most.")
    if meta:
        made = ", ".join(f"{Command('quota', volume, 'SIZE')}" for volume in meta)
        found.append(
            f"{made}, Store().set_quota(), makes a new record of a volume (none: no quota). Rules of pruning that it had are "
            "to be saved anew. The volume's owner is lost unless an earlier record names it."
        )
    return [insert_store(each, store_url) for each in found]
