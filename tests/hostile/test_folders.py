"""A folder of a copy that others may write to: whatever they put there, and whenever, a mount,
commit, unmount or discard changes nothing outside of the folder, ends, and needs little memory."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from cowfs.base import clock
from cowfs.blocking import Volume
from cowfs.errors import CowfsError
from cowfs.machine import registry
from tests.api.conftest import place
from tests.effort import share
from tests.hostile.entries import KINDS, Canary
from tests.hostile.other_user import UID, watching

__all__ = ["place"]

SECONDS = float(os.environ.get("COWFS_HOSTILE_S", share(60))) / 3
LIMIT_S = 60
MEMORY_BYTES = 4 << 30


def rounds(least: int) -> Iterator[random.Random]:
    """A source of chance for each case: as many as there is time for, but some at least."""
    end_s, number = clock.monotonic_s() + SECONDS, 0
    given = os.environ.get("COWFS_HOSTILE_SEED")
    while number < least or clock.monotonic_s() < end_s:
        seed = int(given) if given else random.SystemRandom().randrange(1 << 32)
        print(f"case {number}: COWFS_HOSTILE_SEED={seed}", flush=True)
        yield random.Random(seed)
        number += 1
        if given:
            return


@pytest.fixture
def canary(place: Path) -> Canary:
    return Canary(place / "canary")


@pytest.fixture
def shared(place: Path) -> Path:
    """A directory that everybody may write to, and can reach."""
    place.chmod(0o755)
    (place / "mnt").chmod(0o755)
    path = place / "mnt" / "shared"
    path.mkdir()
    path.chmod(0o777)
    return path


def source(place: Path) -> str:
    """Volume "data" with names that the canary has, too."""
    root = place / "source"
    for name in ("file", "dir/large", "sub/file", "empty/deep/file", *(f"more/{number}" for number in range(20))):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(name.encode() * 2000)
    for path in root.rglob("*"):
        path.chmod(0o777 if path.is_dir() else 0o666)
    Volume.new("data").files.upload(root)
    return Volume.version("data").locator


def ending(call: Callable[[], object]) -> None:
    """The neighbour may make it fail, but with an error of ours."""
    try:
        call()
    except CowfsError as error:
        assert error.hint


def test_nothing_outside_of_the_folder_changes(place: Path, canary: Canary, shared: Path) -> None:
    source(place)
    for chance in rounds(6):
        one_case(chance, canary, shared)
        assert not canary.changes()


def one_case(chance: random.Random, canary: Canary, shared: Path) -> None:
    parent = shared / f"{chance.randrange(1 << 30)}"
    parent.mkdir()
    parent.chmod(0o777)
    path, command = parent / "copy", chance.choice(["mount", "mount", "commit", "unmount", "discard"])
    if chance.random() < 0.8:
        path.mkdir()
        path.chmod(0o777)
    volume = Volume.open("data")
    watched = [parent, *([path] if path.exists() else [])]
    if command != "mount":
        volume.mount(path, mode="copy")
        path.chmod(0o777)
        if chance.random() < 0.5 or command == "commit":
            (path / "file").write_text(f"changed {chance.random()}")
        watched = [parent, path, *(each for each in path.rglob("*") if each.is_dir())]
    with watching(chance, canary, *watched):
        if command == "mount":
            ending(lambda: volume.mount(path, mode="copy"))
            if chance.random() < 0.5:
                ending(volume.unmount)
        elif command == "commit":
            ending(volume.commit)
            ending(volume.unmount)
        elif command == "unmount":
            ending(volume.unmount)
        else:
            ending(volume.discard)
    ending(lambda: Volume.open("data").discard(force=True))
    shutil.rmtree(parent)
    ending(lambda: Volume.open("data").discard(force=True))
    assert registry.list_mounts() == []


PROGRAM = """
import resource, sys
from cowfs.base import clock
from cowfs.blocking import Volume
from cowfs.errors import CowfsError
resource.setrlimit(resource.RLIMIT_AS, (int(sys.argv[1]),) * 2)
def ending(call, *others):
    try:
        print(call())
    except (CowfsError, *others) as error:
        print(error)
