"""The error for an index whose blocks are what was stored, and make no sense."""

from __future__ import annotations

from cowfs.errors import CorruptError


def damaged(title: str, problem: str) -> CorruptError:
    return CorruptError(
        f"{title} is damaged: {problem}",
        hint="Its blocks are what was stored, but they do not form an index. Use another version.",
    )
