"""Working copies: state survives whole, the lock is exclusive across processes, unknown formats are
refused untouched."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cowfs.api.mounts import overview
from cowfs.base import clock
from cowfs.base.ids import StoreId, VersionId, WriteId
from cowfs.errors import (
    AccessDeniedError,
    CorruptError,
    CowfsError,
    InvalidInputError,
    InvalidStateError,
    LeaseHeldError,
    NoSpaceError,
    NotFoundError,
    ReadOnlyError,
    UnsupportedFormatError,
)
from cowfs.format.heads import Intent
from cowfs.machine import daemon_log, lock, meta_dirs, mount_table, mounting, reservation
from cowfs.machine import state as states
from cowfs.machine import working_copy as working_copies
from cowfs.machine.lock import LockHolder
from cowfs.machine.processes import start_time, this_process
from cowfs.machine.state import State
from cowfs.machine.working_copy import WorkingCopy, list_working_copies
from cowfs.writer.acquiring import check_cache_dir

pytestmark = pytest.mark.quick

STORE_ID = StoreId(bytes(range(16)))

intents = st.builds(
    Intent,
    number=st.integers(0, 2**64 - 1),
    write_id=st.binary(min_size=16, max_size=16).map(WriteId),
    version_id=st.binary(min_size=32, max_size=32).map(VersionId),
    layer=st.integers(0, 2**63),
)
any_state = st.builds(
    State,
    store_url=st.text(max_size=50),
    store_id=st.binary(min_size=16, max_size=16).map(StoreId),
    volume=st.text(max_size=50),
    head_number=st.integers(0, 2**64 - 1),
    base_version=st.none() | st.binary(min_size=32, max_size=32).map(VersionId),
    committed_layer=st.integers(0, 2**63),
    epoch=st.integers(0, 2**63),
    intent=st.none() | intents,
    pin=st.none() | st.text(min_size=1, max_size=30),
    restoring=st.lists(st.text(max_size=30), max_size=3).map(tuple),
)


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("COWFS_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))
    return tmp_path


def a_state(volume: str = "data") -> State:
    return State("file:///store", STORE_ID, volume, 3, VersionId(b"v" * 32))


def made(volume: str = "data") -> WorkingCopy:
    working_copy = WorkingCopy.locate(STORE_ID, volume)
    working_copy.create_if_absent(a_state(volume))
    return working_copy


def in_another_process(code: str) -> str:
    prelude = "from cowfs.machine.working_copy import *\nfrom cowfs.machine.lock import *\nfrom pathlib import Path\n"
    done = subprocess.run([sys.executable, "-c", prelude + code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


@given(any_state)
def test_state_comes_back_as_it_was(state: State) -> None:
    assert states.parse(state.to_json(), "state.json") == state


@given(any_state, st.data())
def test_cut_state_is_corrupt_not_misread(state: State, data: st.DataObject) -> None:
    whole = state.to_json().rstrip()
    cut = whole[: data.draw(st.integers(0, len(whole) - 1))]
    with pytest.raises(CorruptError):
        states.parse(cut, "state.json")


def test_unknown_format_is_refused_and_left_alone() -> None:
    working_copy = made()
    record = json.loads(working_copy.state_path.read_text()) | {"format": 99}
    working_copy.state_path.write_text(json.dumps(record))
    with pytest.raises(UnsupportedFormatError, match="format 99") as caught:
        _ = WorkingCopy(working_copy.path).state
    assert "used this working copy last" in caught.value.hint, "who made it may be older than its format"
    assert json.loads(working_copy.state_path.read_text()) == record


def test_unknown_fields_are_ignored_and_old_states_have_no_checksum() -> None:
    record = json.loads(a_state().to_json()) | {"colour": "blue"}
    del record["checksum"]
    assert states.parse(json.dumps(record).encode(), "x") == a_state()


@given(any_state, st.data())
def test_a_flipped_bit_is_never_another_state(state: State, data: st.DataObject) -> None:
    """With a higher committed layer, the journal of work that was kept was removed."""
    flipped = bytearray(state.to_json())
    bit = data.draw(st.integers(0, len(flipped) * 8 - 1))
    flipped[bit // 8] ^= 1 << bit % 8
    with suppress(CorruptError, UnsupportedFormatError):
        assert states.parse(bytes(flipped), "state.json") == state


def test_a_crash_while_writing_leaves_the_old_state(monkeypatch: pytest.MonkeyPatch) -> None:
    working_copy = made()
    monkeypatch.setattr(os, "replace", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt), working_copy.lock(LockHolder.this_process("/mnt")):
        working_copy.rebase(9, None)
    assert WorkingCopy(working_copy.path).state == a_state()


def test_first_creator_wins() -> None:
    working_copy = made()
    working_copy.create_if_absent(State("file:///other", STORE_ID, "data", 9, None))
    assert WorkingCopy(working_copy.path).state == a_state()
    assert {path.name for path in working_copy.path.iterdir()} == {"state.json"}


def test_base_follows_published_intent() -> None:
    working_copy = made()
    intent = Intent(4, WriteId(b"w" * 16), VersionId(b"n" * 32), 7)
    with working_copy.lock(LockHolder.this_process("/mnt")):
        working_copy.record_lease(2, "pins/x")
        working_copy.record_intent(intent)
        assert WorkingCopy(working_copy.path).state.intent == intent
        working_copy.record_published(intent)
    after = WorkingCopy(working_copy.path).state
    assert (after.head_number, after.base_version, after.committed_layer) == (4, intent.version_id, 7)
    assert (after.intent, after.epoch, after.pin) == (None, 2, "pins/x")


def test_a_version_of_the_same_tree_brings_no_committed_layer_back() -> None:
    """Its commit has frozen none. Were the number to fall, journals that are committed would be
    replayed."""
    working_copy = made()
    with working_copy.lock(LockHolder.this_process("/mnt")):
        for number, layer in ((4, 7), (5, 0)):
            working_copy.record_published(Intent(number, WriteId(b"w" * 16), VersionId(b"n" * 32), layer))
    after = WorkingCopy(working_copy.path).state
    assert (after.head_number, after.committed_layer) == (5, 7)


def test_changes_need_the_lock() -> None:
    with pytest.raises(InvalidStateError):
        made().rebase(9, None)


def test_second_process_is_refused_with_who_where_since() -> None:
    working_copy = made()
    code = (
        f"w = WorkingCopy(Path({str(working_copy.path)!r}))\ntry:\n w.lock(LockHolder.this_process('/b')).__enter__()\n"
    )
    code += "except Exception as e: print(type(e).__name__, e.details['pid'], e.details['where'], e.message)"
    with working_copy.lock(LockHolder.this_process("/mnt/a")):
        said = in_another_process(code)
        assert WorkingCopy(working_copy.path).holder() is not None
    assert said.startswith(f"LeaseHeldError {os.getpid()} /mnt/a")
    assert working_copy.holder() is None
    assert "LeaseHeldError" not in in_another_process(code)


@pytest.mark.parametrize("is_seen", [False, True])
def test_a_holder_in_another_container_is_not_named_by_a_pid_that_means_another_process_here(
    monkeypatch: pytest.MonkeyPatch, is_seen: bool
) -> None:
    """Nor is its mount said to be one that can be unmounted here."""
    first, second = made(), made()
    there = replace(this_process(), host="another pid:[4026531999]")
    seen = mount_table.MountInfo(1, "0:40", "/mnt/a", "fuse.cowfs", f"cowfs:{first.volume}", frozenset())
    monkeypatch.setattr(mount_table, "mount_at", lambda path: seen if is_seen else None)
    with first.lock(replace(LockHolder.this_process("/mnt/a"), process=there)):
        with pytest.raises(LeaseHeldError) as caught:
            second.lock(LockHolder.this_process("/mnt/b")).__enter__()
        shown = overview.working_copy_summary(second)
    assert shown is not None
    assert (shown.pid, shown.problem) == (None, overview.USED_ELSEWHERE)
    assert (caught.value.details["where"], "pid" in caught.value.details) == ("/mnt/a", False)
    assert str(os.getpid()) not in caught.value.hint
    assert "another container or pid namespace" in caught.value.hint
    assert "unmount it where it was mounted" in caught.value.hint.lower()
    assert ("Work at /mnt/a" in caught.value.hint) == is_seen


def test_a_holder_that_is_about_to_end_is_waited_for() -> None:
    ending, next_one = made(), made()
    holder = LockHolder.this_process("/mnt/a")
    locked: list[str] = []

    def take() -> None:
        with next_one.lock(LockHolder.this_process("/mnt/b")):
            locked.append("b")

    waiter = threading.Thread(target=take)
    with ending.lock(holder):
        with pytest.raises(LeaseHeldError):
            next_one.lock(holder).__enter__()
        ending.mark_ending()
        assert ending.holder() == replace(holder, is_ending=True)
        waiter.start()
        waiter.join(0.3)
        assert waiter.is_alive(), "it neither has the lock nor was it refused"
        locked.append("a")
    waiter.join(60)
    assert locked == ["a", "b"]


def test_a_holder_that_may_be_given_up_is_waited_for_until_it_is_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    opening, refused, pauses = made(), made(), []
    holder = replace(LockHolder.this_process("/mnt/a"), is_opening=True)

    def pause(wait_s: float) -> None:
        pauses.append(wait_s)
        if len(pauses) == 3:
            opening.mark_ready()

    monkeypatch.setattr(clock, "sleep_s", pause)
    with opening.lock(holder):
        with pytest.raises(LeaseHeldError):
            refused.lock(LockHolder.this_process("/mnt/b")).__enter__()
        assert len(pauses) == 3
        assert opening.holder() == replace(holder, is_opening=False)
        opening.mark_ending()
        assert opening.holder() == replace(holder, is_opening=False, is_ending=True)


def test_a_lock_that_is_held_for_a_moment_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tidying and discarding hold it; a mount at that moment is not refused."""
    working_copy = made()
    held = working_copy.lock(LockHolder.make_brief("(tidying)"))
    held.__enter__()
    pauses: list[float] = []

    def pause(wait_s: float) -> None:
        pauses.append(wait_s)
        if len(pauses) == 3:
            held.__exit__(None, None, None)

    monkeypatch.setattr(clock, "sleep_s", pause)
    with made().lock(LockHolder.this_process("/mnt")):
        assert len(pauses) == 3


