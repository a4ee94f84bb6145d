"""Groups names in one directory that a file system may treat as one: they differ in upper and lower
case, in the Unicode form, in invisible characters, or in the dots and spaces at their end.

Each file system has its own rules, so this groups more names than any of them would. Whether names
really are the same is then tried (`LocalFiles.first_same`), for these groups only. In most
directories there are none.
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
    """Returns groups of two or more names that are alike."""
    if len({*map(_fold, names)}) == len(names):
        return []
    found: dict[bytes, list[bytes]] = {}
    for name in names:
        found.setdefault(_fold(name), []).append(name)
    return [each for each in found.values() if len(each) > 1]


def differ_in_case(names: Sequence[bytes]) -> bool:
    """Whether the names differ only in the case of ASCII letters."""
    return len({name.lower() for name in names}) == 1


def _fold(name: bytes) -> bytes:
    if not name.isascii():
        text = unicodedata.normalize("NFKD", name.decode(errors="surrogateescape"))
        text = unicodedata.normalize("NFKD", text.upper().casefold())
        seen = "".join(each for each in text if each not in _UNSEEN and unicodedata.category(each) != "Cf")
        name = seen.encode(errors="surrogateescape")
    return name.lower().rstrip(b". ")
