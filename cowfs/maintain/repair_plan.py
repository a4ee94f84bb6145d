"""What a repair will do, or has done. Plain values, but for `work`, with which a plan is
applied."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cowfs.maintain.verify_report import BrokenPath, DamagedRecord

if TYPE_CHECKING:
    from collections.abc import Callable

    from cowfs.version.commit import ProgressListener


@dataclass(frozen=True)
class PackRepair:
    """What becomes of one damaged pack. blobs: that it should have; kept: that are whole in it, or
    where it was moved to; found: elsewhere; lost: that versions name, and that were found nowhere.
    is_moved: an earlier repair or a collection has moved it, to packs that stay. new_pack: that has
    kept and found now."""

    pack: str
    key: str
    kind: str
    problem: str
    blobs: int
    kept: int
    found: int
    lost: int
    is_moved: bool
    new_pack: str | None = None


@dataclass(frozen=True)
class RepairPlan:
    """found: blobs by where they were found. broken: paths that stay broken. records: that are
    damaged or missing, and stay so. is_applied: of what `Volume.repair` returns."""

    store_url: str
    packs: list[PackRepair]
    found: dict[str, int]
    broken: list[BrokenPath]
    records: list[DamagedRecord]
    is_applied: bool = False
    work: Callable[[ProgressListener], RepairPlan] | None = field(default=None, repr=False, compare=False)
    """For `Volume.repair`; None: there is nothing to do."""

    @property
    def is_sound(self) -> bool:
        """Nothing is lost when it is applied."""
        return not (self.broken or self.records or any(pack.lost for pack in self.packs))
