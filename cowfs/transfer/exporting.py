"""Exports the files of a version as objects of a foreign bucket: one object a file, under its path.

    walk ─▶ object of the last export, unchanged on both sides? ─yes─▶ left alone
                                                                └─no──▶ put, by THREADS helpers

A record in the bucket, RECORD, states for each object its content (`VersionTree.content_id`) and
the state it had when it was put. An object is left alone only if the listing shows exactly that
state and the version has exactly that content. Comparing thus reads no objects, and an object that
another program replaced is put again. The record is written every RECORD_S and at the end, also by
an export that fails or is interrupted; without a record, everything is put.

Symbolic links to files become objects with the file's bytes. Other links, and names that no bucket
accepts, are refused before anything is put. Directories exist only in the keys of their files: an
empty one leaves nothing. Permissions and times are not kept.
"""

from __future__ import annotations

import json
import os
import re
import stat
import threading
from collections.abc import Callable, Iterable, Iterator, Set
from concurrent.futures import Future
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from cowfs.base import clock, interruptible
from cowfs.base.errors import (
    CorruptError,
    CowfsError,
    InvalidInputError,
    NotFoundError,
    SourceChangedError,
    UnavailableError,
)
from cowfs.base.fast_dataclass import dataclass
from cowfs.base.hints import Command
from cowfs.base.thread_pool import Helpers
from cowfs.format import keys
from cowfs.store.origin import OriginObject
from cowfs.store.origin.contract import object_url
from cowfs.transfer import links
from cowfs.transfer.imports.object_tree import RECORD
from cowfs.transfer.upload.upload_plan import Uploaded, is_left_out
from cowfs.transfer.upload.upload_reading import Stopped
from cowfs.version.commit import Progress, ProgressListener

if TYPE_CHECKING:
    from cowfs.store.origin.open_origin import RepeatingOrigin
    from cowfs.transfer.version_tree import VersionAttr, VersionTree

RECORD_S = 30.0
THREADS = 8
WAITING_MAX = 256
REPORT_S = 0.1
ZEROS = bytes(1 << 20)
SHOWN = 5


_OF_A_STORE = re.compile(rf"(?:(?<=/)|^)(?:{'|'.join(map(re.escape, keys.PREFIXES))})")
_IN_A_STORE = re.compile(r"([0-9a-f]{2})/\1[0-9a-f]{62}")
"""A pack or a version, in a listing that begins at a store's packs/ or versions/."""


@dataclass(frozen=True)
class _Item:
    key: str
    path: bytes  # of the file itself, not of a link to it
    attr: VersionAttr


