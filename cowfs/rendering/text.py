"""Times and names as text."""

from __future__ import annotations

from datetime import UTC, datetime


def format_time(time_ns: int, *, to_the_second: bool = False) -> str:
    """Local time, to the minute: "2026-11-20 12:00". time_ns: nanoseconds since 1970."""
    form = "%Y-%m-%d %H:%M:%S" if to_the_second else "%Y-%m-%d %H:%M"
    return datetime.fromtimestamp(time_ns / 1e9, UTC).astimezone().strftime(form)


def printable(text: str) -> str:
    """Text from a store without control characters, each replaced by a space: a message must not
    drive the terminal."""
    return "".join(character if character.isprintable() else " " for character in text)
