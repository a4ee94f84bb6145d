"""A supervised mount whose daemon is killed: listings go on where they were, and versions keep
their numbers."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.system.machine import Machine

pytestmark = [pytest.mark.mount, pytest.mark.slow]

NAMES = 3000
"""So many that a listing takes several requests."""


@pytest.fixture
def path(machine: Machine) -> Path:
    machine.create("v")
    return machine.mount("v", "--supervise")


def read_names(path: Path) -> Iterator[str]:
    """os.scandir reads ahead by 32 KiB at most."""
    with os.scandir(path) as entries:
        for entry in entries:
            yield entry.name


@pytest.mark.parametrize("are_committed", [False, True])
def test_a_listing_under_way_has_each_entry_once(machine: Machine, path: Path, are_committed: bool) -> None:
    for number in range(NAMES):
        (path / f"{number}").touch()
    for number in range(0, NAMES, 2):
        (path / f"{number}").rename(path / f"renamed {number}")
    if are_committed:
        machine.commit(path)
    names = read_names(path)
    listed = [next(names) for _ in range(10)]
    if are_committed:
        (path / "another").touch()
        machine.commit(path)
    machine.kill_daemon(path)
    listed += names
    wanted = {f"renamed {number}" if number % 2 == 0 else f"{number}" for number in range(NAMES)}
    assert sorted(set(listed) & wanted) == sorted(wanted)
    assert len(listed) == len(set(listed))
    machine.unmount(path)


def test_versions_beside_the_volume_keep_their_numbers(machine: Machine, path: Path) -> None:
    ids = []
    for text in ["one", "other", "third"]:
        (path / "f").write_text(text)
        ids.append(machine.commit(path).rpartition("@")[2])
    versions = path / ".cowfs" / "versions"
    whole = {name[: len(ids[0])]: name for name in os.listdir(versions)}
    first = os.open(versions / whole[ids[0]], os.O_RDONLY)
    second = os.open(versions / whole[ids[1]], os.O_RDONLY)

    def read(directory: int) -> tuple[str, int]:
        descriptor = os.open("f", os.O_RDONLY, dir_fd=directory)
        try:
            return os.read(descriptor, 100).decode(), os.fstat(descriptor).st_ino
        finally:
            os.close(descriptor)

    before = read(first), read(second)
    assert (before[0][0], before[1][0]) == ("one", "other")
    for _ in range(2):
        machine.kill_daemon(path)
        # The next daemon meets another version first.
        assert (versions / whole[ids[2]] / "f").read_text() == "third"
        assert (read(first), read(second)) == before
    os.close(first)
    os.close(second)
    machine.unmount(path)
