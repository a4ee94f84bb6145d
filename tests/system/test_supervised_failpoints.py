"""The daemon of a supervised mount dies at each named failpoint: programs go on, and what was asked
of the daemon is done once."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

import pytest

from tests.system.machine import Machine, is_running, mounted_below, wait_until_gone
from tests.system.programs_under_kills import Running, check
from tests.system.trees import differences, read_tree

pytestmark = [pytest.mark.mount, pytest.mark.slow]

PROGRAMS = ("appends", "mapping", "names", "nameless")
CHECKPOINT_BYTES = 64 << 20
"""Of the journal (native/engine)."""
ATTRIBUTE_BYTES = 60_000


def mount_with(machine: Machine, point: str) -> Path:
    machine.create("v")
    machine.environment["COWFS_FAILPOINT"] = point
    mounted = machine.mount("v", "--supervise")
    del machine.environment["COWFS_FAILPOINT"]
    return mounted


def start(machine: Machine, mounted: Path) -> Running:
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    return Running(machine, mounted, PROGRAMS, seed)


def finish(machine: Machine, elsewhere: Machine, mounted: Path, running: Running) -> list[str]:
    """The messages of the versions, newest first."""
    acknowledged = running.end()
    before = read_tree(mounted)
    locator = machine.commit(mounted, "last")
    machine.unmount(mounted)
    committed = elsewhere.mount(locator, at="back")
    assert differences(before, read_tree(committed)) == []
    check(committed, acknowledged)
    return [each["message"] for each in machine.json("log", "v")["versions"]]


@pytest.mark.parametrize(
    "point",
    [
        "commit-mappings-flushed",
        "commit-before-packs",
        "commit-after-packs",
        "commit-after-index",
        "commit-after-manifest",
        "commit-before-head",
        "commit-after-head",
        "commit-after-published",
        "upload-pack-noted",
    ],
)
def test_a_commit_is_made_once(machine: Machine, elsewhere: Machine, point: str) -> None:
    mounted = mount_with(machine, point)
    pid = machine.daemon_pid(mounted)
    with start(machine, mounted) as running:
        (mounted / "large").write_bytes(os.urandom(3 << 20))
        machine.commit(mounted, "once")
        wait_until_gone(pid)
        machine.commit(mounted, "twice")
        assert finish(machine, elsewhere, mounted, running) == ["last", "twice", "once"]


@pytest.mark.parametrize("point", ["restore-made", "restore-cleared", "restore-done"])
def test_a_restore_is_made_once(machine: Machine, elsewhere: Machine, point: str) -> None:
    """And the kernel forgets what it knew of the names and files before."""
    mounted = mount_with(machine, point)
    pid = machine.daemon_pid(mounted)
    (mounted / "d" / "below").mkdir(parents=True)
    for name in ("replaced", "removed", "below/removed", "written"):
        (mounted / "d" / name).write_text(f"first {name}")
    first = machine.commit(mounted, "first")
    (mounted / "new").write_text("second")
    os.rename(mounted / "new", mounted / "d" / "replaced")
    os.unlink(mounted / "d" / "removed")
    os.unlink(mounted / "d" / "below" / "removed")
    os.rmdir(mounted / "d" / "below")
    (mounted / "d" / "written").write_text("second written")
    (mounted / "d" / "added").write_text("second")
    assert {path.name for path in (mounted / "d").iterdir()} == {"added", "replaced", "written"}
    assert not any((mounted / "d" / name).exists() for name in ("removed", "below", "below/removed"))
    with start(machine, mounted) as running:
        machine.cowfs("restore", f"v@{first.rpartition('@')[2]}:d")
        wait_until_gone(pid)
        for name in ("replaced", "removed", "below/removed", "written"):
            assert (mounted / "d" / name).read_text() == f"first {name}"
        assert not (mounted / "d" / "added").exists()
        assert {path.name for path in (mounted / "d").iterdir()} == {"below", "replaced", "removed", "written"}
        assert finish(machine, elsewhere, mounted, running) == ["last", "first"]


@pytest.mark.parametrize(
    "point",
    ["begun", "half", "written", "synced", "named", "replacing", "done"],
)
def test_a_checkpoint_changes_nothing(machine: Machine, elsewhere: Machine, point: str) -> None:
    mounted = mount_with(machine, f"checkpoint-{point}")
    pid = machine.daemon_pid(mounted)
    with start(machine, mounted) as running:
        file = mounted / "attributes"
        file.touch()
        last = b""
        for number in range(2 * CHECKPOINT_BYTES // ATTRIBUTE_BYTES):
            last = b"%08d" % number + bytes(ATTRIBUTE_BYTES - 8)
            os.setxattr(file, "user.large", last)
        end = time.monotonic() + 120
        while is_running(pid):
            assert time.monotonic() < end, "the checkpoint was not made"
            time.sleep(0.01)
        assert os.getxattr(file, "user.large") == last
        assert finish(machine, elsewhere, mounted, running) == ["last"]


@pytest.mark.parametrize("how", [[], ["--commit"], ["--discard"]])
@pytest.mark.parametrize("point", ["unmounting", "unmounted"])
def test_an_unmount_is_finished(machine: Machine, point: str, how: list[str]) -> None:
    mounted = mount_with(machine, point)
    (mounted / "f").write_text("written")
    machine.unmount(mounted, *how)
    assert list(mounted_below(machine.root)) == []
    assert machine.json("status")["mounts"] == []
    again = machine.mount("v")
    assert (again / "f").exists() == (how != ["--discard"])
