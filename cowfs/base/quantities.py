"""Numbers of things as people write them."""

from __future__ import annotations


def count(number: int, what: str) -> str:
    """1 file, 2 files, 3 directories."""
    several = f"{what[:-1]}ies" if what.endswith("y") else f"{what}s"
    return f"{number} {what if number == 1 else several}"
