"""What a verification found. Plain values, also of a later repair's plan and of JSON documents."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class DamagedPack:
    """lost_blobs, lost_bytes: what versions need of it and nothing gives back. is_repaired:
    versions name some of it, and all of that is read from elsewhere."""

    pack: str
    key: str
    kind: str
    problem: str
    lost_blobs: int
    lost_bytes: int
    is_repaired: bool


@dataclass(frozen=True)
class DamagedRecord:
    """A head, a tag, a pruned record, the newest lease or the newest record of a volume that cannot
    be read, or a head that is missing; what it says is not known. key: of its object. No repair
    makes it anew: only a backup of the store has it. In the place of a lease comes that of the next
    writer, and `Volume.set_quota` makes a new record of a volume."""

    key: str
    volume: str
    problem: str


@dataclass(frozen=True)
class BrokenPath:
    """volumes: in which the versions are. path None: the version itself cannot be read."""

    path: str | None
    problem: str
    volumes: list[str]
    versions: list[str]


@dataclass(frozen=True)
class VerifyReport:
    """packs: that the versions name, or that the store has; checked_packs, read_bytes: of these,
    read and right or not; earlier ones of a run that was resumed count. links: linked objects that
    were asked for. notes: what could not be looked at. records: of a whole store; versions that
    nothing else names were not looked at."""

    store_url: str
    versions: int
    packs: int
    checked_packs: int
    read_bytes: int
    links: int
    damaged: list[DamagedPack]
    broken: list[BrokenPath]
    notes: list[str]
    records: list[DamagedRecord] = field(default_factory=list)

    @property
    def is_sound(self) -> bool:
        return not (self.broken or self.records or any(pack.lost_blobs for pack in self.damaged))
