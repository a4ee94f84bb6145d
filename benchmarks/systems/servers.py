"""FUSE servers of others: started in the foreground, waited for in the mount table, unmounted,
ended by process id.

Never looks at a path on the mount: only at the mount table and at the process.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from benchmarks.systems.contract import LeftOut, Session
from cowfs.base import clock
from cowfs.errors import CowfsError
from cowfs.machine import mount_table, mounting

START_TIMEOUT_S = 30.0
END_TIMEOUT_S = 30.0


def program(given: str | os.PathLike[str] | None, name: str, hint: str) -> Path:
    """The executable that was given or found. LeftOut when there is none."""
    found = shutil.which(os.fspath(given)) if given else shutil.which(name)
    if found is None:
        raise LeftOut(f"{given or name} is not installed; {hint}")
    return Path(found).absolute()


def output_of(*command: str | os.PathLike[str]) -> str:
    """What a command says, which must succeed. LeftOut otherwise."""
    try:
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise LeftOut(f"{command[0]} does not run: {error}") from error
    if done.returncode:
        raise LeftOut(f"{command[0]} failed: {(done.stderr or done.stdout).strip()[-300:]}")
    return done.stdout.strip()


class ServerSession(Session):
    """A server that mounts on `place`/mount, as its command says."""

    def __init__(self, place: Path, command: list[str]) -> None:
        self.root, self._log, self._command = place / "mount", place / "log", command
        self.root.mkdir()
        self._running = ExitStack()
        self._pid = 0

    def remount(self) -> None:
        self.end()
        self._pid = self._running.enter_context(_served(self._command, self.root, self._log))

    def end(self) -> None:
        self._running.close()

    def pids(self) -> list[int]:
        return list(processes_below(self._pid))


@contextmanager
def running(session: ServerSession) -> Iterator[Session]:
    try:
        session.remount()
        yield session
    finally:
        session.end()


@contextmanager
def _served(command: list[str], mount_point: Path, log: Path) -> Iterator[int]:
    """A server that mounts at mount_point; yields its process id once it is mounted. LeftOut when
    it does not start."""
    with log.open("ab") as output:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd="/")
    try:
        _await_mount(process, mount_point, log)
        yield process.pid
    finally:
        _end(process, mount_point)


def _await_mount(process: subprocess.Popen[bytes], mount_point: Path, log: Path) -> None:
    deadline_s = clock.monotonic_s() + START_TIMEOUT_S
    while mount_table.mount_at(str(mount_point)) is None:
        if process.poll() is not None or clock.monotonic_s() > deadline_s:
            lines = log.read_text(errors="replace").splitlines()
            raise LeftOut(f"{process.args!r:.100} does not mount: {lines[-1] if lines else 'it says nothing'}")
        clock.sleep_s(0.005)


def _end(process: subprocess.Popen[bytes], mount_point: Path) -> None:
    """Unmounts, and waits for the server to finish its work; whatever of it is left after
    END_TIMEOUT_S is killed."""
    everyone = list(processes_below(process.pid))
    unmount(mount_point)
    try:
        process.wait(END_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        for pid in everyone:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, 9)
        process.wait()
        unmount(mount_point)


def unmount(mount_point: Path) -> None:
    """Detaches what is mounted there, even if it is busy or hangs. The caller looks whether it is
    gone."""
    if mount := mount_table.mount_at(str(mount_point)):
        with contextlib.suppress(CowfsError):
            mounting.unmount(mount, lazy=True)


def processes_below(pid: int) -> Iterator[int]:
    """A process and its descendants."""
    yield pid
    try:
        children = [path.read_text().split() for path in Path(f"/proc/{pid}/task").glob("*/children")]
    except OSError:
        return
    for child in {int(each) for group in children for each in group}:
        yield from processes_below(child)
