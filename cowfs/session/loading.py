"""The loop "not resident, load, again": how a call to the engine is answered by whoever may block."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from cowfs.errors import CowfsError
from cowfs.native import NotResident

T = TypeVar("T")

LOAD_ROUNDS = 64
"""A path component, a directory, contents, then chunks that push each other out of a small cache: a handful is usual."""


def answered(call: Callable[[], T], load: Callable[[NotResident], None]) -> T:
    """The result of `call`, which is repeated as long as it needs something that `load` can bring. Blocks."""
    last: NotResident | None = None
    for _ in range(LOAD_ROUNDS):
        try:
            return call()
        except NotResident as missing:
            last = missing
            load(missing)
    assert last is not None
    raise endless(last)


def endless(missing: NotResident) -> CowfsError:
    """The error of a call that was made LOAD_ROUNDS times and still needs something."""
    return CowfsError(
        f"{missing.what} of inode {missing.ino} is still not resident after {LOAD_ROUNDS} loads",
        hint="Give the volume a larger cache; report this if it has one.",
    )
