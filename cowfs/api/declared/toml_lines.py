"""Finds the line of each key and each array element of a TOML document.

No TOML library for Python reports lines, and an error must name one. tomllib has parsed the
document before, so this scanner can rely on valid text. It finds headers, keys and the ends of
values, and decodes nothing but quoted keys. A test checks that it finds the same paths as tomllib.

    volumes = [            ("volumes",) → 1
      {name = "a"},        ("volumes", 0), ("volumes", 0, "name") → 2
    ]
    [stores.main]          ("stores",), ("stores", "main") → 4
    url = "…"              ("stores", "main", "url") → 5
"""

from __future__ import annotations

import re
import tomllib
from bisect import bisect_right

Path = tuple[str | int, ...]
Lines = dict[Path, int]

_BLANK = re.compile(r"(?:[ \t\n]|#[^\n]*)*")
_SPACE = re.compile(r"[ \t]*")
_KEY = re.compile(r"""[A-Za-z0-9_-]+|"(?:[^"\\]|\\.)*"|'[^']*'""")
_STRING = re.compile(
    r'"""(?:[^"\\]|\\.|"(?!""))*"{3,5}' r"|'''(?:[^']|'(?!''))*'{3,5}" r"""|"(?:[^"\\]|\\.)*"|'[^']*'""", re.DOTALL
)
_BARE = re.compile(r"[^,\]}\n#]+")


def lines_of(text: str) -> Lines:
    """text: a valid document, its lines ended by \\n."""
    return _Walk(text).document()


class _Walk:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._starts = [0, *(found.end() for found in re.finditer("\n", text))]
        self._lines: Lines = {}
        self._lengths: dict[Path, int] = {}
        """The number of tables so far in each array of tables, by path."""

    def document(self) -> Lines:
        table: Path = ()
        while (character := self._next(_BLANK)) != "":
            if character == "[":
                table = self._header()
            else:
                self._pair(table)
        return self._lines

    def _header(self) -> Path:
        line, is_array = self._line(), self._text.startswith("[[", self._at)
        self._at += 2 if is_array else 1
        *parents, last = self._keys()
        self._next(_SPACE)
        self._at += 2 if is_array else 1
        path: Path = ()
        for key in parents:
            path = self._newest((*path, key), line)
        path = (*path, last)
        if is_array:
            self._lengths[path] = self._lengths.get(path, 0) + 1
        return self._newest(path, line)

    def _newest(self, path: Path, line: int) -> Path:
        """The table at path; for an array of tables, its last one."""
        self._lines.setdefault(path, line)
        if path in self._lengths:
            path = (*path, self._lengths[path] - 1)
            self._lines.setdefault(path, line)
        return path

    def _pair(self, table: Path) -> None:
        line = self._line()
        for key in self._keys():
            table = (*table, key)
            self._lines.setdefault(table, line)
        self._next(_SPACE)
        self._at += 1  # =
        self._next(_SPACE)
        self._value(table)

    def _keys(self) -> list[str]:
        keys = []
        while True:
            self._next(_SPACE)
            keys.append(_decode(self._take(_KEY)))
            if self._next(_SPACE) != ".":
                return keys
            self._at += 1

    def _value(self, path: Path) -> None:
        character = self._text[self._at]
        if character in "\"'":
            self._take(_STRING)
        elif character == "[":
            self._members(path, "]")
        elif character == "{":
            self._members(path, "}")
        else:
            self._take(_BARE)

    def _members(self, path: Path, end: str) -> None:
        """Scans the members of an array or an inline table."""
        self._at += 1
        count = 0
        while (character := self._next(_BLANK)) != end:
            if character == ",":
                self._at += 1
            elif end == "}":
                self._pair(path)
            else:
                self._lines[(*path, count)] = self._line()
                self._value((*path, count))
                count += 1
        self._at += 1

    def _take(self, pattern: re.Pattern[str]) -> str:
        found = pattern.match(self._text, self._at)
        assert found is not None, f"tomllib has read what this cannot, at {self._at}"
        self._at = found.end()
        return found[0]

    def _next(self, skipped: re.Pattern[str]) -> str:
        """The character after the skipped text; "" at the end."""
        self._take(skipped)
        return self._text[self._at : self._at + 1]

    def _line(self) -> int:
        return bisect_right(self._starts, self._at)


def _decode(key: str) -> str:
    return next(iter(tomllib.loads(f"{key} = 0"))) if key[0] in "\"'" else key
