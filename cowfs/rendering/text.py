"""Names and messages from a store as text for people."""

from __future__ import annotations


def printable(text: str) -> str:
    """Text from a store without control characters, each replaced by a space: a message must not
    drive the terminal. A byte of a name that is no UTF-8 is shown as U+FFFD."""
    return "".join(
        each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" if _is_byte(each) else " " for each in text
    )


def _is_byte(character: str) -> bool:
    """Whether it stands for a byte, as os.fsdecode has it."""
    return "\udc80" <= character <= "\udcff"


def first_line(text: str) -> str:
    """The first line of a message, with "…" if there are more; printable."""
    first, *more = text.strip().splitlines() or [""]
    return printable(first.rstrip()) + (" …" if any(line.strip() for line in more) else "")


def printable_lines(text: str) -> list[str]:
    """The lines of a message, each printable."""
    return [printable(line) for line in text.strip().splitlines()]
