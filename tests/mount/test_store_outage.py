"""A store that is gone for a while delays what a mount does; nothing fails, and nothing that ends a
mount waits for it.

The server is real, and killed. It comes back only after calls have been seen to wait longer than a
command would retry.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from cowfs.errors import UnavailableError
from tests.mount.daemons import ROOT, Mount, Place
from tests.seaweedfs import SeaweedFS

pytestmark = [pytest.mark.s3, pytest.mark.slow]

WATCHDOG_S = 180
OUTAGE_S = 12  # longer than the patience of old: 6 s


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SeaweedFS:
    server = SeaweedFS(tmp_path / "server")
    for name, value in server.credentials.items():
        monkeypatch.setenv(name, value)
    return server


@pytest.mark.parametrize("fast_lane", [True, False])
def test_a_commit_and_reads_wait_for_the_store(server: SeaweedFS, fast_lane: bool) -> None:
    content = random.Random(1).randbytes(3 << 20)
    with server, Place(server.store_url) as place, ThreadPoolExecutor() as pool:
        place.volume()
        first = place.mount()
        (first.path / "old").write_bytes(content)
        first.commit()
        first.unmount()
        mount = place.mount(fast_lane=fast_lane, cache_dir=str(place.root / "c" / "empty"))
        (mount.path / "new").write_bytes(content[::-1])
        server.kill()
        reading = pool.submit((mount.path / "old").read_bytes)
        committing = pool.submit(mount.commit)
        time.sleep(OUTAGE_S)
        assert not reading.done()
        assert not committing.done()
        server.start()
        assert reading.result() == content
        version = committing.result()
        mount.unmount()
        assert "waiting for the store" in mount.log()
        fresh = place.mount(version=version, cache_dir=str(place.root / "c" / "other"))
        assert (fresh.path / "new").read_bytes() == content[::-1]
        fresh.unmount()


def test_a_supervised_mount_goes_on_without_its_store(server: SeaweedFS) -> None:
    with server, Place(server.store_url) as place, ThreadPoolExecutor() as pool:
        place.volume()
        mount = place.mount(supervised=True)
        (mount.path / "old").write_bytes(b"committed")
        mount.commit()
        with (mount.path / "open").open("w+b", buffering=0) as file:
            file.write(b"before")
            server.kill()
            for _ in range(2):
                os.kill(place.daemon_of(mount), signal.SIGKILL)
                file.write(b", and after")
                assert sorted(os.listdir(mount.path)) == ["old", "open"]
                (mount.path / "new").write_bytes(b"written")
                (mount.path / "new").unlink()
            committing = pool.submit(mount.commit)
            server.start()
            version = committing.result()
            assert os.pread(file.fileno(), 100, 0) == b"before, and after, and after"
        place.unmount(mount)
        fresh = place.mount(version=version)
        assert (fresh.path / "open").read_bytes() == b"before, and after, and after"
        assert (fresh.path / "old").read_bytes() == b"committed"
        fresh.unmount()


def test_a_command_says_what_the_mount_waits_for(server: SeaweedFS) -> None:
    """Also one that comes when the mount has noticed already."""
    with server, Place(server.store_url) as place:
        place.volume()
        mount = place.mount(store_timeout=120.0)
        (mount.path / "new").write_bytes(b"kept")
        server.kill()
        said = [committing(place, mount), committing(place, mount)]
        for command in said:
            assert command.stderr is not None
            line = command.stderr.readline()
            assert "waiting for the store, for up to 120 s: " in line
            assert "does not answer" in line
        server.start()
        for command in said:
            out, errors = command.communicate(timeout=WATCHDOG_S)
            assert (command.returncode, out.startswith("cowfs+s3://")) == (0, True), errors
            assert errors.count("the store answers again") == 1
            assert "waiting for" not in errors
        mount.unmount()


def committing(place: Place, mount: Mount) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "cowfs.cli", "commit", str(mount.path)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **place.environment}
    return subprocess.Popen(
        command, env=environment, cwd=place.root, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def test_sigterm_ends_a_mount_whose_store_is_gone(server: SeaweedFS) -> None:
    """A commit under way is given up, and its work is kept."""
    with server, Place(server.store_url) as place:
        place.volume()
        mount = place.mount()
        (mount.path / "new").write_bytes(b"kept")
        server.kill()
        failed = threading.Event()

        def commit() -> None:
            with pytest.raises(UnavailableError):
                mount.commit()
            failed.set()

        thread = threading.Thread(target=commit)
        thread.start()
        time.sleep(1)
        assert not failed.is_set()
        os.kill(mount.process.pid, signal.SIGTERM)
        mount.wait_clean_end()
        assert failed.wait(60)
        thread.join()
        server.start()
        again = place.mount()
        assert (again.path / "new").read_bytes() == b"kept"
        again.unmount(commit=True)


def test_a_mount_says_how_long_it_waits(server: SeaweedFS) -> None:
    with server, Place(server.store_url) as place:
        place.volume()
        mount = place.mount(store_timeout=1.0)
        (mount.path / "new").write_bytes(b"kept")
        server.kill()
        with pytest.raises(UnavailableError, match="does not answer"):
            mount.commit()
        server.start()
        assert mount.commit()
        mount.unmount()
