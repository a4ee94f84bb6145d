"""The loop "not resident, load, retry" that completes an engine call on a thread that may block."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from cowfs.base.errors import CowfsError
from cowfs.native import NotResident
from cowfs.native.constants import LOADS_MAX

T = TypeVar("T")


def call_until_resident(call: Callable[[], T], load: Callable[[NotResident], None]) -> T:
    """Calls `call` until it succeeds; loads missing data with `load`. Blocks."""
    last: NotResident | None = None
    for _ in range(LOADS_MAX):
        try:
            return call()
        except NotResident as missing:
            last = missing
            load(missing)
    assert last is not None
    raise endless(last)


def endless(missing: NotResident) -> CowfsError:
    """The error for a call that is still not resident after LOADS_MAX attempts."""
    return CowfsError(
        f"{missing.what} of inode {missing.ino} is still not resident after {LOADS_MAX} loads",
        hint="Give the volume a larger cache; report this if it has one.",
    )
