"""The mount table as the kernel writes it, and who uses a mount."""

from __future__ import annotations

import mmap
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from cowfs.machine import mount_table

pytestmark = [pytest.mark.quick, pytest.mark.mount]


@pytest.fixture
def tmpfs() -> Iterator[str]:
    """A file system of our own below a path full of characters the kernel escapes."""
    with tempfile.TemporaryDirectory(prefix="cowfs-test-") as directory:
        path = Path(directory) / "a b\tc\\d\n\udcff"
        path.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", "noexec", "some source", path], check=True)
        try:
            yield str(path)
        finally:
            subprocess.run(["umount", "-l", path], check=True)


def test_escaped_paths_are_found(tmpfs: str) -> None:
    mount = mount_table.mount_at(tmpfs)
    assert mount is not None
    assert (mount.file_system, mount.source) == ("tmpfs", "some source")
    assert {"rw", "noexec"} <= mount.options
    assert not mount.is_cowfs


def test_a_path_that_is_no_mount_point_has_none(tmpfs: str) -> None:
    assert mount_table.mount_at(tmpfs + "/below") is None
    assert mount_table.mount_at("/no/such/path") is None


def test_the_topmost_of_stacked_mounts_is_meant(tmpfs: str) -> None:
    subprocess.run(["mount", "-t", "tmpfs", "upper", tmpfs], check=True)
    try:
        mount = mount_table.mount_at(tmpfs)
        assert mount is not None
        assert mount.source == "upper"
    finally:
        subprocess.run(["umount", tmpfs], check=True)


@pytest.mark.parametrize(
    "use",
    [
        "import os, sys; fd = os.open(sys.argv[1] + '/f', os.O_RDONLY)",
        "import os, sys; os.chdir(sys.argv[1])",
        "import os, sys, mmap; fd = os.open(sys.argv[1] + '/f', os.O_RDWR); m = mmap.mmap(fd, 4096); os.close(fd)",
    ],
    ids=["open", "directory", "mapped"],
)
def test_users_are_found_by_what_they_hold(tmpfs: str, use: str) -> None:
    Path(tmpfs, "f").write_bytes(bytes(mmap.PAGESIZE))
    mount = mount_table.mount_at(tmpfs)
    assert mount is not None
    assert mount_table.users(mount) == []
    script = use + "; print('ready', flush=True); sys.stdin.read()"
    user = subprocess.Popen(
        [sys.executable, "-c", script, os.fsencode(tmpfs)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert user.stdout is not None
        assert user.stdout.readline() == "ready\n"
        assert mount_table.users(mount) == [user.pid]
        assert mount_table.command(user.pid).startswith("python")
    finally:
        user.communicate("", timeout=30)
    assert mount_table.users(mount) == []
