"""The daemon of a supervised mount dies at each named failpoint: programs go on, and what was asked
of the daemon is done once."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

import pytest

from tests.system.machine import Machine, is_running, wait_until_gone
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


def test_a_restore_is_made_once(machine: Machine, elsewhere: Machine) -> None:
    mounted = mount_with(machine, "restore-made")
    pid = machine.daemon_pid(mounted)
    (mounted / "d").mkdir()
    (mounted / "d" / "f").write_text("first")
    first = machine.commit(mounted, "first")
    (mounted / "d" / "f").write_text("second")
    with start(machine, mounted) as running:
        machine.cowfs("restore", f"v@{first.rpartition('@')[2]}:d")
        wait_until_gone(pid)
        assert (mounted / "d" / "f").read_text() == "first"
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