def test_who_was_waited_for_long_is_nameless_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be held up between removing its name and letting go."""
    working_copy = made()
    held = working_copy.lock(LockHolder.make_brief("(tidying)"))
    held.__enter__()
    pauses: list[float] = []

    def pause(wait_s: float) -> None:
        pauses.append(wait_s)
        if len(pauses) == 1:
            os.truncate(working_copy.lock_path, 0)
            monkeypatch.setattr(clock, "monotonic_s", lambda: began_s + lock.ENDING_S / 2)
        else:
            held.__exit__(None, None, None)

    began_s = clock.monotonic_s()
    monkeypatch.setattr(clock, "monotonic_s", lambda: began_s)
    monkeypatch.setattr(clock, "sleep_s", pause)
    with made().lock(LockHolder.this_process("/mnt")):
        assert len(pauses) == 2


def test_lock_of_a_killed_process_is_free() -> None:
    working_copy = made()
    in_another_process(
        f"import os\nc = WorkingCopy(Path({str(working_copy.path)!r})).lock(LockHolder.this_process('/b'))\nc.__enter__()\nos._exit(0)"
    )
    assert working_copy.lock_path.stat().st_size > 0  # its text is still there, and not believed
    assert working_copy.holder() is None
    with working_copy.lock(LockHolder.this_process("/mnt")):
        pass


def test_a_killed_holder_whose_files_are_still_being_closed_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process of many threads is dead for all to see before its last thread is gone."""
    working_copy = made()
    killed = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    process = replace(this_process(), pid=killed.pid, started=start_time(killed.pid) or 0)
    killed.kill()
    killed.wait()
    lock.acquire(working_copy.path / "lock", replace(LockHolder.this_process("/mnt"), process=process), volume="v")
    pauses: list[float] = []

    def pause(wait_s: float) -> None:
        pauses.append(wait_s)
        lock._close_inherited()

    monkeypatch.setattr(clock, "sleep_s", pause)
    with working_copy.lock(LockHolder.this_process("/mnt")):
        assert len(pauses) == 1


