"""A mount goes on where a part of the machine fails for a moment: threads that cannot be had, a
disk that does not sync."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.mount.daemons import Mount, Place
from tests.mount.preload import BLOCKED_SYNC, NO_THREADS, Switch

pytestmark = pytest.mark.mount

WAIT_S = 120
MIB = 1 << 20
OVERDUE_BYTES = 640 * MIB
"""More than two paces of reclaiming (native/engine/src/disk/reclaim.rs): the pass that is due then
waits for a sync."""


def run(code: str, *arguments: object) -> subprocess.Popen[bytes]:
    """Another process, so that nothing of this one hangs with it."""
    return subprocess.Popen([sys.executable, "-S", "-c", code, *map(str, arguments)], stdout=subprocess.PIPE)


@pytest.mark.parametrize("fast_lane", [True, False])
def test_misses_are_served_while_and_after_no_thread_can_be_had(place: Place, fast_lane: bool) -> None:
    contents = {name: os.urandom(400_000) for name in "abc"}
    writer = place.mount("v")
    for name, data in contents.items():
        (writer.path / name).mkdir()
        (writer.path / name / "f").write_bytes(data)
    version = writer.unmount(commit=True)["version"]
    switch = Switch(NO_THREADS, place.root / "run")
    spec = place.spec("v", version=version, cache_dir=str(place.root / "c" / "empty"), fast_lane=fast_lane)
    mount = place.start(spec, environment=switch.environment)
    switch.on()
    for _ in range(3):
        listing = run("import os, sys; os.listdir(sys.argv[1])", mount.path)
        listing.communicate(timeout=WAIT_S)  # whether it gets an error or not, it ends
    switch.off()
    for name, data in contents.items():
        reading = run("import sys; sys.stdout.buffer.write(open(sys.argv[1], 'rb').read())", mount.path / name / "f")
        assert reading.communicate(timeout=WAIT_S)[0] == data
    assert mount.call("status")["abandoned_loads"] == 0
    mount.unmount()


def overwrite(path: Path, total_bytes: int, done: threading.Event) -> None:
    """Overwrites an fsynced file, so that what is reclaimed had been promised."""
    block = os.urandom(MIB)
    fd = os.open(path, os.O_CREAT | os.O_WRONLY)
    for at in range(0, total_bytes, MIB):
        os.pwrite(fd, block, at % (64 * MIB))
        if at == 63 * MIB:
            os.fsync(fd)
            done.set()
    os.close(fd)


@pytest.mark.slow
@pytest.mark.parametrize("fast_lane", [True, False])
def test_names_are_answered_while_a_sync_of_staging_does_not_return(place: Place, fast_lane: bool) -> None:
    """Two writers run into the bound of staging, behind a reclaim pass that waits for the disk:
    they wait, nobody else."""
    switch = Switch(BLOCKED_SYNC, place.root / "run")
    mount = place.start(place.spec(fast_lane=fast_lane), environment=switch.environment)
    (mount.path / "d").mkdir()
    synced = [threading.Event() for _ in range(2)]
    writers = [
        threading.Thread(target=overwrite, args=(mount.path / f"big{n}", OVERDUE_BYTES, event))
        for n, event in enumerate(synced)
    ]
    for writer in writers:
        writer.start()
    for event in synced:
        assert event.wait(WAIT_S)
    switch.on()
    try:
        wait_for(lambda: switch.is_reached)
        wait_for(lambda: written(mount) == written(mount, pause_s=0.5))
        for number in range(100):
            (mount.path / "d" / str(number)).touch()
            assert not (mount.path / "d" / f"absent-{number}").exists()
        assert len(os.listdir(mount.path / "d")) == 100
        assert all(writer.is_alive() for writer in writers), "they wait for the disk"
    finally:
        switch.off()
    for writer in writers:
        writer.join(WAIT_S)
        assert not writer.is_alive()
    mount.unmount()


def written(mount: Mount, pause_s: float = 0) -> int:
    """What the working copy's segments hold."""
    time.sleep(pause_s)
    segments = (Path(str(mount.spec.working_copy)) / "staging").glob("*.seg")
    return sum(entry.stat().st_size for entry in segments)


def test_a_mount_waits_for_the_end_of_the_last_one(place: Place) -> None:
    """Unmounted by `umount`, which does not wait for the daemon; a slow disk keeps that from
    ending."""
    switch = Switch(BLOCKED_SYNC, place.root / "run")
    first = place.start(place.spec(), environment=switch.environment)
    (first.path / "f").write_bytes(b"kept")
    switch.on()
    try:
        subprocess.run(["umount", first.path], check=True)
        wait_for(lambda: switch.is_reached)
        with ThreadPoolExecutor() as threads:
            second = threads.submit(place.mount, "v")
            with contextlib.suppress(TimeoutError):
                second.result(3)
            switch.off()
            assert (second.result(WAIT_S).path / "f").read_bytes() == b"kept"
    finally:
        switch.off()
    first.wait_clean_end()


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)
