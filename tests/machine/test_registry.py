"""The registry believes only live processes and finds mounts without touching them."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from cowfs.machine import mount_table, processes, registry
from cowfs.machine.mount_table import MountKind
from cowfs.machine.registry import MountEntry

pytestmark = pytest.mark.quick


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("COWFS_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))
    return tmp_path


def entered(mount_path: Path, *, volume: str = "data", read_only: bool = False) -> MountEntry:
    registration = registry.new_id()
    return registry.register(
        registration,
        mount_path=mount_path,
        socket=registry.socket_path(registration),
        store_url="file:///store",
        store_id="00" * 16,
        volume=volume,
        version_id="11" * 32 if read_only else None,
        read_only=read_only,
        working_copy=None if read_only else Path("/w"),
    )


def rewrite(entry: MountEntry, **process: object) -> Path:
    registry.enter(replace(entry, process=replace(entry.process, **process)))  # type: ignore[arg-type]
    return registry._directory() / f"{entry.id}.json"


def test_an_entry_comes_back_and_goes(tmp_path: Path) -> None:
    entry = entered(tmp_path / "m")
    assert registry.list_mounts() == [entry]
    assert registry.find_by_volume("00" * 16, "data") == entry
    registry.unregister(entry)
    registry.unregister(entry)
    assert registry.list_mounts() == []


def test_mounts_are_found_whatever_the_state_directory_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entry = entered(tmp_path / "m")
    with monkeypatch.context() as elsewhere:
        elsewhere.setenv("COWFS_STATE_DIR", str(tmp_path / "other"))
        assert registry.list_mounts() == [entry]
        assert registry.find_by_path(tmp_path / "m") == entry
    with monkeypatch.context() as session:
        session.setenv("XDG_RUNTIME_DIR", str(tmp_path / "of another login"))
        (tmp_path / "of another login").mkdir(mode=0o700)
        assert registry.list_mounts() == [entry]
    registry.unregister(entry)
    assert registry.list_mounts() == []
    assert list(tmp_path.rglob("*.json")) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a disk that has few files")
def test_an_entry_is_entered_anew_where_no_more_files_can_be_made(place: Path) -> None:
    directory = place / "state"
    directory.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m,nr_inodes=16", "none", directory], check=True)
    try:
        entry = entered(place / "m")
        with contextlib.suppress(OSError):
            for number in range(16):
                (directory / str(number)).touch()
        assert os.statvfs(directory).f_ffree == 0
        registry.enter(replace(entry, is_detached=True))
        assert [each.is_detached for each in registry.list_mounts()] == [True]
        longer = replace(entry, volume=entry.volume * 3)
        with pytest.raises(OSError, match="No space left"):
            registry.enter(longer)
        assert [each.volume for each in registry.list_mounts()] == [entry.volume]
        assert not registry.restore(replace(entry, is_detached=True), is_lasting=False), "it is as it should be"
        assert [path.name for path in registry._directory().iterdir()] == [f"{entry.id}.json"]
    finally:
        subprocess.run(["umount", directory], check=True)


def test_what_is_gone_of_an_entry_is_restored(place: Path) -> None:
    entry = replace(entered(place / "m"), kind="scratch", adopted="made")
    registry.enter(entry)
    registry.adopt(entry)
    shared = registry.sharing_file(entry)
    before = shared.stat()
    registry.restore(entry, is_lasting=False)
    assert shared.stat() == before, "whoever shares the mount has a lock on it"
    assert not registry.is_lasting(entry)
    for directory in ("run", "state"):
        shutil.rmtree(place / directory)
        registry.restore(entry, is_lasting=True)
        assert registry.list_mounts() == [entry]
        assert registry.find_by_volume("00" * 16, "made") == entry
        assert registry.is_lasting(entry)
    registry.unregister(entry)
    left = [path for path in place.rglob("*") if path.is_file()]
    assert [path for path in left if "last_mounts" not in path.parts] == []


def test_read_only_mounts_are_not_the_volumes_mount(tmp_path: Path) -> None:
    entered(tmp_path / "m", read_only=True)
    assert registry.find_by_volume("00" * 16, "data") is None


def test_reused_pid_is_swept(tmp_path: Path) -> None:
    path = rewrite(entered(tmp_path / "m"), started=1)
    assert registry.list_mounts() == []
    assert not path.exists()


def test_entry_from_before_a_reboot_is_swept(tmp_path: Path) -> None:
    path = rewrite(entered(tmp_path / "m"), boot_id="another")
    assert registry.list_mounts() == []
    assert not path.exists()


@pytest.mark.parametrize("kind", ["fuse", "folder"])
def test_entry_of_a_container_is_swept_after_a_reboot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: MountKind
) -> None:
    host = f"{processes.machine_id().rpartition(' ')[0]} pid:[4026531999]"
    entry = replace(entered(tmp_path / "m"), kind=kind)
    path = rewrite(entry, boot_id="another", host=host)
    monkeypatch.setattr(mount_table, "is_local", lambda fd: False)
    registry.list_mounts()
    assert path.exists(), "another machine may have the directory, too"
    monkeypatch.setattr(mount_table, "is_local", lambda fd: True)
    registry.list_mounts()
    assert path.exists(), "it is newer than this kernel"
    for each in registry._directories():
        if (each / path.name).exists():
            os.utime(each / path.name, (0, 0))
    assert registry.list_mounts() == []
    assert not path.exists()


def test_a_path_means_the_mount_of_this_container(tmp_path: Path) -> None:
    here = replace(entered(tmp_path / "m"), kind="folder")
    registry.enter(here)
    there = replace(entered(tmp_path / "m"), kind="folder", since_ns=here.since_ns + 1)
    rewrite(there, host="another pid:[4026531999]")
    assert len(registry.list_mounts()) == 2
    for path in (tmp_path / "m", tmp_path / "m" / "dir"):
        found = registry.find_by_path(path, inside=True)
        assert found is not None
        assert found.id == here.id
    registry.unregister(here)
    left = registry.find_by_path(tmp_path / "m")
    assert left is not None
    assert left.id == there.id


def test_a_copy_that_has_no_entry_to_lock_is_none(tmp_path: Path) -> None:
    """Its state directory has lost it. Of one in another container nobody can tell."""
    shared_in = str(registry._directory())
    lost = replace(entered(tmp_path / "m"), kind="folder", shared_in=shared_in)
    registry.enter(lost)
    assert [each.id for each in registry.list_mounts()] == [lost.id]
    registry.sharing_file(lost).unlink()
    assert registry.list_mounts() == []
    there = replace(lost, shared_in=str(tmp_path / "there"))
    rewrite(there, host="another pid:[4026531999]")
    assert [each.id for each in registry.list_mounts()] == [lost.id]


def test_entry_of_another_host_is_neither_believed_nor_swept(tmp_path: Path) -> None:
    path = rewrite(entered(tmp_path / "m"), host="elsewhere")
    assert registry.list_mounts() == []
    assert path.exists()


def test_entry_of_a_dead_process_is_swept_even_before_it_is_reaped(tmp_path: Path) -> None:
    code = "from tests.machine.test_registry import *; entered(Path('/m')); print('in', flush=True); input()"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"in\n"
        assert [entry.pid for entry in registry.list_mounts()] == [child.pid]
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # a zombie now
        assert registry.list_mounts() == []


def test_damaged_entries_are_swept(place: Path) -> None:
    folder = place / "state" / "mounts"
    folder.mkdir(parents=True)
    for name, text in {"a": "", "b": "[]", "c": json.dumps({"id": 1}), "d": "\x00"}.items():
        (folder / f"{name}.json").write_text(text)
    assert registry.list_mounts() == []
    assert list(folder.iterdir()) == []


def test_found_by_path_through_links_and_from_inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "real" / "m" / "sub").mkdir(parents=True)
    (tmp_path / "link").symlink_to("real")
    (tmp_path / "direct").symlink_to(tmp_path / "link" / "m")
    entry = entered(tmp_path / "link" / "m")
    inner = entered(tmp_path / "real" / "m" / "sub", volume="inner")
    assert entry.mount_path == str(tmp_path / "real" / "m")
    for path in ("link/m", "real/m/", "direct", "real/../link/m"):
        assert registry.find_by_path(tmp_path / path) == entry
    assert registry.find_by_path(tmp_path / "direct" / "other") is None
    assert registry.find_by_path(tmp_path / "direct" / "other", inside=True) == entry
    assert registry.find_by_path(tmp_path / "direct" / "sub" / "x", inside=True) == inner
    assert registry.find_by_path(tmp_path / "real" / "mm", inside=True) is None
    monkeypatch.chdir(tmp_path / "real" / "m")
    assert registry.find_by_path(".") == entry


def test_circular_links_end(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    assert registry.find_by_path(tmp_path / "a") is None


def test_process_start_survives_odd_names(tmp_path: Path) -> None:
    program = tmp_path / "a) R 1 (b"
    program.symlink_to("/bin/sleep")
    with subprocess.Popen([str(program), "60"]) as child:
        started = processes.start_time(child.pid)
        child.kill()
    assert started is not None
    own = processes.start_time(os.getpid())
    assert own is not None
    assert started >= own