volume = Volume.open(sys.argv[2])
ending(volume.status)
ending(volume.has_changes)
ending(lambda: len(list(volume.diff())))
ending(lambda: volume.files.read("file", 0, 10), OSError)
ending(lambda: volume.files.write("file", b"new"), OSError)
ending(lambda: volume.files.write("sub/file", b"new"), OSError)
ending(volume.commit)
for command in sys.argv[3:]:
    ending(lambda: getattr(volume, command)())
ending(lambda: Volume.open(sys.argv[2]).discard(force=True))
peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))  # ru_maxrss counts the parent's
assert int(peak.split()[1]) < int(sys.argv[1]) >> 11, peak
"""


def test_whatever_takes_the_place_of_an_entry_nothing_else_changes_and_every_command_ends(
    place: Path, canary: Canary
) -> None:
    version = Volume.from_locator(source(place))
    for number, chance in enumerate(rounds(6)):
        path = place / "mnt" / f"copy{number}"
        volume = version.fork(f"case{number}")
        volume.mount(path, mode="copy")
        entries = sorted(each for each in path.rglob("*") if "more" not in each.parts or each.name == "1")
        entry = chance.choice([*entries, path])
        kind = chance.choice([*KINDS])
        last = chance.choice(["unmount", "discard"])
        command = [sys.executable, "-c", PROGRAM, str(MEMORY_BYTES), volume.name, last]
        was_directory = entry.is_dir()
        entry.rename(place / "mnt" / f"away{number}")
        KINDS[kind](entry, canary, was_directory)
        done = subprocess.run(command, timeout=LIMIT_S, capture_output=True, text=True, check=False)
        assert done.returncode == 0, (entry, kind, done.stderr)
        assert not canary.changes(), (entry, kind)
        if not path.is_dir() or path.is_symlink():
            path.unlink(missing_ok=True)
        shutil.rmtree(path, ignore_errors=True)
        ending(partial(Volume.open(volume.name).discard, force=True))
        assert registry.list_mounts() == []


# -- what was found once


@pytest.mark.skipif(os.geteuid() != 0, reason="needs another user")
@pytest.mark.parametrize("command", ["mount", "unmount", "discard"])
def test_a_name_of_cowfs_own_that_becomes_a_link_leads_nowhere(
    place: Path, canary: Canary, shared: Path, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Swapped at the very moment: right after it was made, by a neighbour who has waited for it."""
    source(place)
    path = shared / "copy"
    path.mkdir()
    path.chmod(0o777)
    volume = Volume.open("data")
    if command != "mount":
        volume.mount(path, mode="copy")
    mkdir, rename, swapped = os.mkdir, os.rename, list[str]()

    def swap(name: str | bytes, directory: int | None) -> None:
        rename(name, os.fsencode(name) + b"~", src_dir_fd=directory, dst_dir_fd=directory)
        os.symlink(canary.directory, name, dir_fd=directory)
        swapped.append(os.fsdecode(name))

    def made(name: str | bytes, mode: int = 0o777, *, dir_fd: int | None = None) -> None:
        mkdir(name, mode, dir_fd=dir_fd)
        if b".cowfs-" in os.fsencode(name):
            swap(name, dir_fd)

    monkeypatch.setattr(os, "mkdir", made)
    ending(lambda: volume.mount(path, mode="copy") if command == "mount" else getattr(volume, command)())
    monkeypatch.undo()
    assert bool(swapped) is (command == "mount"), "what goes makes no directory"
    assert not canary.changes()


@pytest.mark.skipif(os.geteuid() != 0, reason="gives a file to another user")
def test_what_a_neighbour_has_put_into_a_folder_stays_his(place: Path, shared: Path) -> None:
    source(place)
    path = shared / "copy"
    Volume.open("data").mount(path, mode="copy")
    path.chmod(0o777)
    (path / "his").mkdir()
    (path / "his" / "file").write_text("his")
    for each in (path / "his", path / "his" / "file"):
        os.chown(each, UID, UID)
    Volume.open("data").discard()
    assert [each.name for each in path.iterdir()] == ["his"]
    assert (path / "his" / "file").read_text() == "his"
    assert (path / "his" / "file").stat().st_uid == UID
