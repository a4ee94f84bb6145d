"""What killed scratch mounts leave behind is removed, wherever their daemon ran."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cowfs.machine import lock, scratch_directories
from cowfs.machine.lock import LockHolder


@pytest.mark.parametrize(
    ("changed", "is_removed"), [({"host": "another"}, True), ({"host": "another", "boot_id": "x"}, False)]
)
def test_what_a_killed_container_left_is_removed(tmp_path: Path, changed: dict[str, Any], is_removed: bool) -> None:
    """Of another machine nobody can tell whether it lives."""
    left = scratch_directories.locate("0" * 16, "v", meta_dir=tmp_path)
    holder = LockHolder.this_process(str(tmp_path / "mount"))
    holder = replace(holder, process=replace(holder.process, **changed))
    lock.acquire(left.lock_path, holder, volume="v")
    scratch_directories.sweep(tmp_path)
    assert left.path.exists(), "it has its lock"
    lock._close_inherited()  # as the kernel does when it is killed
    scratch_directories.sweep(tmp_path)
    assert left.path.exists() != is_removed
