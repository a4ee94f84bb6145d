"""Durations in the notation of declaring files: 90s, 45m or 45min, 12h, 30d, 2w."""

from __future__ import annotations

import re

_UNITS = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400, "w": 604_800}
LONGEST_S = 100 * 366 * 86_400


def parsed_s(text: str) -> int | None:
    """Seconds; None for anything else, and for more than a hundred years."""
    match = re.fullmatch(r"\s*([0-9]{1,10})\s*(min|[smhdw])\s*", text)
    seconds = int(match[1]) * _UNITS[match[2]] if match is not None else None
    return seconds if seconds is not None and 0 < seconds <= LONGEST_S else None
