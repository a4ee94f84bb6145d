"""The local disk that cowfs is compared with: a fresh ext4 image, mounted for the duration of a
test.

An image of its own rather than a directory, because some cases remount the file system read-only.
Where the machine has no loop devices, a directory on the disk of the checkout serves, if that is
ext4, and those cases are not compared.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

IMAGE_BYTES = 512 << 20


@dataclass(frozen=True)
class ReferenceDisk:
    path: Path
    can_remount: bool


@contextmanager
def reference_disk(scratch: Path) -> Iterator[ReferenceDisk]:
    """An ext4 file system below scratch."""
    image, path = scratch / "ext4.image", scratch / "ext4"
    path.mkdir()
    with image.open("wb") as file:
        file.truncate(IMAGE_BYTES)
    subprocess.run(["mkfs.ext4", "-q", "-F", image], check=True)
    mounted = subprocess.run(["mount", "-o", "loop", image, path], capture_output=True, text=True)
    if mounted.returncode:
        image.unlink()
        kind = subprocess.run(["stat", "-f", "-c", "%T", path], check=True, capture_output=True, text=True).stdout
        assert "ext" in kind, f"no loop device ({mounted.stderr.strip()}) and {path} is not on ext4 but on {kind}"
        yield ReferenceDisk(path, can_remount=False)
        return
    try:
        yield ReferenceDisk(path, can_remount=True)
    finally:
        subprocess.run(["umount", path], check=True)
        image.unlink()
