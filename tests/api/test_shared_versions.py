"""Objects and processes of one user that mount one version share the mount, as long as they ask
for the same."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from cowfs.blocking import ROVolume, Volume
from cowfs.control import MountOptions
from cowfs.errors import InvalidStateError
from cowfs.machine import registry
from tests.api.test_shared_mounts import WATCHDOG_S, asked, cowfs, end_at_once, started

pytestmark = [pytest.mark.mount, pytest.mark.usefixtures("place")]

WORKERS = 4

MOUNT = """
import os, sys
from cowfs.blocking import Volume
from cowfs.errors import ConflictError
def in_child(call):
    if (pid := os.fork()) == 0:
        try:
            call()
            os._exit(0)
        except ConflictError:
            os._exit(3)
        finally:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
version = Volume.from_locator(sys.argv[1])
print("ready", flush=True)
for line in sys.stdin:
    try:
        print(eval(line), flush=True)
    except Exception as error:
        print(type(error).__name__, str(error), flush=True)
"""


@pytest.fixture
def version() -> ROVolume:
    with Volume.new("data") as volume:
        (volume.path / "folder").mkdir()
        (volume.path / "folder" / "file").write_text("for everybody")
        return volume.commit()


def again(version: ROVolume) -> ROVolume:
    return Volume.from_locator(version.locator)


def worker(version: ROVolume) -> subprocess.Popen[str]:
    process = started(MOUNT, version.locator)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def daemons() -> set[int]:
    return {entry.pid for entry in registry.list_mounts()}


@pytest.mark.parametrize("mode", ["auto", "copy"])
def test_processes_that_mount_at_once_share_the_mount_and_the_last_unmounts(version: ROVolume, mode: str) -> None:
    workers = [worker(version) for _ in range(WORKERS)]
    with ThreadPoolExecutor(WORKERS) as threads:
        paths = set(threads.map(lambda each: asked(each, f"version.mount(mode={mode!r})"), workers))
    assert len(paths) == 1
    assert len(registry.list_mounts()) == 1
    for each in workers:
        assert asked(each, "(version / 'folder' / 'file').read_text()") == "for everybody\n"
        assert asked(each, "version.unmount()") == "None\n"
        assert asked(each, "version.is_mounted") == "False\n"
        assert len(registry.list_mounts()) == (each is not workers[-1])
        each.communicate(timeout=WATCHDOG_S)


def test_a_mount_that_a_process_has_left_is_found_by_the_next_one(version: ROVolume) -> None:
    first = worker(version)
    path = asked(first, "version.mount()")
    first.kill()
    first.communicate()
    found = daemons()
    with again(version) as mounted:
        assert f"{mounted.path}\n" == path
        assert daemons() == found
        assert mounted._started is None
        status = mounted.status()
        assert status is not None
        assert status.is_read_only
    assert registry.list_mounts() == []


def test_objects_of_one_process_share_and_mount_at_once(version: ROVolume) -> None:
    objects, barrier = [again(version) for _ in range(WORKERS)], threading.Barrier(WORKERS)

    def mount(each: ROVolume) -> Path:
        barrier.wait(WATCHDOG_S)
        return each.mount()

    with ThreadPoolExecutor(WORKERS) as threads:
        [path] = set(threads.map(mount, objects))
    assert len(daemons()) == 1
    for each in objects:
        assert (path / "folder" / "file").read_text() == "for everybody"
        each.unmount()
    assert registry.list_mounts() == []
    assert not path.exists()


@pytest.mark.parametrize(
    "other",
    [
        lambda version, _: version.mount(attr_cache=1),
        lambda version, _: version.mount(show_versions=True),
        lambda version, place: version.mount(cache_dir=place / "another"),
        lambda version, place: version.mount(place / "mnt" / "elsewhere"),
        lambda version, _: version.mount(scratch=True),
        lambda version, _: version.mount(mode="copy"),
        lambda version, place: version.mount(record=place / "profile"),
        lambda version, _: Volume.from_locator(f"{version.locator}/folder").mount(),
    ],
    ids=["options", "names", "cache", "path", "scratch", "copy", "record", "folder"],
)
def test_who_asks_for_something_else_gets_a_mount_of_its_own(
    version: ROVolume, place: Path, other: Callable[[ROVolume, Path], Path]
) -> None:
    with version:
        path = other(again(version), place)
        assert path != version.path
        assert len(registry.list_mounts()) == 2
    assert path.exists()


def test_what_means_the_same_is_shared(version: ROVolume, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with version:
        assert (
            again(version).mount(cache_dir=MountOptions().cache_path, max_uploads=3, mode="fuse", copy_limit=1)
            == version.path
        )
        monkeypatch.chdir(place)
        assert again(version).mount(os.path.relpath(version.path)) == version.path
    with again(version) as ints:
        ints.unmount()
        path = ints.mount(entry_cache=2)
        assert again(version).mount(entry_cache=2.0) == path


def test_a_mount_that_was_ended_before_its_maker_has_a_part_of_it_is_made_anew(
    version: ROVolume, monkeypatch: pytest.MonkeyPatch
) -> None:
    end_at_once(monkeypatch)
    with version:
        assert (version / "folder" / "file").read_text() == "for everybody"
    assert registry.list_mounts() == []


def test_who_loses_the_mount_is_told(version: ROVolume) -> None:
    """What was read since was of the directory below."""
    other = again(version)
    other.mount()
    with pytest.raises(InvalidStateError, match="has ended, and this object did not end it"), version:
        other.unmount(force=True)
    version.unmount()
    version.mount()
    other.mount()
    other.unmount(force=True)
    version.unmount(force=True)
    with version:
        assert (version / "folder" / "file").read_text() == "for everybody"


def test_others_are_asked_before_a_shared_mount_ends(version: ROVolume) -> None:
    process = worker(version)
    path = Path(asked(process, "version.mount()").rstrip())
    assert version.mount() == path
    refused = cowfs("unmount", str(path))
    assert refused.returncode != 0
    assert "--force" in refused.stderr
    assert (path / "folder" / "file").read_text() == "for everybody"
    version.unmount(force=True)
    assert registry.list_mounts() == []
    assert asked(process, "version.is_mounted") == "False\n"
    assert asked(process, "(version.mount() / 'folder' / 'file').read_text()") == "for everybody\n"
    assert asked(process, "version.unmount()") == "None\n"
    process.communicate(timeout=WATCHDOG_S)
    assert registry.list_mounts() == []


def test_a_forked_child_does_not_end_what_its_parent_uses(version: ROVolume) -> None:
    process = worker(version)
    path = Path(asked(process, "version.mount()").rstrip())
    assert asked(process, "in_child(version.unmount)") == "3\n", "it is told that its parent uses the mount"
    another = "lambda: print(Volume.from_locator(sys.argv[1]).mount(), end=' ', flush=True)"
    assert asked(process, f"in_child({another})") == f"{path} 0\n"
    assert asked(process, "(version / 'folder' / 'file').read_text()") == "for everybody\n"
    assert path.is_mount()
    process.communicate("version.unmount()\n", timeout=WATCHDOG_S)
    assert registry.list_mounts() == []


def test_a_mount_by_command_is_found_and_outlasts_those_that_join(version: ROVolume, place: Path) -> None:
    where = place / "mnt" / "there"
    for said in ("Mounted", "Found"):
        done = cowfs("mount", version.locator, str(where))
        assert done.returncode == 0, done.stderr
        assert done.stdout == f"{where}\n"
        assert done.stderr.startswith(said)
    with again(version) as joined:
        assert joined.path == where
    assert (where / "folder" / "file").read_text() == "for everybody"
    assert len(registry.list_mounts()) == 1
    assert cowfs("unmount", str(where)).returncode == 0
    assert registry.list_mounts() == []


def test_a_mount_whose_daemon_has_died_is_made_anew(version: ROVolume) -> None:
    path = again(version).mount()
    for _ in range(3):
        [pid] = daemons()
        os.kill(pid, 9)
        assert again(version).mount() == path
        assert (path / "folder" / "file").read_text() == "for everybody"
