"""mount(wait=…): waits for another writer to end, or for its lease to run out."""

from __future__ import annotations

import asyncio
import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import cowfs
from cowfs import Progress
from cowfs import store as stores
from cowfs.api.mounts import launch
from cowfs.blocking import ROVolume, Volume
from cowfs.errors import InvalidInputError, LeaseHeldError
from cowfs.store.refs import leases
from cowfs.store.refs.holder import current_holder
from tests.api.conftest import place
from tests.api.test_volumes_live import another_machine

__all__ = ["place"]

pytestmark = pytest.mark.mount

WAIT_S = 60
MOUNTS = """
with Volume.open("data") as volume:
    (volume / "file").write_text("theirs")
    print("ready", flush=True)
    sys.stdin.readline()
"""
WRITES = """
volume = Volume.open("data")
volume.files.write("file", b"theirs")
print("ready", flush=True)
sys.stdin.readline()
volume.commit("theirs")
"""


@pytest.fixture
def version(place: Path) -> ROVolume:
    with Volume.new("data") as volume:
        (volume / "file").write_text("one")
        return volume.finalize("one")


@contextmanager
def other_writer(code: str, variables: dict[str, str]) -> Iterator[subprocess.Popen[str]]:
    """A program that has the volume until it gets a line."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **variables}
    prelude = "import sys\nfrom cowfs.blocking import Volume\n"
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [sys.executable, "-c", prelude + code], env=environment, stdin=pipe, stdout=pipe, text=True
    ) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == "ready\n"
        try:
            yield program
        finally:
            program.communicate("\n", timeout=WAIT_S)
            assert program.returncode == 0


def let_end(program: subprocess.Popen[str], after_s: float) -> threading.Timer:
    def tell() -> None:
        assert program.stdin is not None
        program.stdin.write("\n")
        program.stdin.flush()

    timer = threading.Timer(after_s, tell)
    timer.start()
    return timer


@pytest.mark.parametrize("is_here", [False, True])
def test_a_mount_waits_for_the_writer(
    version: ROVolume, place: Path, caplog: pytest.LogCaptureFixture, *, is_here: bool
) -> None:
    """here: another process of this machine, without a mount that could be shared."""
    heard: list[Progress] = []
    with other_writer(WRITES if is_here else MOUNTS, {} if is_here else another_machine(place)) as other:
        timer = let_end(other, 1.5)
        with caplog.at_level(logging.WARNING):
            volume = Volume.open("data")
            path = volume.mount(wait=WAIT_S, progress=heard.append)
        timer.join()
    assert (path / "file").read_text() == "theirs"
    assert [each.stage for each in heard][:1] == ["wait"]
    said = [each.getMessage() for each in caplog.records if "waiting for it to end, 60 s at most" in each.getMessage()]
    assert len(said) == 1
    volume.unmount()


def test_the_wait_ends_in_time_and_asks_seldom(version: ROVolume, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[float] = []
    starts: list[float] = []
    read_beat, start = leases.read_beat, launch.start

    def look(*given: Any) -> Any:
        looks.append(time.monotonic())
        return read_beat(*given)

    def started(*given: Any, **named: Any) -> Any:
        starts.append(time.monotonic())
        return start(*given, **named)

    with other_writer(MOUNTS, another_machine(place)):
        with pytest.raises(LeaseHeldError) as caught:
            Volume.open("data").mount()
        assert "waited" not in caught.value.message
        monkeypatch.setattr(leases, "read_beat", look)
        monkeypatch.setattr(launch, "start", started)
        began_s = time.monotonic()
        with pytest.raises(LeaseHeldError, match=r"is being written by .* at .*; waited [0-9]+ s for it") as caught:
            Volume.open("data").mount(wait="4s")
        assert time.monotonic() - began_s >= 4
        assert caught.value.details["waited_s"] >= 4
        assert caught.value.details["who"]
        assert "take_over=True" in caught.value.hint
    assert len(starts) == 2, "one attempt at each end"
    assert len(looks) <= 12, "some of them belong to the attempts"


def test_a_lease_that_runs_out_ends_the_wait(version: ROVolume, place: Path) -> None:
    """Its holder, on a machine that nothing here can see, died without releasing it."""
    store = stores.open_store((place / "store").as_uri())
    stores.load_record(store)
    gone = replace(current_holder("/mnt/there"), host="there", machine_id="there", boot_id="there")
    lease = leases.acquire(store, "data", gone)
    lease.renew()
    store.close()
    (beat,) = sorted((place / "store" / "volumes" / "data" / "heartbeat").iterdir())[:1]
    left_s = 6
    then_s = time.time() - leases.EXPIRY_S + left_s
    os.utime(beat, (then_s, then_s))
    with pytest.raises(LeaseHeldError, match="there"):
        Volume.open("data").mount()
    began_s = time.monotonic()
    volume = Volume.open("data")
    volume.mount(wait="150s")
    assert time.monotonic() - began_s < leases.EXPIRY_S
    volume.unmount()


def test_a_cancelled_mount_does_not_wait(version: ROVolume, place: Path) -> None:
    async def cancelled() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(cowfs.Volume.open("data").mount(wait=2 * WAIT_S), 4)

    with other_writer(MOUNTS, another_machine(place)):
        began_s = time.monotonic()
        asyncio.run(cancelled())
        assert time.monotonic() - began_s < WAIT_S


@pytest.mark.parametrize("wait", ["soon", "1.5x", -1, True, float("nan")])
def test_a_wrong_wait_is_refused(place: Path, wait: Any) -> None:
    with pytest.raises(InvalidInputError, match="wait is"):
        Volume.new("data").mount(wait=wait)


def test_the_command_waits_too(version: ROVolume, place: Path) -> None:
    command = [str(Path(sys.executable).with_name("cowfs")), "mount", "data", str(place / "mnt" / "data")]

    def run(*options: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*command, *options], capture_output=True, text=True, timeout=2 * WAIT_S, check=False)

    with other_writer(MOUNTS, another_machine(place)) as other:
        refused = run("--wait", "1s")
        assert refused.returncode == LeaseHeldError.exit_code
        assert "; waited" in refused.stderr
        timer = let_end(other, 1)
        done = run("--wait", "60")
        timer.join()
    assert done.returncode == 0, done.stderr
    assert "waiting for it to end" in done.stderr
    assert run("--wait", "1s", "--read-only").returncode == InvalidInputError.exit_code
