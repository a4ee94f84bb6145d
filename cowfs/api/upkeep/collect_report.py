"""Reports of a garbage collection: the data to delete or deleted, and the reasons for keeping an
object."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from cowfs.base.quantities import count
from cowfs.base.short_repr import short_repr

SHOWN = 10
"""The number of alarms, and of files that are not from cowfs, that a message shows."""


@dataclass(frozen=True)
class Waiting:
    """A writer that has not acknowledged the collection yet, by the pin it holds."""

    volume: str
    holder: str


@dataclass(frozen=True)
class Restorable:
    """A deleted volume and the time until which it can be restored; nothing of it is deleted
    before."""

    volume: str
    until_ns: int


@dataclass(frozen=True)
class Share:
    """A part of the store's bytes. action: "delete", "write", "keep", "later" or "unused"; what:
    the kind of data, or the reason."""

    action: str
    bytes: int
    what: str


@short_repr
@dataclass(frozen=True)
class GcReport:
    """objects: key and size of each deleted object. freed_versions, freed_packs: how many of them
    are versions and packs. freed_bytes: how much the store shrinks: the sum of the sizes, less
    written_bytes.

    repacked_packs, written_bytes: the number of packs that are needed in part, and the size of the
    new packs that replace them. kept_versions, kept_bytes: the data needed afterwards, in whole
    packs. young_bytes: garbage that may still be in use; a later collection deletes it.
    sparse_packs, sparse_bytes: packs that are kept although less than half of them is needed,
    because they are too young or the gain is small, and their unneeded bytes. gone: volumes that
    can no longer be restored once the plan is carried out; in the report of a finished collection,
    the volumes that it closed. deleted_volumes: deleted volumes that can still be restored.

    alarms: signs that the store does not show everything in it. With alarms nothing is deleted,
    unless plan_id is passed as accept_loss. plan_id: names this plan, "" without alarms. strange:
    files and folders in the store that cowfs did not create; they are kept.

    waits_for: writers that must acknowledge the collection first. is_done: False after a dry run,
    while the collection waits, and while a part of its list remains, which another collection may
    have in its plan. The next collection continues an unfinished one.
    """

    store_url: str
    freed_bytes: int
    freed_versions: int
    freed_packs: int
    repacked_packs: int
    written_bytes: int
    kept_versions: int
    kept_bytes: int
    young_bytes: int
    sparse_packs: int
    sparse_bytes: int
    gone: list[str]
    deleted_volumes: list[Restorable]
    waits_for: list[Waiting]
    is_done: bool
    plan_id: str
    alarms: list[str]
    strange: list[str]
    objects: Mapping[str, int] = field(repr=False)

    @property
    def shares(self) -> list[Share]:
        """The outcome for each part of the store's bytes."""
        shares = [
            Share(
                "delete",
                self.freed_bytes + self.written_bytes,
                f"{count(self.freed_versions, 'version')}, {count(self.freed_packs, 'pack')}",
            )
        ]
        if self.repacked_packs:
            of_packs = count(self.repacked_packs, "pack")
            shares.append(Share("write", self.written_bytes, f"what is needed of {of_packs} that go"))
        shares.append(Share("keep", self.kept_bytes, f"needed by {count(self.kept_versions, 'version')}"))
        if self.young_bytes:
            shares.append(Share("later", self.young_bytes, "too young, or a mount may still use it"))
        if self.sparse_bytes:
            of_packs = count(self.sparse_packs, "pack")
            shares.append(Share("unused", self.sparse_bytes, f"in {of_packs} needed in part"))
        return shares

    @property
    def warnings(self) -> list[str]:
        """Points to check before the plan is carried out."""
        said = []
        if self.strange:
            more = f", and {len(self.strange) - SHOWN} more" if len(self.strange) > SHOWN else ""
            said.append(f"Not of cowfs, left alone: {', '.join(self.strange[:SHOWN])}{more}")
        said += [f"Alarm: {alarm}" for alarm in self.alarms[:SHOWN]]
        if self.alarms:
            said.append(f"{count(len(self.alarms), 'alarm')}: nothing is deleted. This is plan {self.plan_id}")
        return said + [f"Then volume {name} cannot be brought back any more" for name in self.gone]

    @property
    def outcome(self) -> list[str]:
        """After a collection: the volumes that were permanently deleted, and the writers it waits
        for if it is not done."""
        said = [f"Volume {name} cannot be brought back any more" for name in self.gone]
        if not self.is_done and not self.waits_for:
            said.append("Not done: somebody else is collecting the same, or has added to it. Run it again later.")
        elif not self.is_done:
            names = ", ".join(f"{each.volume} ({each.holder})" for each in self.waits_for)
            said.append(f"Not done: no answer yet from who writes to {names}. Run it again later; it goes on then.")
        return said


@dataclass(frozen=True)
class Reason:
    """version: a version that needs the object, "" if the object itself is named. kept_by: heads,
    tags and pins."""

    version: str
    kept_by: list[str]


@short_repr
@dataclass(frozen=True)
class WhyReport:
    """key: of the object; bytes: None if it is absent because it moved. reasons: empty if a
    collection may delete it."""

    key: str
    bytes: int | None
    reasons: list[Reason]

    @property
    def lines(self) -> list[str]:
        if not self.reasons:
            return [f"{self.key}: nothing needs it"]
        said = [f"{self.key} is needed"]
        for reason in self.reasons:
            by = f"by version {reason.version[:12]}: " if reason.version else "as uploaded by "
            said.append(f"  {by}{', '.join(reason.kept_by)}")
        return said
