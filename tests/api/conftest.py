"""A machine of its own for tests that mount: home, caches, sockets and store below one directory,
nothing left behind."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from blake3 import blake3

from cowfs.api.access import file_session
from cowfs.machine import registry
from cowfs.machine.processes import wait_gone


def half_written(name: str) -> list[str]:
    """What copies call a file of the name while they write it; also those of older versions of
    cowfs."""
    known = blake3(name.encode()).hexdigest(8)
    return [f".cowfs-{each}" for before in ("", "part-") for each in (f"{before}{known}-{16 * '0'}", before + 16 * "0")]


def killed(point: str, program: str) -> None:
    """Runs the program, which is killed at that failpoint (`NAME` or `NAME:COUNT`)."""
    program = f"from cowfs.blocking import Volume\n{program}"
    environ = {**os.environ, "COWFS_FAILPOINT": point}
    done = subprocess.run([sys.executable, "-c", program], env=environ, check=False, timeout=120)
    assert done.returncode == -signal.SIGKILL


def end_all() -> None:
    """Ends every daemon of this machine by its pid; a daemon told to terminate unmounts. A copy has
    none."""
    for entry in (each for each in registry.list_mounts() if each.has_daemon):
        with contextlib.suppress(ProcessLookupError):  # some end by themselves, when their last user has gone
            os.kill(entry.pid, signal.SIGTERM)
            if not wait_gone(entry.pid, 60):
                os.kill(entry.pid, signal.SIGKILL)
                wait_gone(entry.pid, 60)


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    yield from machine(monkeypatch)


def machine(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Short, because a socket's name has 107 bytes; named so that the session check finds mounts
    left below it."""
    root = Path(tempfile.mkdtemp(prefix=f"cowfs-test-{os.getpid()}-"))
    for name in ("home", "run", "mnt"):
        (root / name).mkdir(mode=0o700)
    enter(root, monkeypatch)
    try:
        yield root
    finally:
        enter(root, monkeypatch)  # the test may have left it, and must end nobody else's mounts
        file_session._end_all()
        end_all()
        leave(root)


def enter(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(root / "home"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(root / "run"))
    monkeypatch.setenv("COWFS_CACHE_DIR", str(root / "c"))
    monkeypatch.setenv("COWFS_STATE_DIR", str(root / "c" / "state"))
    monkeypatch.setenv("COWFS_STORE", (root / "store").as_uri())
    for variable in ("COWFS_AUTHOR", "COWFS_PRODUCED_BY", "COWFS_RESIDENT"):
        monkeypatch.delenv(variable, raising=False)


def leave(root: Path) -> None:
    table = Path("/proc/self/mountinfo").read_text(errors="surrogateescape")
    left = [line.split()[4] for line in table.splitlines() if line.split()[4].startswith(f"{root}/")]
    for path in reversed(left):  # innermost first; so that one failure is not followed by others
        subprocess.run(["umount", "-l", path], check=True)
    shutil.rmtree(root)
    assert not left, f"mounts left behind: {left}"
