"""How long an HTTP answer asks to be left alone: its Retry-After header, in seconds or as a date.

A date counts from the answer's own Date header, so that no clock of ours is involved. Nonsense is
no wish at all.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

MOST_S = 3600.0


def retry_after_s(headers: Mapping[str, str]) -> float:
    """0 when there is no such wish; at most MOST_S. headers: names in lower case."""
    text = headers.get("retry-after", "").strip()
    try:
        seconds = float(text)
    except ValueError:
        seconds = _until(text, headers.get("date", ""))
    return min(seconds, MOST_S) if seconds > 0 and not math.isnan(seconds) else 0.0


def as_text(wait_s: float) -> str:
    """What an error adds to its text."""
    return f"; it asks to be left alone for {wait_s:.0f} s" if wait_s > 0 else ""


def _until(date: str, now: str) -> float:
    from email.utils import parsedate_to_datetime

    try:
        return (parsedate_to_datetime(date) - parsedate_to_datetime(now)).total_seconds()
    except (TypeError, ValueError):
        return 0.0