def test_who_looks_at_the_lock_of_a_container_that_has_ended_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """For that he locks it himself, and the name in it is the one that was left there."""
    working_copy = made()
    there = replace(this_process(), host="machine pid:[1]")
    left = replace(LockHolder.this_process("/mnt/a"), process=there)
    working_copy.lock_path.write_bytes(left.to_json())
    with working_copy.lock_path.open() as look:
        fcntl.flock(look, fcntl.LOCK_EX)
        monkeypatch.setattr(clock, "sleep_s", lambda wait_s: fcntl.flock(look, fcntl.LOCK_UN))
        with working_copy.lock(LockHolder.this_process("/mnt/b")):
            assert (holder := lock.holder(working_copy.lock_path))
            assert holder.mount_path == "/mnt/b"


def test_who_writes_without_a_mount_is_waited_for() -> None:
    working_copy = made()
    place = f"process {os.getpid()}, without a mount"
    with working_copy.lock(LockHolder.this_process(place)), pytest.raises(LeaseHeldError, match=place) as caught:
        WorkingCopy(working_copy.path).lock(LockHolder.this_process("/mnt")).__enter__()
    assert "Wait until it ends" in caught.value.hint
    assert "unmount" not in caught.value.hint


def test_delete_removes_all_and_is_refused_while_held() -> None:
    working_copy = made()
    working_copy.journal_dir.mkdir()
    (working_copy.journal_dir / "0000000000000001.log").write_bytes(b"x")
    with working_copy.lock(LockHolder.this_process("/mnt")), pytest.raises(LeaseHeldError):
        WorkingCopy(working_copy.path).delete()
    assert working_copy.exists
    working_copy.delete()
    assert not working_copy.path.exists()
    working_copy.delete()


