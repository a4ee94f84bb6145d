"""Stamps of an upload's source files as this machine uploaded them last: inode number and time of
change (ctime), which no program can set.

Size and time of modification do not tell apart two files whose times were set, as build systems and
package managers do. So an upload from this machine records the stamp of each file that it has read
or found unchanged, by its path in the source. It reads a file whose stamp differs although size and
time are equal. A file without a stamp is judged by size and time alone: files that another machine
has uploaded, files beyond FILES_MAX, or after the loss of a record.

    <state dir>/uploads/<24 hex>.stamps     as `machine.folders.stamps` has it, for no version; the hex is of store, volume, place in
                                            the volume and path of the source

A stamp only makes an upload read more, so an old or lost record costs only reads. The RECORDS_MAX
most recent records are kept.

For the thread that runs the upload.
"""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from cowfs.base import config, private_directories
from cowfs.machine.folders import stamps
from cowfs.machine.folders.stamps import Stamps

if TYPE_CHECKING:
    from cowfs.transfer.copying import Attributes
    from cowfs.transfer.source_files import Stamp

FILES_MAX = 250_000
"""Files in one record; some 25 MB."""
RECORDS_MAX = 64
_INO = (1 << 64) - 1


class UploadStamps:
    def __init__(self, *what: bytes) -> None:
        """what: identifies this upload."""
        name = hashlib.sha256(b"\0".join(what)).hexdigest()[:24]
        self._path = config.state_subdirectory("uploads") / f"{name}.stamps"
        self._known = stamps.load(self._path, None) or {}
        self._seen: Stamps = {}

    def begin(self) -> None:
        """Starts a draft."""
        self._seen = {}

    def has_changed(self, path: bytes, attr: Attributes) -> bool:
        """Whether the path had another file, or other content, at the last upload."""
        known, ctime_ns = self._known.get(path), getattr(attr, "ctime_ns", None)
        return known is not None and (known.ino, known.ctime_ns) != (attr.ino & _INO, ctime_ns)

    def take(self, path: bytes, attr: Attributes, read: Stamp | None) -> None:
        """Records a file of the next version as it was read; None: as it was listed."""
        if len(self._seen) >= FILES_MAX or len(path) > stamps.PATH_MAX:
            return
        if read is not None:
            self._seen[path] = stamps.of(read.mode, read.ino & _INO, read.size, read.mtime_ns, read.ctime_ns)
        elif (ctime_ns := getattr(attr, "ctime_ns", None)) is not None:
            self._seen[path] = stamps.of(attr.mode, attr.ino & _INO, attr.size, attr.mtime_ns, ctime_ns)

    def store(self) -> None:
        """Stores the record after the version is published. If it cannot be written, the next
        upload uses the old record, or none."""
        with suppress(OSError):
            private_directories.make(self._path.parent)
            stamps.store(self._path, None, self._seen)
            _keep_newest(self._path.parent)


def _keep_newest(directory: Path) -> None:
    found = sorted(directory.glob("*.stamps"), key=lambda path: path.stat().st_mtime_ns, reverse=True)
    for path in found[RECORDS_MAX:]:
        os.unlink(path)