class Export:
    """at: the exported path; a file becomes one object, under its name."""

    def __init__(
        self,
        tree: VersionTree,
        at: bytes,
        target: RepeatingOrigin,
        *,
        excluded: Callable[[bytes], bool],
        progress: ProgressListener | None,
    ) -> None:
        self.done = Uploaded()
        self._tree = tree
        self._at = at
        self._target = target
        self._excluded = excluded
        self._progress = progress
        self._stop = threading.Event()
        self._lock = threading.Lock()  # guards the next two
        self._made: dict[str, list[Any]] = {}
        self._done_bytes = 0
        self._told_s = self._recorded_s = clock.monotonic_s()

    def run(self, *, delete: bool) -> Uploaded:
        is_tree = stat.S_ISDIR(self._tree.stat(self._at).mode)
        items = self._items()
        there = {found.key: found for found in self._target.list()}
        known = self._read_record() if RECORD in there else {}
        gone = self._find_removable(items, there) if delete and is_tree else []
        self._require_no_store((*(item.key for item in items), *gone), there.keys() - known.keys())
        total = sum(item.attr.size for item in items)
        interruptible.run(lambda: self._put_all(items, there, known, total), self._end)
        self._target.delete(gone)
        self.done.removed = len(gone)
        if known != self._made:
            self._write_record(self._made)
        self._tell(len(items), total, is_last=True)
        return self.done

    def _end(self) -> None:
        self._stop.set()
        self._target.hurry()

    def _find_removable(self, items: list[_Item], there: dict[str, OriginObject]) -> list[str]:
        """Keys of existing objects that are neither in the version nor excluded."""
        found = sorted(there.keys() - {item.key for item in items} - {RECORD})
        return [key for key in found if not is_left_out(self._excluded, os.fsencode(key))]

    def _require_no_store(self, touched: Iterable[str], foreign: Set[str]) -> None:
        """InvalidInputError: keys of a cowfs store would be written or deleted. foreign: existing
        keys that no export has put."""
        stores = {key.removesuffix(keys.STORE) for key in foreign if key.rpartition("/")[2] == keys.STORE}
        in_stores = {prefix for key in foreign if (prefix := _store_of(key)) in stores}
        for key in touched:
            prefix = _store_of(key)
            if prefix in in_stores or (prefix is None and key in foreign and _IN_A_STORE.fullmatch(key)):
                raise InvalidInputError(
                    f"{object_url(self._target.url, key)} belongs to a cowfs store, and the export would replace or delete it",
                    hint="Choose another target, or leave the store out (--exclude, exclude=).",
                )

    # -- the files to export

    def _items(self) -> list[_Item]:
        """Lists the files to export. InvalidInputError: names and links that cannot be objects."""
        found: list[_Item] = []
        refused: list[str] = []
        attr = self._tree.stat(self._at)
        if not stat.S_ISDIR(attr.mode):
            return [self._single(attr)]
        waiting = [(self._at, b"")]
        while waiting:
            directory, relative = waiting.pop()
            self.done.directories += 1
            for name, attr in self._tree.list(directory):
                path, key = _below(directory, name), _below(relative, name)
                if self._excluded(key + b"/" if stat.S_ISDIR(attr.mode) else key):
                    continue
                if stat.S_ISDIR(attr.mode):
                    waiting.append((path, key))
                elif stat.S_ISREG(attr.mode) or stat.S_ISLNK(attr.mode):
                    try:
                        found.append(self._meet(key, path, attr))
                    except (OSError, UnicodeDecodeError):
                        refused.append(os.fsdecode(path))
                else:
                    self.done.skip(os.fsdecode(path))
        if refused:
            more = f" and {len(refused) - SHOWN} more" if len(refused) > SHOWN else ""
            raise InvalidInputError(
                f"these cannot be objects: {', '.join(map(repr, refused[:SHOWN]))}{more}",
                hint="Links that lead to no file, names that are not UTF-8, and the name of the export's own record must be left "
                "out with --exclude (exclude=).",
            )
        return sorted(found, key=lambda item: item.key)

    def _single(self, attr: VersionAttr) -> _Item:
        try:
            return self._meet(self._at.rpartition(b"/")[2], self._at, attr)
        except (OSError, UnicodeDecodeError):
            raise InvalidInputError(
                f"{os.fsdecode(self._at)!r} cannot be an object",
                hint="A device, a pipe or a socket, a name that is not UTF-8, and the name of the export's own record cannot. "
                f"{Command('cp')} copies a file under any name.",
            ) from None

    def _meet(self, key: bytes, path: bytes, attr: VersionAttr) -> _Item:
        name = key.decode()
        if name == RECORD:
            raise OSError
        if stat.S_ISLNK(attr.mode):
            path = links.follow(self._tree, path)
            attr = self._tree.stat(path)
            self.done.symlinks += 1
        if not stat.S_ISREG(attr.mode):
            raise OSError
        self.done.files += 1
        self.done.bytes += attr.size
        return _Item(name, path, attr)

    # -- putting

    def _put_all(
        self, items: list[_Item], there: dict[str, OriginObject], known: dict[str, list[Any]], total: int
    ) -> None:
        waiting: list[Future[None]] = []
        with Helpers(THREADS, name="cowfs-export") as helpers:
            try:
                for done, item in enumerate(items):
                    if self._stop.is_set():
                        raise Stopped
                    content = self._tree.content_id(item.path)
                    entry, found = known.get(item.key), there.get(item.key)
                    if found is not None and entry == [content, found.state, found.size] and found.state:
                        self.done.unchanged += 1
                        self._note(item, entry)
                    else:
                        self._tree.expect(item.path, item.attr)
                        waiting.append(helpers.submit(self._put, item, content))
                    if len(waiting) > WAITING_MAX:
                        waiting.pop(0).result()
                    self._tell(done - len(waiting), total)
                    self._record_now_and_then(known)
                while waiting:
                    waiting.pop(0).result()
                    self._tell(len(items) - len(waiting), total)
                    self._record_now_and_then(known)
            except BaseException as error:
                self._end()
                helpers.shutdown(wait=True, cancel_futures=True)
                ended = [error, *(each.exception() for each in waiting if not each.cancelled())]
                if not any(isinstance(each, UnavailableError) for each in ended):
                    with suppress(CowfsError):
                        self._write_record(known | self._made)
                raise

    def _put(self, item: _Item, content: str) -> None:
        made = self._target.put(item.key, item.attr.size, lambda: self._bytes(item))
        self._note(item, [content, made.state, made.size])

    def _note(self, item: _Item, entry: list[Any]) -> None:
        with self._lock:
            self._made[item.key] = entry
            self._done_bytes += item.attr.size

    def _bytes(self, item: _Item) -> Iterator[bytes]:
        """All bytes of the file, its holes as zeros."""
        end = 0
        for offset, data in self._tree.pieces(item.path):
            if self._stop.is_set():
                raise Stopped
            while end < offset:
                yield ZEROS[: offset - end]
                end += min(offset - end, len(ZEROS))
            if data:
                yield data
                end += len(data)

    # -- the record

    def _read_record(self) -> dict[str, list[Any]]:
        """Returns {} if there is no valid record: then everything is put."""
        try:
            found = self._target.look(RECORD)
            record = json.loads(self._target.read(found, 0, found.size)) if found is not None else {}
        except (ValueError, CorruptError, NotFoundError, SourceChangedError):
            return {}
        is_one = isinstance(record, dict) and record.get("record") == "export" and record.get("format") == 1
        files = record.get("files") if is_one else None
        return files if isinstance(files, dict) else {}

    def _record_now_and_then(self, known: dict[str, list[Any]]) -> None:
        """Writes the record every RECORD_S, so that a killed export need not begin anew. known: the
        entries of an earlier export."""
        if clock.monotonic_s() - self._recorded_s >= RECORD_S:
            with self._lock:
                files = known | self._made
            self._write_record(files)

    def _write_record(self, files: dict[str, list[Any]]) -> None:
        record = {"record": "export", "format": 1, "files": dict(sorted(files.items()))}
        data = json.dumps(record, ensure_ascii=False, separators=(",", ":")).encode()
        self._target.put(RECORD, len(data), lambda: iter([data]))
        self._recorded_s = clock.monotonic_s()

    def _tell(self, done: int, total: int, *, is_last: bool = False) -> None:
        if self._progress is None or not (is_last or clock.monotonic_s() - self._told_s >= REPORT_S):
            return
        self._told_s = clock.monotonic_s()
        self._progress(Progress("copy", max(done, 0), self.done.files, self._done_bytes, total))


def _store_of(key: str) -> str | None:
    """The prefix of the store that a key would belong to; None: no store has such keys."""
    if key.rpartition("/")[2] == keys.STORE:
        return key.removesuffix(keys.STORE)
    found = _OF_A_STORE.search(key)
    return key[: found.start()] if found else None


def _below(directory: bytes, name: bytes) -> bytes:
    return directory + b"/" + name if directory else name
