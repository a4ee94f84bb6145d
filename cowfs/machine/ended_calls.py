"""Tells whether an object can still be used, or is only left over in the frames of ended calls.

An exception keeps its traceback, the traceback the frames of the calls that it has ended, and the
frames their local variables. So a task that is retried leaves the objects of its failed attempts
behind as long as their exceptions exist, although none of their code runs any more.

`is_left_over` follows references backwards, with `gc.get_referrers`. The collector does not see the
frames of running calls and suspended generators, so a reference from an unknown place counts as a
use. So does every unclear case: the answer is True only if every reference leads to the frame of an
ended call. Each object on the way costs a walk over all objects of the process, so ask rarely.
"""

from __future__ import annotations

import gc
import sys
from types import FrameType
from typing import Any
from weakref import ref

MOST = 100
"""The most objects on the way; an object referred to by more counts as in use."""


def is_left_over(object_: ref[Any]) -> bool:
    if (first := object_()) is None:
        return True
    found = [first]
    del first
    for each in found:
        known, above = _references(each, found)
        if sys.getrefcount(each) - _own > known or len(found) + len(above) > MOST:
            return False
        new = [one for one in above if id(one) not in {id(other) for other in found}]
        found += new
        del above, new
    return True


def _references(each: object, found: list[object]) -> tuple[int, list[object]]:
    """How many references to `each` the collector knows, and the objects that hold them, except
    frames of ended calls and `found`."""
    known, above = 0, []
    for holder in gc.get_referrers(each):
        for one in gc.get_referents(holder):  # a loop, since a generator's cell would refer to `each`, too
            known += one is each
        if not isinstance(holder, FrameType) and holder is not found:
            above.append(holder)
    return known, above


def _own_references() -> int:
    """The number of references that the loop in `is_left_over` itself holds, without the list's."""
    return next(sys.getrefcount(each) - 1 for each in [object()])


_own = _own_references()
