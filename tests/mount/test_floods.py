"""What another user may add without end has a bound: beside a small quota no kind of call takes the
daemon's memory, and the mount after a crash needs no more than an idle one twice.

`COWFS_FLOOD_CALLS` says how often each kind is called (100,000 by hand).
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from cowfs.base.ids import WriteId
from cowfs.daemon.pyfuse.server import LARGEST_TASKS
from cowfs.format import keys
from cowfs.format.manifest import Manifest, version_id
from cowfs.format.records import HeadRecord
from cowfs.session.looks import OPEN_MAX
from cowfs.store import ObjectStore
from cowfs.store.refs import refs
from cowfs.version.names import quotas
from cowfs.version.names.volumes import read_head
from tests.mount.daemons import Mount, Place
from tests.mount.flooding import KINDS
from tests.mount.test_slow_store import Hanging

CALLS = int(os.environ.get("COWFS_FLOOD_CALLS", "2000"))
QUOTA_BYTES = 1 << 20
HELD_XATTRS_MAX_BYTES = 256 << 20
OPEN_BYTES = 2 << 20
"""Of a version that is open under `.cowfs`."""
OTHER = 65534
FLOOD = Path(__file__).with_name("flooding.py")

pytestmark = [pytest.mark.mount]


def peak_bytes(mount: Mount) -> int:
    """Of the daemon's memory so far."""
    status = Path(f"/proc/{mount.process.pid}/status").read_text()
    [line] = [line for line in status.splitlines() if line.startswith("VmHWM")]
    return int(line.split()[1]) << 10


