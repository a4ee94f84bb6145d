"""`copy.json`: the record of the folder of a mount without FUSE.

    {"format": 3, "mount_path", "root_ino", "root_device", "root_mark", "root_mode", "root_mtime_ns", "is_made",
     "private", "stage", "store_url", "store_id", "volume", "version" | null, "read_only", "process"}

The folder is known by a random mark, an extended attribute of its own (`MARK`). Its inode number is
not enough: the number of a deleted directory is soon used again, and an overlay over several file
systems renumbers directories whenever it has dropped them from memory. If the file system supports
no such attribute, the numbers of inode and device decide; if they change, as at a reboot, the
folder does not count as the copy.

A record that cannot be parsed is refused, and nothing is changed.
"""

from __future__ import annotations

import json
import os
import re
import stat
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

from cowfs.base import clock, config
from cowfs.base.beneath import Root
from cowfs.base.errors import CorruptError, NotFoundError, UnsupportedFormatError
from cowfs.base.fast_dataclass import dataclass
from cowfs.base.hints import Command
from cowfs.base.ids import VersionId
from cowfs.machine import processes
from cowfs.machine.processes import ProcessIdentity

FORMAT = 3
MARK = "user.cowfs.copy"
_PRIVATE = re.compile(r"\.cowfs-filling-[0-9a-f]{16}")

Stage = Literal["filling", "arriving", "whole", "leaving"]


@dataclass(frozen=True)
class CopyRecord:
    """root_mode, root_mtime_ns: of the version's root, for a folder that was made for the copy
    (is_made). private: name of the directory in the folder into which the version is written.
    version: of a read-only copy; that of a volume is its working copy's base."""

    mount_path: str
    root_ino: int
    root_device: int
    root_mark: str
    root_mode: int
    root_mtime_ns: int
    is_made: bool
    private: str
    stage: Stage
    store_url: str
    store_id: str
    volume: str
    version: str | None
    read_only: bool
    process: ProcessIdentity

    @classmethod
    def new(
        cls,
        root: Root,
        path: str,
        *,
        is_made: bool,
        version: VersionId | None,
        read_only: bool,
        **others: Any,
    ) -> CopyRecord:
        """A record for a folder that is about to be filled; sets its mark. others: root_mode,
        root_mtime_ns, store_url, store_id, volume."""
        found = os.fstat(root.fileno())
        return cls(
            mount_path=path,
            root_ino=found.st_ino,
            root_device=found.st_dev,
            root_mark=_set_mark(root),
            is_made=is_made,
            private=f".cowfs-filling-{clock.random_bytes(8).hex()}",
            stage="filling",
            version=version.hex() if version is not None else None,
            read_only=read_only,
            process=processes.this_process(),
            **others,
        )

    def to_json(self) -> bytes:
        record = {"format": FORMAT, **asdict(self), "process": self.process.to_record()}
        return json.dumps(record, indent=1).encode() + b"\n"

    def is_folder(self, root: Root) -> bool:
        """Whether `root` is the folder that was filled."""
        found = os.fstat(root.fileno())
        if self.root_mark:  # an overlay may renumber a directory at any time
            return mark_of(root) == self.root_mark
        return stat.S_ISDIR(found.st_mode) and (found.st_ino, found.st_dev) == (self.root_ino, self.root_device)


def load(path: Path) -> CopyRecord:
    """NotFoundError: there is no copy. UnsupportedFormatError, CorruptError: the record cannot be
    parsed."""
    keep = (
        f"Nothing was changed. Keep the copy's folder: {Command('upload')} publishes it to a volume. Then move {path.parent} away, and "
        "mount again."
    )
    try:
        record: dict[str, Any] = json.loads(path.read_bytes())
        if record.pop("format") != FORMAT:
            raise UnsupportedFormatError(
                f"{path} has a format that this cowfs does not know",
                hint=f"Commit and unmount this copy with the cowfs that made it. {keep}",
            )
        if not _PRIVATE.fullmatch(record["private"]):
            raise ValueError(f"{record['private']!r} is not a name of a private directory of cowfs")
        return CopyRecord(**{**record, "process": ProcessIdentity.from_record(record["process"])})
    except FileNotFoundError as error:
        raise NotFoundError(f"{path.parent} has no copy", hint="Mount the volume to make one.") from error
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptError(f"{path} is not a record of a copy", hint=keep) from error
    except OSError as error:
        raise config.inaccessible(path, error) from error


def _set_mark(root: Root) -> str:
    mark = clock.random_bytes(16).hex()
    try:
        os.setxattr(root.fileno(), MARK, mark.encode())
    except OSError:  # a file system without such attributes, or another user's directory
        return ""
    return mark


def mark_of(root: Root) -> str:
    """Empty without a mark."""
    try:
        return os.getxattr(root.fileno(), MARK).decode(errors="replace")
    except OSError:
        return ""
