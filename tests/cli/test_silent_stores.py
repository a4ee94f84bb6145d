"""Ctrl-C at a command whose store says nothing any more: it ends soon, and what it leaves is what a
command that was killed leaves."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

import pytest

from cowfs.blocking import Store, Volume
from tests.api.conftest import place
from tests.seaweedfs import SeaweedFS
from tests.silent_relay import SilentRelay

__all__ = ["place"]

pytestmark = pytest.mark.s3

Url = Callable[[int], str]
SILENT_AFTER_BYTES = 2 << 20
ENDED_S = 45  # a request that is not answered takes 60


@pytest.fixture
def contents(place: Path, seaweedfs: SeaweedFS, monkeypatch: pytest.MonkeyPatch) -> dict[str, bytes]:
    """Of a directory `tree`."""
    for name, value in seaweedfs.credentials.items():
        monkeypatch.setenv(name, value)
    made = {f"{number}": random.Random(number).randbytes(1 << 20) for number in range(6)}
    (place / "tree").mkdir()
    for name, data in made.items():
        (place / "tree" / name).write_bytes(data)
    return made


@pytest.fixture
def url(seaweedfs: SeaweedFS, place: Path) -> Url:
    """Of a place of this test's on the server, through a port."""
    name = os.urandom(6).hex()
    return lambda port: (
        f"s3://{seaweedfs.bucket};endpoint={quote(f'http://127.0.0.1:{port}', safe='')};region=us-east-1/{name}"
    )


def interrupt(relay: SilentRelay, *arguments: object, times: int = 1) -> None:
    """Runs the command, and interrupts it when it waits for the relay."""
    code, said = interrupted(relay, "from cowfs.cli.start import main; main()", *arguments, times=times)
    assert (code, said.count("cowfs: interrupted")) == (130, 1), said
    assert "Traceback" not in said


def interrupted(
    relay: SilentRelay, program: str, *arguments: object, times: int, pause_s: float = 0
) -> tuple[int, str]:
    """Exit code and stderr."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))}
    command = [sys.executable, "-c", program, *map(str, arguments)]
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as running:
        try:
            assert relay.has_swallowed.wait(120)
            for _ in range(times):
                time.sleep(pause_s)
                running.send_signal(signal.SIGINT)
            _, said = running.communicate(timeout=ENDED_S)
        finally:
            running.kill()
    return running.returncode, said


def test_a_mount_ends(url: Url, seaweedfs: SeaweedFS, contents: dict[str, bytes], place: Path) -> None:
    """Its requests are made side by side: not only the one that the main thread waits for ends."""
    with SilentRelay(seaweedfs.ports[0], silent_after_bytes=0) as relay:
        interrupt(relay, "mount", "data", place / "mnt", "--store", url(relay.port))


def test_a_command_ends_whose_helpers_wait(
    url: Url, seaweedfs: SeaweedFS, contents: dict[str, bytes], place: Path
) -> None:
    store = url(seaweedfs.ports[0])
    for name in ("one", "two", "three"):
        Store(store).import_(place / "tree", name)
    with SilentRelay(seaweedfs.ports[0], silent_after_bytes=60_000) as relay:
        interrupt(relay, "verify", "--store", url(relay.port))


def test_a_second_ctrl_c_ends_an_awaited_mount(url: Url, seaweedfs: SeaweedFS, contents: dict[str, bytes]) -> None:
    program = "import asyncio, cowfs, sys; asyncio.run(cowfs.Volume.new('data', store=sys.argv[1]).mount())"
    with SilentRelay(seaweedfs.ports[0], silent_after_bytes=0) as relay:
        code, said = interrupted(relay, program, url(relay.port), times=2, pause_s=2)  # two signals, not one
    assert (code, said.splitlines()[-1]) == (-signal.SIGINT, "KeyboardInterrupt"), said


@pytest.mark.parametrize("times", [1, 2])
def test_an_export_ends(contents: dict[str, bytes], url: Url, seaweedfs: SeaweedFS, place: Path, times: int) -> None:
    version = Store().import_(place / "tree", "data")
    with SilentRelay(seaweedfs.ports[0], silent_after_bytes=SILENT_AFTER_BYTES) as relay:
        interrupt(relay, "export", "data", url(relay.port), times=times)
    assert version.files.export(url(seaweedfs.ports[0])).files == len(contents)


def test_a_download_ends(contents: dict[str, bytes], url: Url, seaweedfs: SeaweedFS, place: Path) -> None:
    store = url(seaweedfs.ports[0])
    version = Store(store).import_(place / "tree", "data")
    with SilentRelay(seaweedfs.ports[0], silent_after_bytes=SILENT_AFTER_BYTES) as relay:
        interrupt(relay, "download", "data", place / "out", "--store", url(relay.port))
    version.files.download("/", place / "out")
    assert {each.name: each.read_bytes() for each in (place / "out").iterdir()} == contents


def test_an_upload_ends(contents: dict[str, bytes], url: Url, seaweedfs: SeaweedFS, place: Path) -> None:
    store = url(seaweedfs.ports[0])
    before = Store(store).import_(place / "tree" / "0", "data")
    with SilentRelay(seaweedfs.ports[0], silent_after_bytes=SILENT_AFTER_BYTES) as relay:
        interrupt(relay, "upload", place / "tree", "data", "--store", url(relay.port))
    volume = Volume.open("data", store=store)
    assert volume.history() == [before]
    volume.files.upload(place / "tree", "/")
    assert volume.files.download("/", place / "out").files == len(contents)
