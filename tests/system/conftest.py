"""Machines for the tests that run real programs on real mounts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from tests.system.machine import Machine


@pytest.fixture
def machines() -> Iterator[Callable[..., Machine]]:
    """Makes machines; all are closed, in reverse order, when the test ends."""
    with ExitStack() as stack:

        def make(store: str | None = None, **options: dict[str, str]) -> Machine:
            return stack.enter_context(Machine(store, **options))

        yield make


@pytest.fixture
def machine(machines: Callable[..., Machine]) -> Machine:
    return machines()


@pytest.fixture
def elsewhere(machine: Machine, machines: Callable[..., Machine]) -> Machine:
    """Another machine on the same store: empty caches, no working copies."""
    return machines(machine.store)
