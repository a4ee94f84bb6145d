"""What `cowfs status` says of mounts that cannot go on as they are."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cowfs.api.mounts.overview import Status
from cowfs.api.mounts.summaries import DeadMount, MountSummary, WorkingCopySummary
from cowfs.base.ids import VersionId
from cowfs.cli.machine.status import _advice, _text
from cowfs.control.messages import MountStatus, WriterStatus

pytestmark = pytest.mark.quick

WRITER = WriterStatus(True, False, 3, None, 1.0, 0, None, 0, (), None)


def status(writer: WriterStatus) -> Status:
    details = MountStatus(
        pid=7,
        registration="0123456789abcdef",
        mount_path="/m",
        source="data",
        store_url="file:///s",
        store_id="00" * 16,
        volume="data",
        read_only=False,
        is_scratch=False,
        version=None,
        head_number=1,
        since_ns=0,
        cache_dir="/c",
        working_copy="/w",
        transport="device",
        unsupervised="it was not asked for",
        inodes_in_memory=1,
        memory_bytes=1,
        abandoned_loads=0,
        waiting=None,
        credentials_problem=None,
        writer=writer,
    )
    mount = MountSummary(
        mount_path="/m",
        volume="data",
        store_url="file:///s",
        version=None,
        is_read_only=False,
        kind="fuse",
        is_detached=False,
        pid=7,
        since_ns=0,
        working_copy="/w",
        has_uncommitted=writer.is_dirty,
        transport="device",
        problem=None,
        details=details,
    )
    return Status([mount], [], [])


def test_nothing_is_advised_while_all_is_well() -> None:
    assert _advice(status(WRITER)) == []
    assert "uncommitted  " in _text(status(WRITER), is_all=False)


def test_a_lost_lease_is_shown_with_what_to_do() -> None:
    found = status(replace(WRITER, lease_lost="volume data is now being written by ada\x1b[2J"))
    assert "uncommitted, lease lost" in _text(found, is_all=False)
    (line,) = _advice(found)
    assert "written by ada" in line
    assert "\x1b" not in line
    assert "cowfs fork data NAME" in line
    assert "cowfs unmount data --discard" in line


def test_a_scratch_that_lost_its_volume_is_committed_under_another_name() -> None:
    found = status(replace(WRITER, lease_lost="volume made is now being written by ada"))
    scratch = replace(found, mounts=[replace(found.mounts[0], kind="scratch")])
    assert _text(scratch, is_all=False).splitlines()[1].split()[1] == "scratch"
    (line,) = _advice(scratch)
    assert "cowfs commit /m --name NAME" in line
    assert "`cowfs unmount /m`)" in line
    assert "fork" not in line


def test_work_that_was_overtaken_is_shown_with_what_to_do() -> None:
    found = status(replace(WRITER, overtaken_by=VersionId(b"\xab" * 32)))
    assert "uncommitted, overtaken" in _text(found, is_all=False)
    (line,) = _advice(found)
    assert "another writer has made version abababababab meanwhile" in line
    assert "cowfs fork data NAME" in line
    (mount,) = found.mounts
    assert mount.details is not None
    based_on_it = replace(mount.details, version=VersionId(b"\xab" * 32))
    (line,) = _advice(replace(found, mounts=[replace(mount, details=based_on_it)]))
    assert "another writer has taken the volume over" in line
    assert "abababababab" not in line, "its own base is no newer version"


def test_overtaken_work_of_a_detached_mount_is_saved_once_that_has_ended() -> None:
    found = status(replace(WRITER, overtaken_by=VersionId(b"\xab" * 32)))
    (line,) = _advice(replace(found, mounts=[replace(found.mounts[0], is_detached=True)]))
    assert (
        line.index("Once nobody uses the mount")
        < line.index("cowfs unmount data --force")
        < line.index("cowfs fork data")
    )


def test_a_dead_daemon_is_shown_with_its_volume() -> None:
    found = Status([], [], [DeadMount("/m", "data", None, False, "fuse")])
    assert _text(found, is_all=False).splitlines()[1].split()[:3] == ["data", "daemon", "died"]
    (line,) = _advice(found)
    assert "cowfs mount" not in line, "its store is not known"
    assert "`cowfs unmount /m`" in line


def test_a_dead_daemon_is_mounted_again_from_its_own_store(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever store has work of a volume of that name."""
    monkeypatch.setenv("COWFS_STORE", "file:///default")
    work = WorkingCopySummary("/w", None, "data", "file:///other", None, True, None, None)
    for store_url, command in (
        ("file:///s", "`cowfs mount data PATH --store file:///s`"),
        ("file:///default", "`cowfs mount data PATH`"),
    ):
        found = Status([], [work], [DeadMount("/m", "data", store_url, False, "fuse")])
        (line,) = _advice(found)
        assert command in line
        assert "what was written is kept" in line
        assert store_url in _text(found, is_all=False).splitlines()[-1]
    (line,) = _advice(Status([], [], [DeadMount("/m", "data", "file:///s", True, "fuse")]))
    assert "kept" not in line, "nothing was written"
    (line,) = _advice(Status([], [], [DeadMount("/m", "data", None, False, "scratch")]))
    assert "kept" not in line
    assert "what was not committed there is gone" in line
    assert "`cowfs unmount /m`" in line
