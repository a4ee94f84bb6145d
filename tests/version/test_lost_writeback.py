"""A local disk that answers with other bytes than were written: no version ever holds them."""

from __future__ import annotations

from pathlib import Path

import pytest

from cowfs.errors import CorruptError
from cowfs.store import ObjectStore
from tests.version.working_volume import ReadingVolume, WorkingVolume

DATA = bytes(range(1, 251)) * 4000


def lose(home: Path, needle: bytes) -> None:
    """Zeros in place of these bytes in every segment."""
    for path in (home / "working" / "staging").glob("*.seg"):
        data = path.read_bytes()
        while (at := data.find(needle)) >= 0:
            data = data[:at] + bytes(len(needle)) + data[at + len(needle) :]
        with path.open("r+b") as file:
            file.write(data)


def test_a_commit_of_lost_bytes_names_the_file_until_it_is_overwritten(store: ObjectStore, tmp_path: Path) -> None:
    home = tmp_path / "a"
    with WorkingVolume(store, "a", home) as volume:
        volume.mkdir(b"d")
        volume.write(b"d/lost", DATA + b"the needle")
        volume.write(b"kept", DATA)
        lose(home, b"the needle")
        for _ in range(2):
            with pytest.raises(CorruptError, match=r"d/lost") as refused:
                volume.commit("never")
            assert "kept" not in str(refused.value)
            assert refused.value.hint
        volume.write(b"d/lost", DATA, offset=0)
        volume.write(b"d/lost", b"the needle", offset=len(DATA))
        base = volume.commit("whole again")
    assert base.version_id is not None
    with ReadingVolume(store, base.version_id, tmp_path / "r") as version:
        assert version.tree() == {b"d": None, b"d/lost": DATA + b"the needle", b"kept": DATA}


def test_a_background_upload_passes_lost_bytes_over(store: ObjectStore, tmp_path: Path) -> None:
    home = tmp_path / "a"
    with WorkingVolume(store, "a", home) as volume:
        volume.write(b"a lost", DATA + b"the needle")
        volume.write(b"kept", DATA)
        lose(home, b"the needle")
        assert volume.committer.upload_quiet(0) >= len(DATA)
        assert volume.committer.upload_quiet(0) == 0
        assert [path for path, _ in volume.committer.lost.paths()] == ["a lost"]
        with pytest.raises(CorruptError, match=r"a lost"):
            volume.commit("never")
