"""Names in one directory that a file system may take for one: they differ in upper and lower case,
in the form of Unicode, in marks and what nobody sees, or in the dots and spaces at their end.

Each file system has its own rules, so this takes more for alike than any of them: whether names are
one is tried (`LocalFiles.first_same`), and only of those. In most directories there are none.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

_UNSEEN = frozenset({"Mn", "Cf"})
"""Categories of marks, and of what has no shape."""


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
    return names[0].isascii() and len({name.lower() for name in names}) == 1


def _folded(name: bytes) -> bytes:
    if not name.isascii():
        text = unicodedata.normalize("NFKD", name.decode(errors="surrogateescape"))
        seen = "".join(each for each in text if unicodedata.category(each) not in _UNSEEN)
        name = seen.upper().casefold().encode(errors="surrogateescape")
    return name.lower().rstrip(b". ")
