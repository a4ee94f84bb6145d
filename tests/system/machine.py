"""One machine, as far as cowfs can tell: its own caches, working copies, sockets and home; stores
are shared.

Tests drive it through the command line, as a user would; "mount elsewhere" is a second `Machine` on
the same store. `close` ends what the test left: daemons by their pid, mounts by `umount -l`, then
the directories. Paths are short on purpose: a Unix socket's name has 107 bytes.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests import supervisors

COMMAND = str(Path(sys.executable).with_name("cowfs"))
ROOT = Path(__file__).parents[2]
LANES = ("COWFS_FAST_LANE", "COWFS_TRANSPORT")
"""What says which lane answers, and over what: the same tests run with each."""


class CommandFailed(AssertionError):
    """A command that should have succeeded did not; carries what it said."""

    def __init__(self, done: subprocess.CompletedProcess[str], log: str) -> None:
        super().__init__(f"{done.args} exited with {done.returncode}\n{done.stdout}\n{done.stderr}\n{log}")
        self.done = done


class Machine:
    def __init__(self, store: str | None = None, *, environment: Mapping[str, str] | None = None) -> None:
        self.root = Path(tempfile.mkdtemp(prefix=f"cowfs-test-{os.getpid()}-"))
        self.store = store or (self.root / "store").as_uri()
        for name in ("home", "run", "mnt", "local"):
            (self.root / name).mkdir(mode=0o700)
        self.root.chmod(0o755)
        (self.root / "mnt").chmod(0o755)
        inherited = {k: v for k, v in os.environ.items() if k in LANES or not k.startswith(("COWFS_", "XDG_"))}
        self.environment = {
            **inherited,
            "HOME": str(self.root / "home"),
            "XDG_RUNTIME_DIR": str(self.root / "run"),
            "COWFS_CACHE_DIR": str(self.root / "c"),
            "COWFS_STATE_DIR": str(self.root / "c" / "state"),
            "COWFS_STORE": self.store,
            **(environment or {}),
        }

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    # -- commands

    def cowfs(
        self,
        *arguments: str | Path,
        check: bool = True,
        timeout_s: float = 300,
        environment: Mapping[str, str] | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Runs `cowfs ARGUMENTS`; a failure raises CommandFailed unless check is off."""
        done = subprocess.run(
            [COMMAND, *map(str, arguments)],
            env={**self.environment, **(environment or {})},
            cwd=self.root,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout_s,
        )
        if check and done.returncode:
            raise CommandFailed(done, self.daemon_logs())
        return done

    def json(self, *arguments: str | Path) -> Any:
        return json.loads(self.cowfs(*arguments, "--json").stdout)

    def python(self, script: str, *arguments: str | Path) -> subprocess.Popen[str]:
        """Starts a Python program with the public API on this machine."""
        return subprocess.Popen(
            [sys.executable, "-c", script, *map(str, arguments)],
            env={**self.environment, "PYTHONPATH": str(ROOT)},
            cwd=self.root,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    # -- what tests do most

    def create(self, name: str) -> None:
        self.cowfs("create", name)

    def mount(self, source: str, *options: str | Path, at: str | None = None) -> Path:
        path = self.mount_point(at or source.rpartition("/")[2][:40])
        self.cowfs("mount", source, path, *options)
        return path

    def mount_point(self, name: str) -> Path:
        path = self.root / "mnt" / name
        with suppress(FileExistsError):  # a mount whose daemon was killed cannot be looked at
            os.mkdir(path)
        return path

    def commit(self, path: Path, message: str = "") -> str:
        """Commits and returns the locator."""
        return self.cowfs("commit", path, "-m", message).stdout.strip()

    def unmount(self, path: Path, *options: str) -> None:
        self.cowfs("unmount", path, *options)

    # -- daemons

    def mounts(self) -> list[dict[str, Any]]:
        """The registry of mounts, as the daemons wrote it."""
        found = []
        for path in sorted((self.root / "c" / "state" / "mounts").glob("*.json")):
            try:
                found.append(json.loads(path.read_bytes()))
            except (FileNotFoundError, ValueError):
                continue
        return found

    def daemon_pid(self, path: Path) -> int:
        pids = [
            entry["pid"] for entry in self.mounts() if entry["mount_path"] == str(path) and is_running(entry["pid"])
        ]
        assert pids, f"no daemon serves {path}: {self.mounts()}"
        return int(pids[-1])

    def kill_daemon(self, path: Path) -> None:
        """SIGKILL, and waits until the process is gone."""
        pid = self.daemon_pid(path)
        os.kill(pid, signal.SIGKILL)
        wait_until_gone(pid)

    def daemon_logs(self) -> str:
        logs = [path for path in self.root.glob("c/state/**/*.log") if path.parent.name != "journal"]
        return "\n".join(f"--- {log}\n{tail(log)}" for log in sorted(logs))

    def close(self) -> None:
        supervisors.end(self.root / "run")
        for entry in self.mounts():
            if is_running(entry["pid"]) and is_daemon(entry["pid"]):
                subprocess.run(
                    [COMMAND, "unmount", entry["mount_path"]], env=self.environment, capture_output=True, timeout=60
                )
        for entry in self.mounts():
            if is_running(entry["pid"]) and is_daemon(entry["pid"]):
                os.kill(entry["pid"], signal.SIGKILL)
                wait_until_gone(entry["pid"])
        for path in mounted_below(self.root):
            subprocess.run(["umount", "-l", path], capture_output=True)
        shutil.rmtree(self.root, ignore_errors=True)


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    except (FileNotFoundError, ProcessLookupError):
        return False


def is_daemon(pid: int) -> bool:
    """Whether the process is a mount daemon, so that a reused pid is left alone."""
    try:
        return b"cowfs" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return False


def wait_until_gone(pid: int, patience_s: float = 30) -> None:
    end = time.monotonic() + patience_s
    while is_running(pid):
        assert time.monotonic() < end, f"process {pid} does not end"
        time.sleep(0.005)


def mounted_below(root: Path) -> Iterator[str]:
    """Mount points below root, innermost first, from the kernel's table: nothing is touched."""
    points = [line.split()[4] for line in os.fsdecode(Path("/proc/self/mountinfo").read_bytes()).splitlines()]
    yield from sorted((p for p in points if p.startswith(f"{root}/")), key=len, reverse=True)


def tail(path: Path, lines: int = 60) -> str:
    return "\n".join(path.read_text(errors="replace").splitlines()[-lines:])


def as_nobody(action: Callable[[], object]) -> int:
    """Does it in a child process without privileges; 0, or the error number it failed with."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    code = 255
    try:
        os.setgroups([])
        os.setgid(65_534)
        os.setuid(65_534)
        action()
        code = 0
    except OSError as error:
        code = error.errno or 255
    finally:
        os._exit(code)
