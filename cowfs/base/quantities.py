"""Numbers, times and lists of names as people write and read them."""

from __future__ import annotations

import re


def count(number: int, what: str) -> str:
    """1 file, 2 files, 3 directories."""
    several = f"{what[:-1]}ies" if what.endswith("y") else f"{what}s"
    return f"{number} {what if number == 1 else several}"


def format_time(time_ns: int, *, to_the_second: bool = False) -> str:
    """Local time with its offset from UTC, to the minute: "2026-11-20 12:00+01:00". NAME@{…} takes
    it as it is. time_ns: nanoseconds since 1970."""
    from datetime import UTC, datetime

    local = datetime.fromtimestamp(time_ns // 10**9, UTC).astimezone()
    return local.isoformat(" ", "seconds" if to_the_second else "minutes")


def natural_key(text: str) -> tuple[tuple[int, str], ...]:
    """A sort key for names with numbers: a-9 comes before a-10."""
    return tuple((int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", text))
