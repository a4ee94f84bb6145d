"""Who may write to a file, also if nothing shows him."""

from __future__ import annotations

import mmap
import os
import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from cowfs.machine import open_writers


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "dir").mkdir()
    (tmp_path / "dir" / "file").write_bytes(b"x" * mmap.PAGESIZE)
    (tmp_path / "other").write_bytes(b"x")
    (tmp_path / "link").symlink_to("/dev/null")
    os.mkfifo(tmp_path / "pipe")
    return tmp_path


def first_written(root: Path) -> bytes | None:
    return open_writers.first_written(os.fsencode(root))


def test_a_file_that_is_open_for_writing_or_mapped_so_is_found(root: Path) -> None:
    assert first_written(root) is None
    with (root / "dir" / "file").open("rb") as reading:
        with closing(mmap.mmap(reading.fileno(), 0, access=mmap.ACCESS_READ)):
            assert first_written(root) is None
    with (root / "dir" / "file").open("r+b") as writing:
        assert first_written(root) == b"dir/file"
        mapped = mmap.mmap(writing.fileno(), 0)
    assert first_written(root) == b"dir/file"
    mapped.close()
    assert first_written(root) is None


def test_another_file_system_tells_nothing_where_it_grants_no_leases(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (root / "other").open("ab"):
        assert first_written(root) == b"other"
        monkeypatch.setattr(open_writers, "_is_leased", lambda fd: False)
        assert first_written(root) is None


LEASE = """
import fcntl, os, signal, sys
signal.signal(signal.SIGIO, signal.SIG_IGN)
fd = os.open(sys.argv[1], os.O_RDWR)
fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_WRLCK)
print("has it", flush=True)
sys.stdin.readline()
"""


def test_a_file_that_somebody_has_a_lease_on_is_found(root: Path) -> None:
    """Opening it would wait until that is given up, as file servers do."""
    with subprocess.Popen(
        [sys.executable, "-c", LEASE, root / "other"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as leasing:
        assert leasing.stdout is not None
        assert leasing.stdout.readline() == "has it\n"
        assert first_written(root) == b"other"
        leasing.communicate("\n")
    assert first_written(root) is None


def test_who_opens_a_file_meanwhile_is_not_harmed_and_harms_nobody(root: Path) -> None:
    """No signal ends who looks, and nobody waits for longer than a look."""
    assert signal.getsignal(signal.SIGIO) == signal.SIG_DFL
    program = "import sys\nfor _ in range(3000): open(sys.argv[1], 'ab').close()\nprint('done')"
    with subprocess.Popen(
        [sys.executable, "-c", program, root / "other"], stdout=subprocess.PIPE, text=True
    ) as opening:
        while opening.poll() is None:
            first_written(root)
        assert opening.stdout is not None
        assert opening.stdout.read() == "done\n"
