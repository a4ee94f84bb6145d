"""Downloads: what is on this machine afterwards is what the version has; what is there already is
not fetched; what was killed goes on."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from cowfs.blocking import RWVolume, Volume
from cowfs.errors import ConflictError, InvalidInputError, InvalidStateError, NotFoundError
from cowfs.session.local_files import LocalFiles
from cowfs.store.packs import PackReader
from tests.api.conftest import place
from tests.api.test_uploading import expected, in_source, tree, upload

__all__ = ["place", "tree"]


@pytest.fixture
def volume(tree: Path) -> RWVolume:
    volume: RWVolume = Volume.new("data")
    upload(volume, tree)
    return volume


def modes(root: Path) -> dict[str, int]:
    return {name: seen.mode for name, seen in in_source(root).items()}


def test_what_went_in_comes_out(place: Path, tree: Path, volume: RWVolume, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)
    done = volume.files.download()
    assert (done.files, done.symlinks, done.unchanged, done.is_new) == (6, 2, 0, False)
    assert in_source(place / "volumes" / "data") == expected(tree)
    assert (place / "volumes" / "data" / "sparse").stat().st_blocks * 512 < 4 << 20, "holes stay holes"
    assert not list((place / "c").glob("??")), "no chunk is kept in the cache"
    version = volume.history()[0]
    assert version.files.download("sub/link", place / "out/").files == 1, "a link that is named is followed"
    assert version.files.download("sub", place / "sub").files == 2
    assert in_source(place / "sub") == in_source(tree / "sub")
    for path in ("missing", "sub/missing", "big/x"):
        with pytest.raises((NotFoundError, InvalidInputError)):
            version.files.download(path, place / "x")


def test_what_is_there_is_not_fetched(
    place: Path, tree: Path, volume: RWVolume, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = place / "out"
    volume.files.download("/", out)
    fetched: list[int] = []
    really_read = PackReader.read_each

    def counted(self: PackReader, *of: object) -> object:
        fetched.append(1)
        return really_read(self, *of)  # type: ignore[arg-type]

    monkeypatch.setattr(PackReader, "read_each", counted)
    assert (volume.files.download("/", out).unchanged, fetched) == (5, [])
    (out / "sub" / "small").unlink()
    assert (volume.files.download("/", out).unchanged, fetched) == (4, [1])
    assert in_source(out) == expected(tree)


def test_what_differs_is_replaced_as_told(place: Path, tree: Path, volume: RWVolume) -> None:
    out = place / "out"
    volume.files.download("/", out)
    (out / "big").unlink()
    (out / "sub" / "small").write_text("mine and newer")
    with pytest.raises(ConflictError, match="sub/small"):
        volume.files.download("/", out)
    assert not (out / "big").exists(), "nothing is written before"
    volume.files.download("/", out, overwrite="newer")
    assert ((out / "sub" / "small").read_text(), (out / "big").exists()) == ("mine and newer", True)
    os.utime(out / "sub" / "small", ns=(0, 1))
    volume.files.download("/", out, overwrite="newer")
    assert in_source(out)["sub/small"] == expected(tree)["sub/small"]
    (out / "sub" / "small").write_text("mine")
    volume.files.download("/", out, overwrite="always")
    assert {name: seen.content for name, seen in in_source(out).items()} == {
        name: seen.content for name, seen in expected(tree).items()
    }
    with pytest.raises(InvalidInputError):
        volume.files.download("/", out, overwrite="never")  # type: ignore[arg-type]


def test_work_that_is_not_committed_is_told_of(place: Path, volume: RWVolume) -> None:
    volume.files.write("new", b"x")
    with pytest.raises(InvalidStateError, match="uncommitted"):
        volume.files.download("/", place / "out")
    volume.commit()
    assert volume.files.download("/", place / "out").files == 7
    volume.unmount()


def test_nothing_is_written_outside(place: Path, volume: RWVolume) -> None:
    out = place / "out"
    (out / "elsewhere").mkdir(parents=True)
    os.symlink(out / "elsewhere", out / "sub")
    with pytest.raises(InvalidInputError):
        volume.files.download("/", out, overwrite="always")
    assert os.listdir(out / "elsewhere") == []
    with pytest.raises(InvalidInputError, match="for cowfs alone"):
        volume.files.download("/", place / "store" / "x")


KILLED = """
import os, signal, sys
from cowfs.blocking import Volume
from cowfs.session.local_files import LocalFiles
really_put = LocalFiles.put

def put(self, path, pieces, **attributes):
    def dying():
        for piece in pieces:
            yield piece
            if path == b"big":
                os.kill(os.getpid(), signal.SIGKILL)
    really_put(self, path, dying(), **attributes)

LocalFiles.put = put
Volume.version("data").files.download("/", sys.argv[1])
"""


def test_killed_it_goes_on(place: Path, tree: Path, volume: RWVolume) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))}
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(place / "out")], env=environment, capture_output=True, text=True
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    left = [name for name in os.listdir(place / "out") if name.startswith(".cowfs-")]
    assert len(left) >= 1, "half of a file"
    with LocalFiles(os.fsencode(place / "out")) as local:

        def watched() -> object:
            yield 0, b"x"
            volume.files.download("/", place / "out")
            [mine] = [name for name in os.listdir(place / "out") if name.startswith(".cowfs-")]
            assert mine not in left, "what somebody writes at this moment stays"

        local.put(b"beside", watched(), mode=0o644, mtime_ns=1)  # type: ignore[arg-type]
    (place / "out" / "beside").unlink()
    assert in_source(place / "out") == expected(tree)
    assert stat.S_ISREG((place / "out" / "big").stat().st_mode)
