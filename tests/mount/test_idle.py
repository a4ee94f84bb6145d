"""A mount that nobody uses leaves the processor asleep, and its end waits for no pause."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from cowfs.session.keeper import Keeper
from cowfs.session.session import Session
from tests.engine.volumes import fresh_engine
from tests.mount.daemons import Mount

WATCHED_S = 10
MOST_WAKEUPS = 45
WATCHDOG_S = 30


def wakeups(pid: int) -> int:
    """How often the threads of a process have gone to sleep."""
    total = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        for line in (task / "status").read_text().splitlines():
            if line.startswith("voluntary_ctxt_switches:"):
                total += int(line.split()[1])
    return total


@pytest.mark.mount
def test_an_idle_mount_hardly_wakes(mount: Mount) -> None:
    """A thread that looked at something every second, of which there were three, would exceed
    this."""
    (mount.path / "file").write_bytes(b"x")
    mount.commit()
    time.sleep(5)  # what it does after a change
    before = wakeups(mount.process.pid)
    time.sleep(WATCHED_S)
    assert wakeups(mount.process.pid) - before <= MOST_WAKEUPS


def test_the_end_waits_for_no_pause(tmp_path: Path) -> None:
    """All threads of upkeep end when they are told to, whatever they wait for."""
    engine = fresh_engine(tmp_path)
    session = SimpleNamespace(
        engine=engine,
        spec=SimpleNamespace(options=SimpleNamespace(resident=False)),
        writer=None,
        recorder=None,
        replayer=None,
    )
    keeper = Keeper(cast("Session", session))
    ended = threading.Event()
    keeper._run("reclaim", keeper._reclaim, 0.0)
    keeper._run("evict", keeper._evict, 0.0, rests=True)
    keeper._run("checkpoint", keeper._checkpoint, 0.0, rests=True)

    def stop() -> None:
        keeper.stop()
        ended.set()

    assert all(thread.is_alive() for thread in keeper._threads)
    threading.Thread(target=stop, daemon=True).start()
    assert ended.wait(WATCHDOG_S)
    assert not any(thread.is_alive() for thread in keeper._threads)
    engine.close()
