"""Of several processes that are done with a mount, one is the last."""

from __future__ import annotations

import fcntl
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cowfs.api.mounts import mount_paths
from cowfs.errors import ConflictError
from cowfs.machine import registry, sharing
from cowfs.machine.registry import MountEntry

OTHER = """
import sys
from cowfs.machine import registry, sharing
[entry] = registry.list_mounts()
class User: pass
user = User()
print(sharing.join(entry, user), flush=True)
sys.stdin.readline()
print(sharing.is_last(entry, user), flush=True)
sys.stdin.readline()
"""


class User:
    pass


@pytest.fixture
def entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MountEntry:
    for name in ("run", "state"):
        (tmp_path / name).mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))
    monkeypatch.setenv("COWFS_STATE_DIR", str(tmp_path / "state"))
    registration = registry.new_id()
    return registry.register(
        registration,
        mount_path=tmp_path / "mnt",
        socket=registry.socket_path(registration),
        store_url="file:///store",
        store_id="00" * 16,
        volume="v",
        version_id="11" * 32,
        read_only=True,
        working_copy=None,
    )


@contextmanager
def another() -> Iterator[subprocess.Popen[str]]:
    """A process that shares the mount, too."""
    command = [sys.executable, "-c", OTHER]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "True\n"
        yield other


def asked(process: subprocess.Popen[str]) -> str:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("go\n")
    process.stdin.flush()
    return process.stdout.readline().strip()


def test_of_two_that_are_done_at_once_one_is_the_last(entry: MountEntry, monkeypatch: pytest.MonkeyPatch) -> None:
    mine, said, forget = User(), [], sharing.forget
    with another() as other:
        assert sharing.join(entry, mine)

        def forget_late(found: MountEntry) -> None:
            said.append(asked(other))
            forget(found)

        monkeypatch.setattr(sharing, "forget", forget_late)
        assert not sharing.is_last(entry, mine)
        assert said == ["True"]
        asked(other)


def test_nobody_is_the_last_of_a_mount_that_was_asked_for_meanwhile(
    entry: MountEntry, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine, take = User(), sharing._take_alone
    assert sharing.join(entry, mine)

    def take_late(found: MountEntry) -> bool:
        registry.mark_lasting(found)
        return take(found)

    monkeypatch.setattr(sharing, "_take_alone", take_late)
    assert not sharing.is_last(entry, mine)
    assert not sharing.holds(entry)


def test_a_lock_on_a_mount_that_has_ended_meanwhile_counts_for_nothing(
    entry: MountEntry, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = sharing._open_entry

    def opened_late(found: MountEntry) -> int | None:
        fd = opened(found)
        registry.unregister(found)
        return fd

    monkeypatch.setattr(sharing, "_open_entry", opened_late)
    assert not sharing.join(entry, User())
    assert not sharing.holds(entry)


def test_nobody_shares_a_mount_that_is_not_ready(entry: MountEntry) -> None:
    mine = User()
    with sharing.starting(entry):
        assert not sharing.join(entry, mine)
        assert not sharing.is_alone(entry)
    assert sharing.join(entry, mine)


def test_who_could_not_end_the_mount_shares_it_as_before(entry: MountEntry) -> None:
    """With the object: else another one of the process would be the last, and end it."""
    mine, second = User(), User()
    assert sharing.join(entry, mine)
    assert sharing.is_last(entry, mine)
    assert not sharing.join(entry, second)
    sharing.keep(entry, mine)
    assert sharing.join(entry, second)
    assert not sharing.is_last(entry, second)
    assert sharing.users(entry) == {mine}


def test_who_kept_a_mount_that_another_process_ends_has_no_part_of_it(
    entry: MountEntry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the lock alone and a shared one there is a moment without any."""
    mine, tried = User(), sharing._try
    with another() as other:
        assert sharing.join(entry, mine)

        def try_late(fd: int, operation: int) -> bool:
            if operation == fcntl.LOCK_SH:
                assert asked(other) == "True"
            return tried(fd, operation)

        monkeypatch.setattr(sharing, "_try", try_late)
        assert not sharing.is_alone(entry)
        assert not sharing.holds(entry)
        assert sharing.users(entry) == set()
        asked(other)


@pytest.mark.parametrize("sharers", [0, 1])
def test_a_daemon_ends_its_mount_unless_others_share_it(entry: MountEntry, sharers: int) -> None:
    mine = User()
    assert not sharers or sharing.join(entry, mine)
    with sharing.ending(entry, sharing.Held()) as is_unshared:
        assert is_unshared is (sharers == 0)
    if sharers:
        assert sharing.is_last(entry, mine)
    with sharing.ending(entry, sharing.Held()) as is_unshared:
        assert is_unshared
        assert sharers or not sharing.join(entry, mine)


def test_an_entry_that_was_removed_and_restored_is_shared_still(entry: MountEntry, tmp_path: Path) -> None:
    mine, also = User(), User()
    with another() as other:
        assert sharing.join(entry, mine)
        assert sharing.join(entry, also)
        shutil.rmtree(tmp_path / "run")
        assert sharing.holds(entry)
        (tmp_path / "run").mkdir(mode=0o700)
        registry.restore(entry, is_lasting=False)
        assert not sharing.is_last(entry, mine), "another object shares it"
        assert sharing.users(entry) == {also}
        assert sharing.join(entry, mine)
        assert asked(other) == "False", "this process does"
        assert not sharing.is_last(entry, mine)
        assert sharing.is_last(entry, also)
        asked(other)


def test_who_shared_an_entry_that_was_removed_and_is_idle_counts(entry: MountEntry, tmp_path: Path) -> None:
    """The daemon made the entry again; of the new one the other knows nothing."""
    held = sharing.Held()
    held.follow(entry)
    with another():
        shutil.rmtree(tmp_path / "run")
        (tmp_path / "run").mkdir(mode=0o700)
        assert registry.restore(entry, is_lasting=False)
        held.follow(entry)
        assert not registry.restore(entry, is_lasting=False)
        with sharing.ending(entry, held) as is_unshared:
            assert not is_unshared
    with sharing.ending(entry, held) as is_unshared:
        assert is_unshared, "it has ended"


def test_who_ends_a_mount_whose_entry_is_made_again_does_not_share_it(entry: MountEntry, tmp_path: Path) -> None:
    held = sharing.Held()
    held.follow(entry)
    assert sharing.is_alone(entry)
    shutil.rmtree(tmp_path / "run")
    (tmp_path / "run").mkdir(mode=0o700)
    assert registry.restore(entry, is_lasting=False)
    with sharing.ending(entry, held) as is_unshared:
        assert is_unshared
    sharing.forget(entry)


def test_a_daemon_that_ends_its_mount_is_no_other_user(entry: MountEntry, monkeypatch: pytest.MonkeyPatch) -> None:
    with sharing.ending(entry, sharing.Held()):
        for pid, said in (
            (4711, "other processes of yours use the mount .*: 4711"),
            (entry.pid, "is being made, or ended"),
        ):
            monkeypatch.setattr(sharing, "others", lambda _, pid=pid: [pid])
            with pytest.raises(ConflictError, match=said):
                mount_paths.require_unshared(entry)
