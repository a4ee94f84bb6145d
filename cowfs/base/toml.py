"""Reads TOML that others may have written, with bounded work.

`tomllib` needs time and memory that grow with the square of the parts of a dotted key: 32 kB of
`a.a.a…` take 1 GiB. So keys with more than `MOST_PARTS` parts are refused before it parses. The
scan steps over strings and comments as the parser does; from the first error of syntax on it may
see other tokens than the parser, which stops there. Callers bound the length of the text.
"""

from __future__ import annotations

import re
import tomllib
from typing import Any

MOST_PARTS = 16

_BASIC = r'"(?:[^"\\\n]|\\.)*+"?'
_LITERAL = r"'[^'\n]*+'?"
_PART = rf"(?:[A-Za-z0-9_-]++|{_BASIC}|{_LITERAL})"
_DOT = r"[ \t]*+\.[ \t]*+"
_TOKEN = re.compile(
    r"#[^\n]*+"
    r'|"""(?:[^"\\]|\\[\s\S]|""?(?!"))*+(?:"{3,5}|\Z)'
    r"|'''(?:[^']|''?(?!'))*+(?:'{3,5}|\Z)"
    rf"|{_PART}(?:{_DOT}{_PART}){{0,{MOST_PARTS - 1}}}+(?P<dot>{_DOT})?"
)


def parse(text: str) -> dict[str, Any]:
    """ValueError: not TOML, a key has too many parts, or values are nested too deeply."""
    for token in _TOKEN.finditer(text):
        if token["dot"]:
            line = text.count("\n", 0, token.start()) + 1
            raise ValueError(f"line {line}: a key of more than {MOST_PARTS} parts")
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ValueError("values are nested too deeply") from None
    except OverflowError as error:
        raise ValueError(str(error)) from None
