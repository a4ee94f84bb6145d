"""Sizes as people write and read them. KiB, MiB, … and K, M, … are powers of 1024; kB, MB, … are
powers of 1000. A number without a unit is no size: who writes 10 rarely means bytes."""

from __future__ import annotations

import re

_PREFIXES = ("", "K", "M", "G", "T")
WANTED = "a size with its unit, like 512MiB, 20G or 100GB"


def parse_size(text: str) -> int | None:
    """Bytes of "512M", "20 GiB", "100GB", "1048576B"; None for anything else."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(?:([KMGT])(iB|B)?|B)\s*", text, re.IGNORECASE)
    if match is None:
        return None
    step = 1000 if (match[3] or "").upper() == "B" else 1024
    return int(float(match[1]) * step ** _PREFIXES.index((match[2] or "").upper()))


def format_size(size_bytes: int) -> str:
    """1234567 → "1.2 MiB"."""
    value = float(size_bytes)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if value < 1024 or unit == "TiB":
            break
        value /= 1024
    return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
