"""What a daemon takes: a read-only mount lives in 192 MB, whatever eight readers want of it at
once and however slow the disk of its cache is, and in the 128 MB of a container that has no more;
no mount takes more for a tree that is walked than its budget for names.
"""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import random
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.disk.faulty_disk import FaultyDisk
from tests.mount.daemons import ROOT, WAIT_S, Mount, Place
from tests.seaweedfs import SeaweedFS

pytestmark = pytest.mark.mount
FILES = 600
LARGE = 4
LARGE_BYTES = 48 << 20
READERS = 8
LIMIT_BYTES = 192 << 20
GROUP_BYTES = 128 << 20
GROUPS = Path("/sys/fs/cgroup")
DIRECTORIES, PER_DIRECTORY = 150, 1000
NAMES_BYTES = 4 << 20
"""In place of 192 MiB: some 30,000 clean files."""
NAMES_KEPT = 60_000


@pytest.fixture(params=["directory", "s3"])
def place(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    """A place with one volume, "v", in a directory or on an S3 server."""
    url: str | None = None
    if request.param == "s3":
        server: SeaweedFS = request.getfixturevalue("seaweedfs")
        for name, value in server.credentials.items():
            monkeypatch.setenv(name, value)
        url = f"{server.store_url}/{os.urandom(6).hex()}"
    with Place(url) as place:
        place.volume("v")
        yield place


def fill(path: Path) -> int:
    """Small files and large ones; returns their bytes."""
    rnd, total = random.Random(8), 0
    for number in range(FILES):
        folder = path / f"d{number // 100}"
        folder.mkdir(exist_ok=True)
        total += (folder / f"f{number}").write_bytes(rnd.randbytes(rnd.choice((2_000, 20_000, 100_000, 600_000))))
    for number in range(LARGE):
        with (path / f"large{number}").open("wb") as file:
            for _ in range(LARGE_BYTES >> 20):
                total += file.write(rnd.randbytes(1 << 20))
    return total


def read(paths: list[Path]) -> int:
    total = 0
    for path in paths:
        with path.open("rb") as file:
            while data := file.read(1 << 20):
                total += len(data)
    return total


def highest_bytes(mount: Mount) -> int:
    """The most memory that the daemon has had resident, its program's pages counted in."""
    status = Path(f"/proc/{mount.process.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in status if line.startswith("VmHWM:"))


@pytest.mark.parametrize("delay_ms", [0, pytest.param(100, marks=pytest.mark.slow)])
def test_a_cold_read_only_mount_with_eight_readers_lives_in_192_mb(place: Place, delay_ms: int) -> None:
    disk = FaultyDisk(place.root)
    place.environment |= disk.environment
    mount = place.mount("v")
    total = fill(mount.path)
    version = mount.commit()
    mount.unmount()
    disk.set(delay_ms=delay_ms)
    reader = place.mount("v", version=version, cache_dir=str(place.root / "cold"))
    paths = sorted(path for path in reader.path.rglob("*") if path.is_file())
    with multiprocessing.get_context("spawn").Pool(READERS) as pool:
        assert sum(pool.map(read, [paths[n::READERS] for n in range(READERS)], chunksize=1)) == total
    assert highest_bytes(reader) < LIMIT_BYTES
    reader.unmount()


def described(paths: list[Path]) -> dict[str, str]:
    """The hash of each file's bytes, by name."""
    found = {}
    for path in paths:
        with path.open("rb") as file:
            found[path.name] = hashlib.file_digest(file, "blake2b").hexdigest()
    return found


def read_cold(place: Place, **options: Any) -> int:
    """Eight readers read a version whose chunks are not in the cache, right to the last byte, and
    the mount ends in order; the most memory that its daemon had. options: of its process."""
    writer = place.mount("v")
    fill(writer.path)
    wanted = described([path for path in writer.path.rglob("*") if path.is_file()])
    version = writer.commit()
    writer.unmount()
    reader = place.start(place.spec("v", version, cache_dir=str(place.root / "cold")), **options)
    paths = sorted(path for path in reader.path.rglob("*") if path.is_file())
    with multiprocessing.get_context("spawn").Pool(READERS) as pool:
        parts = pool.map(described, [paths[n::READERS] for n in range(READERS)], chunksize=1)
    assert {name: digest for part in parts for name, digest in part.items()} == wanted
    highest = highest_bytes(reader)
    left = reader.unmount()
    assert not left["is_dirty"]
    return highest


@pytest.fixture
def shown_limit() -> Iterator[None]:
    """Processes of this test find a control group of 128 MB. The kernel does not know it."""
    subprocess.run(["mount", "-t", "tmpfs", "none", GROUPS], check=True)  # this process has mounts of its own
    try:
        (GROUPS / "memory").mkdir()
        for place in ("memory.max", "memory/memory.limit_in_bytes"):
            (GROUPS / place).write_text(f"{GROUP_BYTES}\n")
        yield
    finally:
        subprocess.run(["umount", GROUPS], check=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to show another control group")
@pytest.mark.parametrize("place", ["directory"], indirect=True)
@pytest.mark.usefixtures("shown_limit")
def test_a_cold_mount_that_may_have_128_mb_takes_less(place: Place) -> None:
    assert read_cold(place) < GROUP_BYTES * 3 // 4  # the kernel's part of a group, as its pages of files, comes on top


@dataclass(frozen=True)
class Group:
    """A control group that the kernel keeps within 128 MB. events: its file with "oom_kill N"."""

    path: Path
    events: Path


@pytest.fixture
def group() -> Iterator[Group]:
    """Of version 2 where its root has the memory controller, else of version 1."""
    controllers = GROUPS / "cgroup.subtree_control"
    if controllers.exists() and "memory" in controllers.read_text().split():
        path, limit, events = GROUPS, "memory.max", "memory.events"
    elif (GROUPS / "memory/memory.limit_in_bytes").exists():
        path, limit, events = GROUPS / "memory", "memory.limit_in_bytes", "memory.oom_control"
    else:
        pytest.skip(f"needs control groups with the memory controller below {GROUPS}")
    path /= f"cowfs-test-{os.getpid()}"
    path.mkdir()
    try:
        (path / limit).write_text(str(GROUP_BYTES))
        if (swap := path / "memory.swap.max").exists():
            swap.write_text("0")
        yield Group(path, path / events)
    finally:
        path.rmdir()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to make a control group")
@pytest.mark.parametrize("place", ["directory"], indirect=True)
def test_a_cold_mount_lives_in_a_control_group_of_128_mb(group: Group, place: Place) -> None:
    def enter() -> None:
        (group.path / "cgroup.procs").write_text(str(os.getpid()))

    read_cold(place, preexec_fn=enter)
    events = dict(line.split() for line in group.events.read_text().splitlines())
    assert events["oom_kill"] == "0"


def make_many(path: Path) -> None:
    for outer in range(DIRECTORIES):
        directory = path / f"d{outer}"
        directory.mkdir()
        for inner in range(PER_DIRECTORY):
            os.close(os.open(directory / f"sample-{inner:04}.json", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644))


def walk(path: Path) -> int:
    """Looks at every file as `find -ls` does; returns how many."""
    return sum(entry.stat().st_size == 0 for directory in os.scandir(path) for entry in os.scandir(directory.path))


def inodes_in_memory(mount: Mount) -> int:
    return int(mount.call("status")["inodes_in_memory"])


@pytest.mark.parametrize("place", ["directory"], indirect=True)
def test_a_mount_keeps_no_more_than_its_budget_of_what_is_walked(place: Place, tmp_path: Path) -> None:
    """An eighth of a million files, a fortieth of the budget; the figures of whole ones are in
    docs/benchmarks/memory.md."""
    (tmp_path / "sitecustomize.py").write_text(
        f"from cowfs.session import keeper\n\nkeeper.NAMESPACE_BYTES = {NAMES_BYTES}\n"
    )
    place.environment["PYTHONPATH"] = f"{tmp_path}:{ROOT}"
    writer = place.mount("v")
    make_many(writer.path)
    version = writer.commit()
    writer.unmount()
    for mount in (place.mount("v"), place.mount("v", version=version)):
        for _ in range(2):
            assert walk(mount.path) == DIRECTORIES * PER_DIRECTORY
        end_s = time.monotonic() + WAIT_S
        while (kept := inodes_in_memory(mount)) > NAMES_KEPT and time.monotonic() < end_s:
            time.sleep(0.5)
        assert kept <= NAMES_KEPT
        assert highest_bytes(mount) < LIMIT_BYTES
        mount.unmount()
