"""What a child that was just forked makes anew: a thread that it does not have may hold a lock, be
sending a request, or have taken a turn.

Data loaders fork programs that have stores open. `Identity` sees to itself.
"""

from __future__ import annotations

import os
from typing import Protocol
from weakref import WeakSet


class Renewed(Protocol):
    def reset_after_fork(self) -> None:
        """Called in the child, before anything else runs there."""
        ...


_renewed: WeakSet[Renewed] = WeakSet()


def register(each: Renewed) -> None:
    """For as long as it lives."""
    _renewed.add(each)


def _reset_all() -> None:
    for each in list(_renewed):
        each.reset_after_fork()


os.register_at_fork(after_in_child=_reset_all)
