"""The progress of a call as text: "files 1,200 of 5,000, 1.2 GiB of 4.0 GiB, 61.0 MiB/s, 47 s
left"."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cowfs.base import clock
from cowfs.base.byte_sizes import format_size

if TYPE_CHECKING:
    from cowfs.version.commit import Progress

RATE_AFTER_S = 1.0
INTERVAL_S = 0.2


class ProgressText:
    """The text for one call, which begins when this is made."""

    def __init__(self) -> None:
        self._since_s = clock.monotonic_s()
        self._shown_s = float("-inf")
        self._stage: str | None = None

    @property
    def elapsed_s(self) -> float:
        """Seconds since the call began."""
        return clock.monotonic_s() - self._since_s

    def is_due(self, progress: Progress) -> bool:
        """Whether a new stage begins, or INTERVAL_S have passed since this last returned True."""
        now_s = clock.monotonic_s()
        if progress.stage == self._stage and now_s - self._shown_s < INTERVAL_S:
            return False
        self._stage, self._shown_s = progress.stage, now_s
        return True

    def describe(self, progress: Progress) -> str:
        """The stage, with counts and bytes if it has any, and the rate and time left once the call
        has taken RATE_AFTER_S."""
        return describe(progress, self.elapsed_s)


def describe(progress: Progress, elapsed_s: float) -> str:
    """As `ProgressText.describe`, of a call that began elapsed_s ago."""
    parts = [progress.stage + (f" {progress.done:,} of {progress.total:,}" if progress.total else "")]
    if progress.total_bytes:
        parts.append(f"{format_size(progress.done_bytes)} of {format_size(progress.total_bytes)}")
    if progress.done_bytes and elapsed_s >= RATE_AFTER_S:
        rate = progress.done_bytes / elapsed_s
        left_s = (progress.total_bytes - progress.done_bytes) / rate
        parts += [
            f"{format_size(int(rate))}/s",
            f"{left_s:,.0f} s left" if left_s < 120 else f"{left_s / 60:,.0f} min left",
        ]
    return ", ".join(parts)