def test_deleted_while_locked_can_be_made_again() -> None:
    working_copy = made()
    with working_copy.lock(LockHolder.this_process("/mnt")):
        working_copy.delete()
        again = made()
    assert again.state == a_state()


DELETES = """
import os, sys
from pathlib import Path
from cowfs.machine.working_copy import WorkingCopy
WorkingCopy(Path(sys.argv[1])).delete()
"""


def test_a_deletion_that_is_cut_short_leaves_no_working_copy_in_part() -> None:
    """The journal without its state was replayed, onto whatever version was the newest by then."""
    working_copy, other = made(), made("other")
    working_copy.journal_dir.mkdir()
    (working_copy.journal_dir / f"{1:016x}.log").write_bytes(bytes(200))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "COWFS_FAILPOINT": "work-deleted"}
    killed = subprocess.run([sys.executable, "-c", DELETES, str(working_copy.path)], env=environment, check=False)
    assert killed.returncode == -signal.SIGKILL
    assert not working_copy.path.exists()
    assert [each.path for each in list_working_copies()] == [other.path]
    assert len(list(working_copy.path.parent.iterdir())) == 2
    overview.status()
    assert [*working_copy.path.parent.iterdir()] == [other.path], "whoever comes next removes it"


def test_what_is_being_deleted_is_left_to_who_does_it(monkeypatch: pytest.MonkeyPatch) -> None:
    working_copy = made()
    root = working_copy.path.parent
    monkeypatch.setattr(working_copies, "_remove", lambda deleted: None)
    with working_copy.lock(LockHolder.this_process("/mnt")):
        working_copy.delete()
        monkeypatch.undo()
        working_copies.sweep(root)
        assert len(list(root.iterdir())) == 1
    working_copies.sweep(root)
    assert not list(root.iterdir())


