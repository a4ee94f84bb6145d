"""Starts real mount daemons for tests, the way `volume` does, and makes sure that none outlives its
test.

A `Place` is a store with its own caches, working copies and registry; `Mount` is one daemon of it.
Everything is ended by pid and detached by path when the place is closed, whatever the test did.
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
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from cowfs import store as stores
from cowfs.base.errors import from_record
from cowfs.base.ids import VersionId
from cowfs.control import Client, MountOptions, MountSpec
from cowfs.control.typed import field_types
from cowfs.machine import registry
from cowfs.machine.processes import wait_gone
from cowfs.machine.registry import MountEntry
from cowfs.machine.working_copy import WorkingCopy
from cowfs.version.history import open_version
from cowfs.version.names import volumes
from tests import supervisors

ROOT = Path(__file__).parents[2]
WAIT_S = 60


class Mount:
    """One running daemon."""

    def __init__(self, process: subprocess.Popen[bytes], spec: MountSpec, ready: dict[str, Any]) -> None:
        self.process = process
        self.spec = spec
        self.ready = ready
        self.path = Path(spec.mount_path)

    def call(self, op: str, /, **arguments: Any) -> Any:
        """Of a commit, the answer and the stats of the version."""
        answer = Client(self.spec.socket, timeout_s=WAIT_S).call(op, **arguments)
        return {**answer, "stats": self._stats(answer["version"])} if op == "commit" else answer

    def _stats(self, version: str) -> dict[str, int]:
        with closing(stores.open_store(self.spec.store_url)) as store:
            stores.load_record(store)
            stats = open_version(store, VersionId.from_hex(version)).stats
        return {name: getattr(stats, name) for name in stats.__slots__}

    def commit(self, **arguments: Any) -> str:
        """The version's id."""
        return str(self.call("commit", **arguments)["version"])

    def unmount(self, *, commit: bool = False, force: bool = False, **words: Any) -> dict[str, Any]:
        """Asks the daemon, and waits for its clean end. commit: before that; words: what it
        says."""
        committed = self.call("commit", **words) if commit else {}
        left: dict[str, Any] = self.call("unmount", force=force)
        self.wait_clean_end()
        return {**left, **committed}

    def wait_clean_end(self) -> None:
        assert self.process.wait(WAIT_S) == 0, Path(self.spec.log).read_text()
        assert not is_mounted(self.path)

    def kill(self) -> None:
        """As a crash would: the mount stays in the table, disconnected."""
        self.process.kill()
        self.process.wait(WAIT_S)

    def log(self) -> str:
        return Path(self.spec.log).read_text()


