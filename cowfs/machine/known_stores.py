"""Remembers each store that this machine has used: its identity, and the highest records of its
volumes and tags that were seen.

    <state dir>/stores/<16 hex of the URL's hash>.json              which store, and whether it is encrypted
        {"format": 1, "url", "store_id", "cipher", "since_ns"}      cipher: its check value, or "plain"; absent: not known
    <state dir>/stores/<16 hex>/<volume>/head@<n>@<check>           the highest head that was seen, and its `check`
    <state dir>/stores/<16 hex>/<volume>/tag@<tag>@<n>@<check>      the highest record of a tag
    <state dir>/stores/<16 hex>/.store/keys@<n>@<check>             the highest record of keys, of an encrypted store

This is an aid, not a promise: if the state directory cannot be written, nothing is remembered and
nothing fails. A mark is an empty file whose name holds all information, so it exists completely or
not at all. A higher mark is made before the lower one is removed, and the highest counts: processes
that write at the same time never lower each other's marks. The time of a mark is when it was seen;
the time of a store's JSON file is its last use, give or take RENEWED_S.

The existence of the JSON file says that a store was used there, whatever the file contains.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from cowfs.base import clock, config, private_directories
from cowfs.base.errors import AccessDeniedError, CowfsError
from cowfs.base.fast_dataclass import dataclass
from cowfs.base.ids import StoreId

FORMAT = 1
PLAIN = "plain"
OF_STORE = ".store"
"""Takes the place of a volume name, which never begins so, for marks of the store itself."""
RENEWED_S = 3600.0
TWO = "two"
"""Takes the place of a check if two records were seen under one number."""
MOST_STORES = 256
"""Stores with remembered volumes; the least recently used ones are forgotten."""
MOST_VOLUMES = 10_000
"""Volumes of a store. Further ones are not remembered."""
MOST_TAGS = 1000
"""Tags of a volume. Further ones are not remembered."""


@dataclass(frozen=True)
class Known:
    """cipher: as in the file; None: not known. last_ns: time of the last use."""

    store_id: StoreId
    cipher: str | None
    last_ns: int


@dataclass(frozen=True)
class Mark:
    """The highest record of a sequence that was seen, and its `check`. place: path of its file."""

    number: int
    check: str
    place: str = ""

    @property
    def seen_ns(self) -> int | None:
        """When it was seen; None: the file is gone."""
        try:
            return os.stat(self.place).st_mtime_ns
        except OSError:
            return None


class KnownStore:
    """The memory of the store at one URL. Thread-safe. A sequence is named by its volume and "head"
    or "tag@<name>"."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._read: Known | None = None
        self._root = ""  # of the volumes, set at the first access, which checks that it is private
        self._counts: dict[str, int] = {}  # entries of each directory that was listed

    def load(self) -> Known | None:
        """AccessDeniedError: other users can change the record."""
        try:
            place = note(self._url)
            found = json.loads(place.read_bytes())
            cipher, last_ns = found.get("cipher"), place.stat().st_mtime_ns
            self._read = Known(StoreId.from_hex(found["store_id"]), cipher and str(cipher), last_ns)
            return self._read
        except AccessDeniedError:
            raise
        except (OSError, ValueError, KeyError, TypeError, AttributeError, CowfsError):
            return None

    def remember(self, store_id: StoreId, cipher: str) -> None:
        """Records the identity of the store at this URL."""
        before = self._read or self.load()
        with suppress(OSError, CowfsError):
            place = note(self._url)
            if before is not None and (before.store_id, before.cipher) == (store_id, cipher):
                if clock.now_ns() - before.last_ns > RENEWED_S * 1e9:
                    os.utime(place)
                return
            if before is not None and before.store_id != store_id:
                self.forget()
            record = {
                "format": FORMAT,
                "url": self._url,
                "store_id": store_id.hex(),
                "cipher": cipher,
                "since_ns": clock.now_ns(),
            }
            private_directories.make(place.parent)
            beside = place.with_name(f"{place.name}.{clock.random_bytes(8).hex()}")
            try:
                beside.write_bytes(json.dumps(record).encode())
                os.replace(beside, place)
                self._read = None
            except BaseException:
                beside.unlink(missing_ok=True)
                raise

    def forget(self) -> None:
        """Forgets the store and all its volumes."""
        with suppress(OSError, CowfsError):
            place = note(self._url)
            place.unlink(missing_ok=True)
            shutil.rmtree(place.with_suffix(""), ignore_errors=True)
        self._counts.clear()
        self._read = None

    def newest(self, volume: str, series: str) -> Mark | None:
        return self.marks(volume, series).get(series)

    def marks(self, volume: str, series: str = "") -> dict[str, Mark]:
        """The marks of every sequence of the volume, or of `series`. Removes lower ones. If the
        store has shown two records under the highest number, both files stay, and the mark's check
        is that of neither, so that every comparison fails until one is accepted."""
        try:
            place = self._place(volume)
            names = os.listdir(place)
        except (OSError, CowfsError):
            return {}
        found: dict[str, Mark] = {}
        for name in names:
            if not name.startswith(series):
                continue
            of, *rest = name.rsplit("@", 2)
            if len(rest) != 2 or not rest[0].isdecimal():
                continue
            mark, before = Mark(int(rest[0]), rest[1], f"{place}/{name}"), found.get(of)
            if before is not None and mark.number == before.number:
                found[of] = replace(before, check=TWO)
                continue
            lower = mark if before is not None and mark.number < before.number else before
            if lower is not mark:
                found[of] = mark
            if lower is not None:
                with suppress(OSError):
                    os.unlink(lower.place)
        self._counts[volume] = len(names)
        return found

    def saw(self, volume: str, series: str, number: int, check: str, before: Mark | None) -> None:
        """Marks a record as seen. It is higher than `before`, the result of `newest`."""
        with suppress(OSError, CowfsError):
            if before is None and self._counts.get(volume, 0) > MOST_TAGS:
                return
            place = self._place(volume)
            path = f"{place}/{series}@{number}@{check}"
            try:
                _make(path)
            except FileNotFoundError:
                if not self._has_room():
                    return
                private_directories.make(note(self._url).parent)
                private_directories.make_unchecked(Path(place))
                _make(path)
            if before is None:
                self._counts[volume] = self._counts.get(volume, 0) + 1
            elif before.place and before.place != path:
                os.unlink(before.place)

    def accept(self, volume: str, series: str, now: tuple[int, str] | None) -> None:
        """Replaces the mark by this record, lower or not; None: removes it."""
        with suppress(OSError, CowfsError):
            place = self._place(volume)
            for name in os.listdir(place):
                if name.startswith(f"{series}@"):
                    os.unlink(f"{place}/{name}")
        if now is not None:
            self.saw(volume, series, *now, None)

    def volumes(self) -> list[str]:
        """The volumes with marks."""
        with suppress(OSError, CowfsError):
            return sorted(name for name in os.listdir(self._place("")) if name != OF_STORE)
        return []

    def _place(self, volume: str) -> str:
        if not self._root:
            self._root = str(note(self._url).with_suffix(""))
        return f"{self._root}/{volume}"

    def _has_room(self) -> bool:
        """Whether one more volume may be remembered."""
        count = self._counts.get("")
        if count is None:
            count = len(self.volumes())
            if count == 0:
                _leave_out_oldest(note(self._url).parent)
        self._counts[""] = count + 1
        return count < MOST_VOLUMES


def was_used(url: str) -> bool:
    """AccessDeniedError: other users can change the record."""
    try:
        return note(url).exists()
    except AccessDeniedError:
        raise
    except (OSError, CowfsError):
        return False


def note(url: str) -> Path:
    """The path of the store's JSON file."""
    return config.state_subdirectory("stores") / f"{hashlib.sha256(url.encode()).hexdigest()[:16]}.json"


def _make(path: str) -> None:
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))


def _leave_out_oldest(stores: Path) -> None:
    """Makes room for one more store with remembered volumes."""
    try:
        found = sorted(_directories(stores))
    except FileNotFoundError:
        return
    for _, path in found[: max(0, len(found) - MOST_STORES + 1)]:
        shutil.rmtree(path, ignore_errors=True)


def _directories(stores: Path) -> Iterator[tuple[float, str]]:
    """The volume directory of each store, and when the store was last used."""
    with os.scandir(stores) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                try:
                    used_s = os.stat(f"{entry.path}.json").st_mtime
                except FileNotFoundError:
                    used_s = 0.0
                yield used_s, entry.path
