"""Names in one directory that a file system may take for one: they differ in upper and lower case,
in the form of Unicode, in what nobody sees, or in the dots and spaces at their end.

Each file system has its own rules, so this takes more for alike than any of them: whether names are
one is tried (`LocalFiles.first_same`), and only of those. In most directories there are none.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

_UNSEEN = frozenset(
    chr(number)
    for first, last in (
        *((0x34F, 0x34F), (0x115F, 0x1160), (0x17B4, 0x17B5), (0x180B, 0x180F), (0x2065, 0x2065), (0x3164, 0x3164)),
        *((0xFE00, 0xFE0F), (0xFFA0, 0xFFA0), (0xFFF0, 0xFFF8), (0xE0000, 0xE0FFF)),
    )
    for number in range(first, last + 1)
)
"""Default_Ignorable_Code_Point (Unicode's DerivedCoreProperties), but those of category Cf."""


def groups(names: Sequence[bytes]) -> list[list[bytes]]:
    """Of names that are alike, two and more each."""
    if len({*map(_folded, names)}) == len(names):
        return []
    found: dict[bytes, list[bytes]] = {}
    for name in names:
        found.setdefault(_folded(name), []).append(name)
    return [each for each in found.values() if len(each) > 1]


def differ_in_case(names: Sequence[bytes]) -> bool:
    """Whether they differ in the case of letters of ASCII, and in nothing else."""
    return len({name.lower() for name in names}) == 1


def _folded(name: bytes) -> bytes:
    if not name.isascii():
        text = unicodedata.normalize("NFKD", name.decode(errors="surrogateescape"))
        text = unicodedata.normalize("NFKD", text.upper().casefold())
        seen = "".join(each for each in text if each not in _UNSEEN and unicodedata.category(each) != "Cf")
        name = seen.encode(errors="surrogateescape")
    return name.lower().rstrip(b". ")
