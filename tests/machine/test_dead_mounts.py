"""Whether a mount is dead is asked with a deadline, because a mount that hangs would hang whoever
asks."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from cowfs.errors import ConflictError
from cowfs.machine import dead_mounts, mount_table, mounting, registry

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="mounts without a helper")


@pytest.fixture
def silent(tmp_path: Path) -> Iterator[tuple[str, int]]:
    """A mount whose server never answers, and the descriptor that keeps it alive."""
    path = registry.canonical(tmp_path / "silent")
    os.mkdir(path)
    fd = mounting.mount(path, mounting.options("silent", read_only=False, allow_other=None))
    mount = mounting.verify(path, read_only=False)
    try:
        yield path, fd
    finally:
        mounting.unmount(mount, lazy=True)


def test_a_mount_that_hangs_is_not_dead_and_hangs_nobody(silent: tuple[str, int]) -> None:
    path, fd = silent
    assert dead_mounts.find_at(path) is None
    assert path not in [mount.path for mount in dead_mounts.find()]
    assert not mounting.detach_dead(path)
    with pytest.raises(ConflictError, match="is a mount already"):
        mounting.prepare(path)
    os.close(fd)


def test_a_mount_without_a_server_is_taken_off(silent: tuple[str, int]) -> None:
    path, fd = silent
    os.close(fd)
    assert path in [mount.path for mount in dead_mounts.find()]
    assert mounting.detach_dead(path)
    assert mount_table.mount_at(path) is None
    assert not mounting.detach_dead(path)
    assert not mounting.prepare(path)
