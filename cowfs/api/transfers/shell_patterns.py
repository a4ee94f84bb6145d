"""Patterns as the shell has them for one name: `*`, `?`, `[…]`, and `\\` before a character that
stands for itself. Matched by the C library's fnmatch(3), as `find -name` does.

A character is one of the locale's (LC_CTYPE), so that `?` is one letter of a UTF-8 name; a name
that is not text in it is matched byte by byte. A leading dot is a character like any other. An
unfinished `[` stands for itself.
"""

from __future__ import annotations

import ctypes
import os
import re

_fnmatch = ctypes.CDLL(None).fnmatch
_fnmatch.argtypes = [ctypes.c_char_p, ctypes.c_char_p, ctypes.c_int]
_fnmatch.restype = ctypes.c_int

_WILDCARDS = re.compile(rb"[*?\[\\]")


def has_wildcards(path: bytes) -> bool:
    """Whether it is more than a name: a backslash counts, as it makes other characters literal."""
    return _WILDCARDS.search(path) is not None


def matches(name: str | bytes, pattern: str | bytes) -> bool:
    text, wanted = os.fsencode(name), os.fsencode(pattern)
    if b"\0" in wanted:  # no name has one, and C would stop there
        return False
    return bool(_fnmatch(wanted, text, 0) == 0)
