"""The result of a verification. Plain values, also used in repair plans and JSON documents."""

from __future__ import annotations

from dataclasses import dataclass, field


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


@dataclass(frozen=True)
class DamagedRecord:
    """A damaged head, tag, pruned record, newest lease or newest volume record, or a missing head;
    its content is unknown. key: of its object. A repair cannot restore it: only a backup of the
    store has it. The next writer replaces a lease, and `Store.set_quota` writes a new volume
    record."""

    key: str
    volume: str
    problem: str


@dataclass(frozen=True)
class BrokenPath:
    """volumes: those that have the versions. path None: the version itself cannot be read."""

    path: str | None
    problem: str
    volumes: list[str]
    versions: list[str]


@dataclass(frozen=True)
class VerifyReport:
    """packs: those that the versions name, or that the store has; checked_packs, read_bytes: those
    of them that were read, right or not; packs read before a resumed run count. links: linked
    objects that were checked. notes: what could not be checked. records: of a whole store; versions
    named only by such records were not checked."""

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
