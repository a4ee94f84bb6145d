"""The loop "not resident, load, again": how a call to the engine is answered by whoever may
block."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from cowfs.errors import CowfsError
from cowfs.native import NotResident
from cowfs.native.constants import LOADS_MAX

T = TypeVar("T")


def answered(call: Callable[[], T], load: Callable[[NotResident], None]) -> T:
    """The result of `call`, which is repeated as long as it needs something that `load` can bring.
    Blocks."""
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
    """The error of a call that was made LOADS_MAX times and still needs something."""
    return CowfsError(
        f"{missing.what} of inode {missing.ino} is still not resident after {LOADS_MAX} loads",
        hint="Give the volume a larger cache; report this if it has one.",
    )
