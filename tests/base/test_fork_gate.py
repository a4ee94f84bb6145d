"""Forks wait for threads that are within, and for no others."""

from __future__ import annotations

import threading

import pytest

from cowfs.base import fork_gate
from cowfs.base.fork_gate import ForkGate

pytestmark = pytest.mark.quick

WATCHDOG_S = 60


def test_a_fork_waits_until_nobody_is_within_and_nobody_comes_meanwhile() -> None:
    gate, reads, goes_on, closed, came = ForkGate(), *(threading.Event() for _ in range(4))

    def query() -> None:
        with gate, gate:
            with gate.outside():
                reads.set()
                assert goes_on.wait(WATCHDOG_S)
        came.set()

    def fork() -> None:
        gate.close()
        closed.set()

    reader = threading.Thread(target=query)
    reader.start()
    assert reads.wait(WATCHDOG_S)
    fork()  # it is outside, whatever it waits for
    assert closed.is_set()
    goes_on.set()
    gate.close()  # of another thread, at the same time
    gate.open()
    assert not came.is_set(), "one fork is not over yet"
    gate.open()
    reader.join(WATCHDOG_S)
    assert came.is_set()


def test_a_child_begins_with_nobody_within(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fork_gate, "LONGEST_S", 0.1)
    gate = ForkGate()
    threading.Thread(target=gate.__enter__).start()
    gate.close()
    gate.forget()
    with gate:
        gate.close()
        gate.open()
