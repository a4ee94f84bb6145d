"""Of several blocks that want a turn, one has it; the others are told whom they wait for, if it
takes long."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from cowfs.base import clock
from cowfs.machine import reservation

WATCHDOG_S = 60
OTHER = """
import sys
from cowfs.machine import reservation
with reservation.turn("volume", lambda: False, doing="mounts it"):
    print("mine", flush=True)
    sys.stdin.readline()
"""


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    tmp_path.chmod(0o700)


def is_needless() -> bool:
    return True


def never() -> bool:
    return False


def test_who_needs_no_turn_does_not_wait_and_has_none() -> None:
    with reservation.turn("volume", never, doing="mounts it") as is_ours:
        assert is_ours
        with reservation.turn("volume", is_needless, doing="mounts it") as is_ours:
            assert not is_ours
    with reservation.turn("volume", is_needless, doing="mounts it") as is_ours:
        assert is_ours


def waiting(count: int, until: threading.Event) -> None:
    """That many threads wait for their turn until the event is set; each looks a few times at
    least."""
    looks = threading.Semaphore(0)

    def look() -> bool:
        looks.release()
        return until.is_set()

    def wait() -> None:
        with reservation.turn("volume", look, doing="mounts it"):
            pass

    with ThreadPoolExecutor(count) as threads:
        done = [threads.submit(wait) for _ in range(count)]
        for _ in range(3 * count):
            assert looks.acquire(timeout=WATCHDOG_S)
        until.set()
        for each in done:
            each.result(WATCHDOG_S)


def test_a_process_is_told_once_whom_its_threads_wait_for(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(reservation, "PATIENCE_S", 0)
    with caplog.at_level(logging.WARNING), reservation.turn("volume", never, doing="mounts it"):
        waiting(4, threading.Event())
    assert [record.getMessage() for record in caplog.records] == [
        "another thread of this process mounts it; waiting for it"
    ]


def test_another_process_is_called_by_its_number(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(reservation, "PATIENCE_S", 0)
    with subprocess.Popen(
        [sys.executable, "-c", OTHER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "mine\n"
        with caplog.at_level(logging.WARNING):
            waiting(2, threading.Event())
        other.communicate("go\n", timeout=WATCHDOG_S)
    assert [record.getMessage() for record in caplog.records] == [
        f"process {other.pid} of yours mounts it; waiting for it"
    ]


def test_many_that_take_little_are_not_worth_a_word(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Each has its own time."""
    now, held = 0.0, list[float]()
    monkeypatch.setattr(clock, "monotonic_s", lambda: now)

    def look() -> bool:
        nonlocal now
        assert lock is not None
        now += reservation.PATIENCE_S * 0.9
        reservation._sign(lock, file)  # the next one has it
        held.append(now)
        return len(held) > 20

    file = reservation._file("volume", "turn")
    lock = reservation._try_lock(file)
    assert lock is not None
    with caplog.at_level(logging.WARNING), reservation.turn("volume", look, doing="mounts it") as is_ours:
        assert not is_ours
    reservation._unlock(lock)
    assert caplog.records == []
