"""The error for an index whose blocks have the right hashes but make no sense."""

from __future__ import annotations

from cowfs.base.errors import CorruptError


def damage_error(title: str, problem: str) -> CorruptError:
    return CorruptError(
        f"{title} is damaged: {problem}",
        hint="Its blocks have the right hashes, but they do not form an index. Use another version.",
    )