def start_flood(kind: str, mount: Mount, calls: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-I", str(FLOOD), kind, str(mount.path), str(calls), str(OTHER)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def run_flood(kind: str, mount: Mount, calls: int) -> str:
    """What it says. The mount must still answer."""
    flood = start_flood(kind, mount, calls)
    said, problem = flood.communicate()
    assert flood.returncode == 0, problem
    assert (mount.path / "roots").read_bytes() == b"precious"
    return said.strip()


@pytest.mark.parametrize(
    ("kind", "fast_lane"),
    [*((kind, True) for kind in KINDS), ("many values", False), ("links with long targets", False)],
)
def test_a_flood_of_another_user_ends_or_costs_nothing(place: Place, kind: str, fast_lane: bool) -> None:
    quotas.save(place.store, "v", QUOTA_BYTES)
    idle = place.mount(fast_lane=fast_lane)
    (idle.path / "roots").write_bytes(b"precious")
    idle.path.chmod(0o1777)
    idle_bytes = peak_bytes(idle)
    said = run_flood(kind, idle, CALLS)
    flooded_bytes = peak_bytes(idle)
    print(f"{kind}: {said}; idle {idle_bytes >> 20} MiB, then {flooded_bytes >> 20} MiB", end="")
    idle.kill()
    again = place.mount(fast_lane=fast_lane)
    print(f", next mount {peak_bytes(again) >> 20} MiB")
    assert (again.path / "roots").read_bytes() == b"precious"
    assert peak_bytes(again) <= 2 * idle_bytes
    assert flooded_bytes <= 2 * idle_bytes + (CALLS << 8)  # what is open, and is gone with its process


def test_attributes_that_are_not_committed_have_a_bound_without_a_quota(place: Place) -> None:
    idle = place.mount()
    (idle.path / "roots").write_bytes(b"precious")
    idle.path.chmod(0o1777)
    most_bytes = 2 * peak_bytes(idle) + HELD_XATTRS_MAX_BYTES
    said = run_flood("values of many files", idle, HELD_XATTRS_MAX_BYTES >> 15)
    print(f"{said}; {peak_bytes(idle) >> 20} MiB", end="")
    assert said.endswith("ENOSPC")
    assert peak_bytes(idle) <= most_bytes
    idle.kill()
    again = place.mount()
    print(f", next mount {peak_bytes(again) >> 20} MiB")
    assert peak_bytes(again) <= most_bytes
    with pytest.raises(OSError, match="No space left"):
        os.setxattr(again.path / "roots", "user.v", b"v" * 65536)
    again.commit()
    print(f"committed {peak_bytes(again) >> 20} MiB")
    os.setxattr(again.path / "roots", "user.v", b"v" * 65536)


@pytest.mark.parametrize("fast_lane", [True, False], ids=["lane", "pyfuse3"])
def test_reads_that_wait_for_a_store_cost_little(place: Place, fast_lane: bool) -> None:
    readers = min(CALLS, 10_000 if fast_lane else LARGEST_TASKS // 2)  # with as many pyfuse3 answers nobody
    writer = place.mount()
    (writer.path / "roots").write_bytes(b"precious")
    (writer.path / "cold").mkdir()
    for number in range(readers):
        (writer.path / "cold" / str(number)).write_bytes(os.urandom(4096))
    version = writer.unmount(commit=True)["version"]
    idle = place.mount(version=version, cache_dir=str(place.root / "c" / "empty"), fast_lane=fast_lane)
    assert (idle.path / "roots").read_bytes() == b"precious"
    assert len(os.listdir(idle.path / "cold")) == readers
    idle_bytes = peak_bytes(idle)
    packs = [path for path in (place.root / "store" / "packs").rglob("*") if path.is_file()]
    with contextlib.ExitStack() as stack:
        for pack in packs:
            if pack.stat().st_size > 1 << 20:
                stack.callback(Hanging(pack).release)
        flood = start_flood("parked requests", idle, readers)
        assert flood.stdout is not None
        said = flood.stdout.readline().strip()
        assert (idle.path / "roots").read_bytes() == b"precious"
        flooded_bytes = peak_bytes(idle)
        idle.kill()
    flood.communicate()
    print(f"parked requests: {said}; idle {idle_bytes >> 20} MiB, then {flooded_bytes >> 20} MiB", end="")
    again = place.mount(version=version, cache_dir=str(place.root / "c" / "empty"), fast_lane=fast_lane)
    print(f", next mount {peak_bytes(again) >> 20} MiB")
    assert (again.path / "cold" / "0").stat().st_size == 4096
    assert peak_bytes(again) <= 2 * idle_bytes
    assert flooded_bytes <= 2 * idle_bytes


@pytest.mark.parametrize("fast_lane", [True, False], ids=["lane", "pyfuse3"])
def test_versions_that_are_looked_at_cost_little(place: Place, fast_lane: bool) -> None:
    writer = place.mount()
    (writer.path / "roots").write_bytes(b"precious")
    writer.unmount(commit=True)
    versions = max(CALLS // 10, 40)
    add_versions(place.store, versions)
    idle = place.mount(fast_lane=fast_lane)
    assert (idle.path / "roots").read_bytes() == b"precious"
    idle_bytes = peak_bytes(idle)
    said = run_flood("versions", idle, versions)
    flooded_bytes = peak_bytes(idle)
    print(f"versions: {said}; idle {idle_bytes >> 20} MiB, then {flooded_bytes >> 20} MiB", end="")
    assert said.split() == [str(versions)]
    idle.kill()
    again = place.mount(fast_lane=fast_lane)
    print(f", next mount {peak_bytes(again) >> 20} MiB")
    assert peak_bytes(again) <= 2 * idle_bytes
    assert flooded_bytes <= 2 * idle_bytes + OPEN_MAX * OPEN_BYTES


def add_versions(store: ObjectStore, count: int) -> None:
    """Versions of "v" with the tree of its newest, as commits of nothing but a message would be."""
    head = read_head(store, "v")
    assert head.version is not None
    manifest = Manifest.decode(store.get(keys.version(head.version)), head.version)
    for number in range(1, count + 1):
        data = replace(manifest, message=str(number)).encode()
        store.put(keys.version(version_id(data)), data)
        write_id = WriteId(os.urandom(WriteId.length))
        record = HeadRecord("commit", version_id(data), head.epoch, head.created_ns + number, write_id)
        refs.append(store, refs.head("v"), head.number + number, record)
