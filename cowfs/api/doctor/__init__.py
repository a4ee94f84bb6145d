"""Checks the requirements of cowfs on this machine and in a store. Each check gives ok, warn or
fail, and advice.

    fail    cowfs cannot work as requested
    warn    it works, but slower or for fewer users

The checks leave nothing behind: files written to try a place out are deleted again. They initialise
no store.
"""

from __future__ import annotations

from collections.abc import Iterator

from cowfs.api.doctor import hyperstack, machine, store_checks, task_systems
from cowfs.api.doctor.check import FAIL, OK, WARN, Check

__all__ = ["FAIL", "OK", "WARN", "Check", "run"]


def run(store_url: str | None = None) -> Iterator[Check]:
    """Yields each check when it is done, one after the other. store_url None: the default store."""
    checks = *machine.all_of(), *task_systems.all_of(), *store_checks.all_of(store_url), *hyperstack.checks()
    for check in checks:
        yield check()