def test_a_sweep_follows_no_link(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "state.json").write_bytes(b"somebody's")
    (tmp_path / ".deleted-0000000000000000").symlink_to(tmp_path / "work")
    working_copies.sweep(tmp_path)
    assert (tmp_path / "work" / "state.json").exists()


def test_a_directory_that_is_deleted_between_two_looks_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    really_make, refused = Path.mkdir, [FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))]

    def make(path: Path, **options: Any) -> None:
        if refused:
            raise refused.pop()
        really_make(path, **options)

    monkeypatch.setattr(Path, "mkdir", make)
    lock.make_directory(tmp_path / "copy")
    assert (tmp_path / "copy").is_dir()


@pytest.mark.parametrize("is_link", [True, False])
def test_a_directory_that_cannot_be_renamed_is_deleted_in_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_link: bool
) -> None:
    """A user's link stays; so do mounts, and what lies in an image."""
    working_copy = made()
    if is_link:
        working_copy.path.rename(tmp_path / "large")
        working_copy.path.symlink_to(tmp_path / "large")
    else:
        refused = OSError(errno.EXDEV, os.strerror(errno.EXDEV))
        monkeypatch.setattr(Path, "rename", lambda *_: (_ for _ in ()).throw(refused))
    with working_copy.lock(LockHolder.this_process("/mnt")):
        (working_copy.journal_dir / f"{1:016x}.log").write_bytes(bytes(200))
    working_copy.delete()
    assert working_copy.path.is_symlink() is is_link
    assert not is_link or not list(working_copy.path.iterdir())
    assert is_link or not working_copy.path.exists()
    assert list_working_copies() == []


@pytest.mark.parametrize("size_bytes", [0, 128, 129])
def test_a_journal_without_a_state_is_never_given_another_one(size_bytes: int) -> None:
    working_copy = made()
    with working_copy.lock(LockHolder.this_process("/mnt")):
        working_copy.state_path.unlink()
        journal, segment = working_copy.journal_dir / f"{3:016x}.log", working_copy.staging_dir / f"{1:016x}.seg"
        journal.write_bytes(bytes(size_bytes))
        segment.write_bytes(b"x")
        if size_bytes > 128:
            with pytest.raises(InvalidStateError, match=r"its state\.json"):
                working_copy.clear_remains()
        else:
            working_copy.clear_remains()
        assert (journal.exists(), segment.exists()) == (size_bytes > 128,) * 2


def has_work(working_copy: WorkingCopy) -> bool:
    return WorkingCopy(working_copy.path).may_have_uncommitted


def test_uncommitted_work_is_a_journal_with_records() -> None:
    working_copy = made()
    with working_copy.lock(LockHolder.this_process("/mnt")):
        working_copy.record_lease(1, "pins/x")
    assert not has_work(working_copy)
    journal = working_copy.journal_dir / f"{1:016x}.log"
    journal.write_bytes(bytes(128))
    assert not has_work(working_copy), "a header"
    journal.write_bytes(bytes(129))
    assert has_work(working_copy)
    journal.rename(journal.with_suffix(".ckpt"))
    assert has_work(working_copy), "a checkpoint stands for the journals that are gone"
    intent = Intent(4, WriteId(b"w" * 16), VersionId(b"n" * 32), 1)
    with working_copy.lock(LockHolder.this_process("/mnt")):
        working_copy.record_intent(intent)
        working_copy.record_published(intent)
    assert not has_work(working_copy), "its layer is committed"
    working_copy.delete_if_committed()
    assert working_copy.exists, "a pin says that its writer did not end cleanly"
    with working_copy.lock(LockHolder.this_process("/mnt")):
        working_copy.record_lease(1, None)
    working_copy.delete_if_committed()
    assert not working_copy.path.exists()


def test_work_moves_to_another_volume_whole() -> None:
    working_copy, other = made(), WorkingCopy.locate(STORE_ID, "other")
    working_copy.journal_dir.mkdir()
    (working_copy.journal_dir / f"{1:016x}.log").write_bytes(b"work")
    working_copy.move_to(other, 1)
    assert not working_copy.path.exists()
    state = WorkingCopy(other.path).state
    assert (state.volume, state.head_number, state.base_version) == ("other", 1, a_state().base_version)
    assert (other.journal_dir / f"{1:016x}.log").read_bytes() == b"work"
    with other.lock(LockHolder.this_process("/mnt")):
        pass


