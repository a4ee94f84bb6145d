"""Records the packs that a working copy has uploaded and that no version names yet, so that a
restart need not upload them again.

One line of text a pack, appended as soon as the pack is durable in the store:

    <pack id, 32 hex> <size> <directory offset> <directory length> <entries>\\n

The file is a hint and is never synced: a torn, lost or wrong line costs one upload. A reader proves
each pack by reading its directory, and checks the condemned lists, before it relies on the pack.
Any thread may append.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterable
from pathlib import Path

from cowfs.base import log
from cowfs.base.errors import InvalidInputError
from cowfs.base.failpoints import hit
from cowfs.base.ids import PackId
from cowfs.store.packs import PackReceipt

_log = log.get("uploads")


class UploadLog:
    """path None: nothing is remembered beyond the process."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._lock = threading.Lock()

    def load(self) -> list[PackReceipt]:
        try:
            lines = self._path.read_text("ascii", "replace").splitlines() if self._path is not None else []
        except FileNotFoundError:
            return []
        found = {}
        for line in lines:
            with contextlib.suppress(ValueError, InvalidInputError):
                pack, *numbers = line.split()
                size, offset, length, entries = map(int, numbers)
                found[pack] = PackReceipt(PackId.from_hex(pack), size, offset, length, entries)
        return list(found.values())

    def append(self, receipt: PackReceipt) -> None:
        if self._path is not None:
            self._write("a", [receipt])
            hit("upload-pack-noted")

    def replace(self, receipts: Iterable[PackReceipt]) -> None:
        """Replaces the entries after a commit by those of packs that are still in no version."""
        kept = list(receipts)
        if self._path is not None and (kept or self._path.exists()):
            self._write("w", kept)

    def _write(self, mode: str, receipts: Iterable[PackReceipt]) -> None:
        assert self._path is not None
        lines = "".join(
            f"{some.pack.hex()} {some.size_bytes} {some.directory_offset} {some.directory_length} {some.entries}\n"
            for some in receipts
        )
        try:
            with self._lock, self._path.open(mode, encoding="ascii") as file:
                file.write(lines)
        except OSError as error:  # for example a full disk: nothing depends on the file
            _log.info("%s cannot be written: %s", self._path, error.strerror)
