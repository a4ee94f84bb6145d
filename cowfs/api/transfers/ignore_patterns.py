"""Patterns as in `.gitignore`, with git's rules: the last pattern that matches an entry decides,
`!` reverses it, and the contents of an ignored directory cannot be included again.

Each pattern is one line of such a file. As in git no line is an error: a lone backslash matches
nothing, empty lines and comments are skipped. The matcher is gitoxide's port of git's
(`native/python/src/ignoring.rs`); `tests/api/test_ignore_patterns.py` compares the two.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable

from cowfs.base.errors import InvalidInputError


def excluding(patterns: Iterable[str | bytes]) -> Callable[[bytes], bool]:
    """A predicate for excluded entries. It takes a relative path, with a "/" at the end for a
    directory. It does not check the directories above: the caller does not enter an excluded one.

    InvalidInputError: a pattern is not a single line.
    """
    given = [patterns] if isinstance(patterns, str | bytes) else list(patterns)
    if not given:
        from cowfs.transfer.upload.upload_plan import nothing_excluded

        return nothing_excluded
    from cowfs.native.local import IgnorePatterns

    found = IgnorePatterns([_as_line(each) for each in given])
    return lambda path: found.ignores(path.removesuffix(b"/"), path.endswith(b"/"))


def _as_line(pattern: str | bytes) -> bytes:
    if not isinstance(pattern, str | bytes):
        raise InvalidInputError(f"{pattern!r} is not a pattern", hint="Give texts, with patterns as in .gitignore.")
    line = os.fsencode(pattern)
    if b"\n" in line:
        raise InvalidInputError(f"the pattern {pattern!r} has several lines", hint="Give each line as a pattern.")
    return line
