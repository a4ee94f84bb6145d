"""What a collection of garbage is about to delete, or has deleted; and why something is kept."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Waiting:
    """A writer that has not heard of the collection yet, by the pin it holds."""

    volume: str
    owner: str


@dataclass(frozen=True)
class Restorable:
    """A deleted volume, and until when it can be brought back; so long nothing of it goes."""

    volume: str
    until_ns: int


@dataclass(frozen=True)
class GcReport:
    """objects: key and size of what is deleted. versions, packs: how many of those
    there are among them. freed_bytes: what the store shrinks by: their sum, less written_bytes.

    repacked_packs, written_bytes: how many of the packs are needed in part, and the size of the new
    ones that hold what is. kept_versions, kept_bytes: what is needed then, in whole packs.
    young_bytes: garbage that may still be in use; a later collection takes it. sparse_packs,
    sparse_bytes: packs that stay although less than half is needed, since they are too young or
    there is little to gain, and how many bytes of them are not. gone: volumes that nobody can bring
    back once the plan is carried out; of what was done, those that it has closed. deleted: those
    that were deleted and still can be brought back.

    waits_for: writers that have to hear of it first. is_done: False after a dry run, while it
    waits, and while something of its list is left, which another collection may have in its plan;
    what was begun is gone on with by the next one.
    """

    store: str
    freed_bytes: int
    versions: int
    packs: int
    repacked_packs: int
    written_bytes: int
    kept_versions: int
    kept_bytes: int
    young_bytes: int
    sparse_packs: int
    sparse_bytes: int
    gone: list[str]
    deleted: list[Restorable]
    waits_for: list[Waiting]
    is_done: bool
    objects: Mapping[str, int] = field(repr=False)


@dataclass(frozen=True)
class Reason:
    """version: one that needs the object, "" where the object itself is named. kept_by: heads, tags
    and pins."""

    version: str
    kept_by: list[str]


@dataclass(frozen=True)
class WhyReport:
    """key: of the object; size: None where it is absent, since it moved. reasons: empty, if a
    collection may take it."""

    key: str
    size: int | None
    reasons: list[Reason]