def test_listing_shows_only_whole_ones(place: Path) -> None:
    made("b")
    made("a")
    (place / "state" / "working" / "half").mkdir()
    assert [found.volume for found in list_working_copies()] == ["a", "b"]
    assert list_working_copies(place / "elsewhere") == []


def test_missing_state_is_not_found() -> None:
    with pytest.raises(NotFoundError):
        _ = WorkingCopy.locate(STORE_ID, "nothing").state


def test_place_that_is_a_file_is_refused(place: Path) -> None:
    (place / "state").write_text("in the way")
    with pytest.raises(AccessDeniedError) as caught:
        made()
    assert "COWFS_STATE_DIR" in caught.value.hint


def test_a_full_disk_under_the_state_is_no_space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(fd: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(NoSpaceError, match="cannot be written"):
        states.store(tmp_path / "state.json", a_state())


def test_a_disk_without_room_for_a_working_copy_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: object, *_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    monkeypatch.setattr(os, "mkdir", full)
    with pytest.raises(NoSpaceError, match="the local disk is full"):
        made()


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (errno.EROFS, ReadOnlyError),
        (errno.ENOSPC, NoSpaceError),
        (errno.EPERM, AccessDeniedError),
        (errno.ENAMETOOLONG, InvalidInputError),
        (errno.ENOSYS, InvalidInputError),
        (errno.EEXIST, AccessDeniedError),
    ],
)
def test_a_place_that_cannot_be_made_is_told_of_as_what_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, kind: type[CowfsError]
) -> None:
    def refused(path: object, *_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number), str(path))

    monkeypatch.setattr(os, "mkdir", refused)
    made_of: list[tuple[Callable[[], object], str]] = [
        (made, "COWFS_STATE_DIR"),
        (lambda: daemon_log.open_log(tmp_path / "none" / "daemon.log"), "COWFS_STATE_DIR"),
        (lambda: meta_dirs.remember(tmp_path / "elsewhere"), "COWFS_STATE_DIR"),
        (lambda: check_cache_dir(tmp_path / "cache"), "COWFS_CACHE_DIR"),
    ]
    if number != errno.EEXIST:
        made_of.append((lambda: mounting.prepare_directory(str(tmp_path / "mount")), "another path"))
    for make, elsewhere in made_of:
        with pytest.raises(CowfsError, match=os.strerror(number)) as caught:
            make()
        assert type(caught.value) is kind
        assert elsewhere in caught.value.hint


def test_a_lock_is_let_go_when_the_directory_cannot_be_used() -> None:
    working_copy = made()
    working_copy.journal_dir.write_text("in the way")
    for _ in range(2):
        with (
            pytest.raises(AccessDeniedError, match="cannot be used"),
            working_copy.lock(LockHolder.this_process("/mnt")),
        ):
            raise AssertionError("there is no journal")
    working_copy.journal_dir.unlink()
    with working_copy.lock(LockHolder.this_process("/mnt")):
        assert working_copy.staging_dir.is_dir()


def test_a_forked_child_does_not_keep_the_locks(place: Path) -> None:
    """A data loader's workers inherit every descriptor of a process that is mounting or discarding
    at that moment."""
    working_copy = WorkingCopy.locate(STORE_ID, "forking")
    path = str(place / "mount-point")
    reading, writing = os.pipe()
    with working_copy.lock(LockHolder.this_process("/m")), reservation.first_free([path]) as free:
        assert free == path
        child = os.fork()
        if child == 0:
            os.close(writing)
            os.read(reading, 1)
            os._exit(0)
    os.close(reading)
    try:
        with working_copy.lock(LockHolder.this_process("/m")), reservation.first_free([path]) as free:
            assert free == path
    finally:
        os.close(writing)
        os.waitpid(child, 0)
