"""Files that were acknowledged while the daemon is killed with -9 at random moments are whole after
the next mount.

A writer says on a local file what it wrote, once the mount has taken it: half the files after
fsync, half after close alone, since written data outlives the daemon too. Commits run meanwhile, so
that some kills hit in the middle of one.
"""

from __future__ import annotations

import hashlib
import os
import random
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from tests.effort import share
from tests.system.machine import COMMAND, Machine
from tests.system.trees import differences, read_tree

pytestmark = [pytest.mark.mount, pytest.mark.slow]

KILLS = share(50)
OF_A_DEAD_MOUNT = "not connected|connection abort|canceled"
"""ENOTCONN; ECONNABORTED or, over io_uring, ECANCELED where a call met the daemon's last thread on
its way out."""

WRITER = """
import hashlib, os, random, sys
directory, acknowledged, seed, number = sys.argv[1], sys.argv[2], int(sys.argv[3]), 0
draw = random.Random(seed)
log = os.open(acknowledged, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
while True:
    name = f"{seed}-{number}"
    data = draw.randbytes(draw.choice((0, 10, 5_000, 70_000, 400_000)))
    path = os.path.join(directory, name)
    with open(path + ".new", "wb", buffering=0) as file:
        for start in range(0, len(data), 65_536):
            file.write(data[start : start + 65_536])
        if number % 2:
            os.fsync(file.fileno())
    os.rename(path + ".new", path)
    os.write(log, f"{name} {hashlib.sha256(data).hexdigest()}\\n".encode())
    number += 1
"""


def acknowledged_files(log: Path) -> dict[str, str]:
    """Name and digest of each file; a last line that is not whole was not acknowledged."""
    lines = log.read_text().splitlines(keepends=True) if log.exists() else []
    return dict(line.split() for line in lines if line.endswith("\n"))


def missing_or_damaged(directory: Path, acknowledged: dict[str, str]) -> list[str]:
    found = []
    for name, digest in acknowledged.items():
        try:
            data = (directory / name).read_bytes()
        except OSError as error:
            found.append(f"{name}: {error}")
            continue
        if hashlib.sha256(data).hexdigest() != digest:
            found.append(f"{name}: {len(data)} bytes that are not what was written")
    return found


def test_acknowledged_files_survive_kills(machine: Machine, elsewhere: Machine) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    draw = random.Random(seed)
    machine.create("killed")
    log = machine.root / "local" / "acknowledged"
    total: dict[str, str] = {}
    acknowledged = 0
    for kill in range(KILLS):
        mounted = machine.mount("killed")
        assert missing_or_damaged(mounted, acknowledged_files(log)) == [], f"after kill {kill} of seed {seed}"
        total |= acknowledged_files(log)
        if kill % 10 == 9:  # the next ten work in a fresh directory of names
            for name in total.keys() - set(list(total)[-20:]):
                (mounted / name).unlink()
                del total[name]
        log.unlink(missing_ok=True)
        pid = machine.daemon_pid(mounted)
        writer = subprocess.Popen(
            [sys.executable, "-c", WRITER, mounted, log, str(seed + kill)], stderr=subprocess.DEVNULL
        )
        committing = None
        if draw.random() < 0.5:
            time.sleep(draw.random() * 0.2)
            committing = subprocess.Popen(
                [COMMAND, "commit", mounted, "-m", f"kill {kill}"],
                env=machine.environment,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
        wanted = draw.randrange(1, 12)
        while len(acknowledged_files(log)) < wanted:
            assert writer.poll() is None, "the writer ended before the daemon was killed"
            time.sleep(0.005)
        time.sleep(draw.random() * 0.1)
        os.kill(pid, 9)
        assert writer.wait(timeout=60) != 0
        if committing:
            committing.wait(timeout=120)
        acknowledged += len(acknowledged_files(log))
    mounted = machine.mount("killed")
    total |= acknowledged_files(log)
    assert acknowledged >= KILLS
    assert missing_or_damaged(mounted, total) == [], f"after the last kill of seed {seed}"

    before = read_tree(mounted)
    locator = machine.commit(mounted, "everything that was acknowledged")
    machine.unmount(mounted)
    assert differences(before, read_tree(elsewhere.mount(locator, at="back"))) == []


def test_unmount_keeps_uncommitted_work_and_discard_drops_it(machine: Machine) -> None:
    machine.create("kept")
    mounted = machine.mount("kept")
    (mounted / "committed").write_text("first")
    machine.commit(mounted)
    (mounted / "uncommitted").write_text("second")
    (mounted / "committed").write_text("changed")
    before = read_tree(mounted)
    machine.unmount(mounted)
    assert list(mounted.iterdir()) == [], "the mount point is an empty directory again"

    machine.mount("kept")
    assert differences(before, read_tree(mounted)) == []
    machine.unmount(mounted, "--discard")
    machine.mount("kept")
    assert {path.name: path.read_text() for path in mounted.iterdir()} == {"committed": "first"}


def test_open_but_unlinked_file_is_usable_and_in_no_version(machine: Machine, elsewhere: Machine) -> None:
    machine.create("unlinked")
    mounted = machine.mount("unlinked")
    with (mounted / "gone").open("w+b") as file:
        file.write(b"before")
        (mounted / "gone").unlink()
        locator = machine.commit(mounted)
        file.write(b" and after")
        file.seek(0)
        assert file.read() == b"before and after"
    assert list(elsewhere.mount(locator, at="back").iterdir()) == []


def test_mount_after_a_kill_while_a_program_holds_files_open(machine: Machine) -> None:
    """The stale mount is detached even though something still uses it; the program gets errors, not
    old bytes."""
    machine.create("stale")
    mounted = machine.mount("stale")
    fd = os.open(mounted / "file", os.O_WRONLY | os.O_CREAT)
    os.write(fd, b"acknowledged")
    machine.kill_daemon(mounted)
    with pytest.raises(OSError, match=OF_A_DEAD_MOUNT):
        os.write(fd, b"lost")
    machine.mount("stale")
    assert (mounted / "file").read_bytes() == b"acknowledged"
    with pytest.raises(OSError, match=OF_A_DEAD_MOUNT):
        os.write(fd, b"lost")
    with suppress(OSError):  # close flushes, which nobody answers
        os.close(fd)
