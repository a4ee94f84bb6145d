"""What a writable session needs if another process is to go on with its mount after this one is
killed: the survival table, and the lock that the process before has had."""

from __future__ import annotations

from cowfs.base.fast_dataclass import dataclass
from cowfs.native import SurvivalTable


@dataclass(frozen=True)
class Survival:
    """lock: a descriptor with which the server before held the working copy's lock; None: there was
    no server before."""

    table: SurvivalTable
    lock: int | None = None

    @property
    def is_continued(self) -> bool:
        """Whether the kernel has a mount of an earlier server, which this session goes on with."""
        return self.lock is not None