class Place:
    """`environment` is what daemons started here get besides ours."""

    def __init__(self, store_url: str | None = None) -> None:
        self.root = Path(tempfile.mkdtemp(prefix=f"cowfs-test-{os.getpid()}-", dir=tempfile.gettempdir()))
        self.root.chmod(0o755)
        for name in ("run", "mnt", "c"):
            (self.root / name).mkdir(mode=0o700)
        (self.root / "mnt").chmod(0o755)
        self.store_url = store_url or (self.root / "store").as_uri()
        self.environment = {
            "COWFS_CACHE_DIR": str(self.root / "c"),
            "COWFS_STATE_DIR": str(self.root / "c" / "state"),
            "XDG_RUNTIME_DIR": str(self.root / "run"),
        }
        self._daemons: list[subprocess.Popen[bytes]] = []
        self.store = stores.open_store(self.store_url, create=True)
        self.record = stores.initialize(self.store)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def volume(self, name: str = "v") -> str:
        volumes.create_volume(self.store, name)
        return name

    def spec(self, volume: str = "v", version: str | None = None, **fields: Any) -> MountSpec:
        """A writable mount of the volume, or a read-only one of the version, with working defaults.
        fields: of the specification, or of its options."""
        registration = registry.new_id()
        copy = self.root / "c" / "state" / "working" / f"{self.record.store_id.hex()[:16]}-{volume}"
        defaults: dict[str, Any] = {
            "store_url": self.store_url,
            "volume": volume,
            "mode": "ro" if version else "rw",
            "source": volume if version is None else f"{volume}@{version}",
            "version": version,
            "mount_path": str(self.root / "mnt" / registration),
            "registration": registration,
            "socket": str(self.root / "run" / f"{registration}.sock"),
            "log": str(self.root / "run" / f"{registration}.log"),
            "working_copy": None if version else str(copy),
        }
        tuning = {name: fields.pop(name) for name in field_types(MountOptions) if name in fields}
        return MountSpec(**{**defaults, **fields}, options=self._options(tuning))

    def _options(self, tuning: dict[str, Any]) -> MountOptions:
        """What a test says counts as it is; the rest is as the environment says, for mounts of that
        kind."""
        kind = {name: tuning[name] for name in ("fast_lane", "fuse_fd") if name in tuning}
        usual = MountOptions(cache_dir=self.root / "c" / "cache", **kind).resolved()
        return replace(usual, **tuning)

    def start(self, spec: MountSpec, *, environment: dict[str, str] | None = None, **options: Any) -> Mount:
        """Starts a daemon and waits for its answer; raises the error it gives."""
        process = self.spawn(spec.to_json().encode(), environment=environment, log=Path(spec.log), **options)
        assert process.stdout is not None
        with process.stdout as answer:
            replies = (json.loads(line) for line in answer)
            reply: dict[str, Any] = next((reply for reply in replies if "progress" not in reply), {})
        if "error" in reply:
            assert process.wait(WAIT_S) == 1
            raise from_record(reply["error"])
        assert "ready" in reply, f"no answer; exit status {process.wait(WAIT_S)}; {Path(spec.log).read_text()}"
        return Mount(process, spec, reply["ready"])

    def mount(self, volume: str = "v", version: str | None = None, **fields: Any) -> Mount:
        return self.start(self.spec(volume, version, **fields))

    def spawn(
        self,
        specification: bytes,
        *,
        log: Path | None = None,
        environment: dict[str, str] | None = None,
        **options: Any,
    ) -> subprocess.Popen[bytes]:
        log = log or self.root / "run" / "daemon.log"
        with log.open("ab") as stderr:
            process = subprocess.Popen(
                [sys.executable, "-m", "cowfs.daemon"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": str(ROOT), **self.environment, **(environment or {})},
                start_new_session=True,
                **options,
            )
        self._daemons.append(process)
        assert process.stdin is not None
        process.stdin.write(specification)
        process.stdin.close()
        return process

    def working_copy(self, volume: str = "v") -> WorkingCopy:
        return WorkingCopy(Path(str(self.spec(volume).working_copy)))

    def daemon_of(self, mount: Mount) -> int:
        """The process that serves a supervised mount now."""
        entry_file = self.root / "c" / "state" / "mounts" / f"{mount.spec.registration}.json"
        deadline_s = time.monotonic() + WAIT_S
        while time.monotonic() < deadline_s:
            entry = MountEntry.from_json(entry_file.read_bytes())
            if entry is not None and entry.process.is_alive:
                return entry.pid
            time.sleep(0.02)
        raise AssertionError(f"no process serves {mount.path}")

    def unmount(self, mount: Mount) -> None:
        """A mount whose daemon is another one now."""
        pid = self.daemon_of(mount)
        mount.call("unmount", force=False)
        assert wait_gone(pid, WAIT_S)
        assert not is_mounted(mount.path)

    def registered(self) -> list[str]:
        """Mount paths in the registry. Entries of dead daemons stay until somebody lists mounts."""
        found = (
            MountEntry.from_json(path.read_bytes()) for path in (self.root / "c" / "state" / "mounts").glob("*.json")
        )
        return sorted(entry.mount_path for entry in found if entry is not None and entry.is_live)

    def close(self) -> None:
        supervisors.end(self.root / "run")
        for process in self._daemons:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
                if not wait_gone(process.pid, 10):
                    process.kill()
            process.wait(WAIT_S)
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()
        for path in mounted_below(self.root):
            subprocess.run(["umount", "-l", path], check=False, capture_output=True)
        self.store.close()
        shutil.rmtree(self.root, ignore_errors=True)


def mounted_below(root: Path) -> list[str]:
    """Mount points below root, innermost first, from the kernel's table: nothing is touched."""
    points = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text(errors="surrogateescape").splitlines()]
    return sorted((point for point in points if point.startswith(f"{root}/")), key=len, reverse=True)


def is_mounted(path: Path) -> bool:
    return str(path) in mounted_below(path.parent)
