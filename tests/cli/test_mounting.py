"""`cowfs mount NAME` of a volume that another machine writes to: it offers the last version."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cowfs.blocking import Volume
from tests.api.conftest import place
from tests.api.test_volumes_live import another_machine

__all__ = ["place"]

pytestmark = pytest.mark.mount


@pytest.fixture
def busy(place: Path) -> Iterator[Path]:
    """A volume with one version, mounted here; a file is not committed."""
    volume = Volume.new("busy")
    path = volume.mount()
    (path / "file").write_text("committed")
    volume.commit("one")
    (path / "draft").write_text("not committed")
    yield place
    volume.unmount(force=True)


def _environ(place: Path) -> dict[str, str]:
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path)),
        **another_machine(place),
    }


@pytest.mark.parametrize("answer", [b"y\n", b"\n", b"n\n"])
def test_a_second_person_is_offered_the_last_version(busy: Path, answer: bytes) -> None:
    path = busy / "mnt" / "theirs"
    terminal, end = pty.openpty()
    os.write(terminal, answer)
    done = subprocess.run(
        [sys.executable, "-m", "cowfs.cli", "mount", "busy", str(path)],
        stdin=end,
        stdout=subprocess.PIPE,
        stderr=end,
        timeout=120,
        env=_environ(busy),
        check=False,
    )
    os.close(end)
    said = os.read(terminal, 65536).decode()
    os.close(terminal)
    assert "volume busy is being written by" in said
    assert "Mount its last version read-only instead?" in said
    if answer == b"n\n":
        assert done.returncode == 5
        assert not path.exists()
        return
    assert done.returncode == 0, said
    assert "Mounted busy read-only" in said
    assert [each.name for each in path.iterdir()] == ["file"]
    with pytest.raises(OSError, match="Read-only"):
        (path / "file").write_text("x")
    subprocess.run(
        [sys.executable, "-m", "cowfs.cli", "unmount", str(path)], env=_environ(busy), timeout=120, check=True
    )


@pytest.mark.parametrize("options", [[], ["--json"], ["--foreground"]])
def test_a_program_gets_the_error_with_the_way_to_read(busy: Path, options: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "cowfs.cli", "mount", "busy", str(busy / "mnt" / "theirs"), *options],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        env=_environ(busy),
        check=False,
    )
    assert done.returncode == 5
    said = done.stdout + done.stderr
    assert "cowfs mount busy PATH --read-only" in said
    assert "Volume.version('busy').mount()" in said
    assert "read-only instead?" not in said
