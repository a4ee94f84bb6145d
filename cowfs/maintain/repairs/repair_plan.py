"""The plan of a repair, or its result. Plain values, except `work`, which applies a plan."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cowfs.base.short_repr import has_card, short_repr
from cowfs.maintain.check.verify_report import BrokenPath, DamagedRecord, advise

if TYPE_CHECKING:
    from collections.abc import Callable

    from cowfs.version.commit import ProgressListener


@has_card
@dataclass(frozen=True)
class PackRepair:
    """The repair of one damaged pack. blobs: those it should have; kept_blobs: intact in it, or in
    its new place; found: elsewhere; lost: named by versions and found nowhere. is_moved: an earlier
    repair or a collection has moved it, to packs that stay. new_pack: the pack that now has the
    kept and found blobs."""

    pack: str
    key: str
    kind: str
    problem: str
    blobs: int
    kept_blobs: int
    found_blobs: int
    lost_blobs: int
    is_moved: bool
    new_pack: str | None = None


@short_repr
@dataclass(frozen=True)
class RepairPlan:
    """found: number of blobs by source. broken: paths that stay broken. records: those that are
    damaged or missing, and stay so. is_applied: True in the result of `Store.repair`."""

    store_url: str
    packs: list[PackRepair]
    found: dict[str, int]
    broken: list[BrokenPath]
    records: list[DamagedRecord]
    is_applied: bool = False
    work: Callable[[ProgressListener], RepairPlan] | None = field(default=None, repr=False, compare=False)
    """For `Store.repair`; None: there is nothing to do."""

    @property
    def is_sound(self) -> bool:
        """Whether nothing is lost once the plan is applied."""
        return not (self.broken or self.records or any(pack.lost_blobs for pack in self.packs))

    @property
    def advice(self) -> list[str]:
        """What to do about each kind of damaged record."""
        return advise(self.records, self.store_url)
