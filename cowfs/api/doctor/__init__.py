"""Checks of what cowfs needs on this machine and of a store, each with ok, warn or fail and what to
do.

    fail    cowfs cannot work as asked
    warn    it works, but slower or for fewer users

Leaves nothing behind: what it writes to try a place out it deletes again. It initialises no store.
"""

from __future__ import annotations

from collections.abc import Iterator

from cowfs.api.doctor import hyperstack, machine, store
from cowfs.api.doctor.check import FAIL, OK, WARN, Check

__all__ = ["FAIL", "OK", "WARN", "Check", "run"]


def run(store_url: str | None = None) -> Iterator[Check]:
    """Every check, one after the other, as each is done. store_url None: the default store."""
    for check in (*machine.all_of(), *store.all_of(store_url), *hyperstack.checks()):
        yield check()
