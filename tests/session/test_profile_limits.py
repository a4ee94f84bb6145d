"""Profiles at their limits: what is recorded can always be replayed, and what is replayed takes
memory of a fixed size, whatever the file holds."""

from __future__ import annotations

import errno
import os
import random
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cowfs.control import MountOptions, SessionSpec
from cowfs.errors import CorruptError, NoSpaceError
from cowfs.format.profile import MAX_OFFSET, ReadRange
from cowfs.session import warming
from cowfs.session.profiles import profile_files, replaying
from cowfs.session.profiles.recording import Recorder
from cowfs.session.profiles.replaying import Replayer
from cowfs.store import ObjectStore
from tests.version.working_volume import WorkingVolume


def test_a_read_of_the_last_byte_that_a_file_may_have_is_recorded(store: ObjectStore, tmp_path: Path) -> None:
    """The engine rounds it out beyond the largest offset."""
    with WorkingVolume(store, "v", tmp_path / "v") as volume:
        volume.write(b"sparse", b"x", MAX_OFFSET - 1)
        recorder = Recorder(volume.engine, tmp_path / "profile", b"")
        assert volume.files.read(b"sparse", MAX_OFFSET - 1, 1) == b"x"
        recorder.finish()
    found = profile_files.load(tmp_path / "profile")
    assert [(each.path, each.offset + each.length) for each in found if each.length] == [(b"sparse", MAX_OFFSET)]


def test_a_file_that_is_too_large_for_a_profile_is_not_read_whole(tmp_path: Path) -> None:
    huge = tmp_path / "huge"
    huge.touch()
    os.truncate(huge, 1 << 43)  # more than there is memory
    with pytest.raises(CorruptError, match="not a profile"):
        profile_files.load(huge)


def test_a_profile_for_which_there_is_no_room_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(fd: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(NoSpaceError):
        profile_files.store(tmp_path / "profile", [])
    assert os.listdir(tmp_path) == []


def test_one_range_of_a_whole_large_file_is_fetched_in_parts(
    store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replaying, "WINDOW_BYTES", 1 << 20)
    with WorkingVolume(store, "v", tmp_path / "v") as volume:
        volume.write(b"large", random.Random(1).randbytes(8 << 20))
        volume.commit()
    asked: list[int] = []
    with WorkingVolume(store, "v", tmp_path / "w") as volume:
        load, is_done = volume.residency.load_chunks, threading.Event()

        def load_chunks(chunks: Any, *arguments: Any, **named: Any) -> None:
            asked.append(sum(chunk.raw_length for chunk in chunks))
            load(chunks, *arguments, **named)
            if sum(asked) >= 8 << 20:
                is_done.set()

        monkeypatch.setattr(volume.residency, "load_chunks", load_chunks)
        room: Any = SimpleNamespace(cacheable_bytes=lambda: 1 << 40)
        replayer = Replayer(volume.engine, volume.residency, room, [ReadRange(b"large", 0, MAX_OFFSET)], b"")
        replayer.start()
        assert is_done.wait(60)
        replayer.stop()
    assert sum(asked) == 8 << 20
    assert max(asked) < 3 << 20, "a window, and the chunk that filled it"


def test_a_large_file_is_warmed_in_parts(store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warming, "WINDOW_BYTES", 1 << 20)
    with WorkingVolume(store, "v", tmp_path / "v") as volume:
        volume.write(b"large", random.Random(1).randbytes(8 << 20))
        version = volume.commit().version_id
    settle: Any = warming.Warmer._settle
    asked: list[int] = []

    def settled(self: Any, window: Any, *arguments: Any) -> None:
        asked.append(sum(chunk.raw_length for chunk in window.chunks))
        settle(self, window, *arguments)

    monkeypatch.setattr(warming.Warmer, "_settle", settled)
    options = MountOptions(cache_dir=tmp_path / "cache").resolved()
    spec = SessionSpec(store_url=store.url, volume="v", mode="ro", version=str(version), options=options)
    with warming.warming(spec) as warmer:
        assert warmer.warm(b"large").fetched_bytes == 8 << 20
    assert sum(asked) == 8 << 20
    assert max(asked) < 3 << 20
