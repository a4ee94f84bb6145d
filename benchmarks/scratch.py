"""What the programs here have in common: their options, a directory for all they write, and small
files.

Nothing is removed through a mount: what is still mounted below a directory is detached first, or
everything is left.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.systems import servers
from cowfs.base import clock
from cowfs.machine import mount_table
from cowfs.machine.mount_table import MountInfo


def options(description: str, **defaults: float | bool | str) -> argparse.Namespace:
    """Of the command line: one of the type of each default, and --directory, where to write."""
    parser = argparse.ArgumentParser(description=description)
    for name, default in defaults.items():
        flag = f"--{name.replace('_', '-')}"
        if isinstance(default, bool):
            parser.add_argument(flag, action="store_true")
        else:
            parser.add_argument(flag, type=type(default), default=default)
    parser.add_argument("--directory", type=Path)
    return parser.parse_args()


@contextmanager
def directory(above: Path | None) -> Iterator[Path]:
    """A new one, removed afterwards. cowfs keeps there what it keeps on this machine."""
    place = Path(tempfile.mkdtemp(prefix="cowfs-bench-", dir=above))
    os.environ["COWFS_STATE_DIR"] = str(place / "state")
    os.environ["COWFS_CACHE_DIR"] = str(place / "cache")
    try:
        yield place
    finally:
        remove(place)


def remove(place: Path) -> None:
    for mount in reversed(_below(place)):
        servers.unmount(Path(mount.path))
    if not _below(place):
        with contextlib.suppress(OSError):
            shutil.rmtree(place)


def _below(place: Path) -> list[MountInfo]:
    return [mount for mount in mount_table.mounts() if mount.path.startswith(f"{place}/")]


def small_files(root: Path, count: int, size: int, *, per_directory: int) -> None:
    """root/dN/fM of random bytes. dN: numbered by its first file."""
    for number in range(count):
        path = small_file(root, number, per_directory)
        if number % per_directory == 0:
            path.parent.mkdir(parents=True)
        path.write_bytes(clock.random_bytes(size))


def small_file(root: Path, number: int, per_directory: int) -> Path:
    return root / f"d{number - number % per_directory}" / f"f{number}"
