"""A volume of 100,000 small files, or a share of them: a commit of one change uploads little, and a
mount fetches little."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.effort import share
from tests.system.machine import Machine

pytestmark = [pytest.mark.mount, pytest.mark.slow]

DIRECTORIES, FILES = 100, share(1000)
CHANGED = f"f{FILES // 2:04}"


def stored_bytes(machine: Machine) -> int:
    root = Path(machine.store.removeprefix("file://"))
    return sum(path.stat().st_size for path in root.rglob("*") if path.is_file())


def test_one_change_among_many_files_uploads_less_than_a_megabyte(machine: Machine, elsewhere: Machine) -> None:
    machine.create("many")
    mounted = machine.mount("many")
    for directory in range(DIRECTORIES):
        path = mounted / f"d{directory:03}"
        path.mkdir()
        for number in range(FILES):
            fd = os.open(path / f"f{number:04}", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
            os.write(fd, b"%d/%d " % (directory, number) * 20)
            os.close(fd)
    first = machine.commit(mounted)
    before = stored_bytes(machine)
    (mounted / "d050" / CHANGED).write_text("changed")
    second = machine.commit(mounted)
    added = stored_bytes(machine) - before
    print(f"one change among {DIRECTORIES * FILES} files added {added} bytes")
    assert added < 1_000_000
    assert machine.commit(mounted) == second, "nothing changed: the same version"

    old, new = elsewhere.mount(first, at="old"), elsewhere.mount(second, at="new")
    fetched = sum(path.stat().st_size for path in (elsewhere.root / "c" / "cache").rglob("*") if path.is_file())
    assert fetched < 2_000_000, "a mount fetched more of the index than its first blocks"
    assert (old / "d050" / CHANGED).read_bytes() == b"50/%d " % (FILES // 2) * 20
    assert (new / "d050" / CHANGED).read_text() == "changed"
    assert len(os.listdir(new / "d099")) == FILES
    assert (new / "d099" / f"f{FILES - 1:04}").read_bytes() == b"99/%d " % (FILES - 1) * 20
