"""`state.json` of a working copy: the version that its journal and staging are based on.

    {"format": 1, "store_url", "store_id", "volume",
     "head_number", "base_version" | null,         the last published head, its number n and version
     "committed_layer",                            journals of layers up to this one may be removed
     "epoch",                                      of the last lease taken; 0 before the first
     "intent": {"number", "write_id", "version_id", "layer"} | null,
     "pin" | null,                                 object key of the pin that protects this working copy's base
     "restoring": [name, …],                       directories at the root in which restores make files; may be absent
     "moving": {"volume", "head_number"},          only while the directory gets the name of that volume
     "checksum"}                                   of all the others; older cowfs write none

Guarantees: a state that is read back was written completely (the file is replaced atomically, file
and directory are fsynced) and not changed by the disk. An unknown format number is refused, and
nothing is touched. Unknown fields are ignored. The checksum is BLAKE3, in hex, of the other
fields as `_canonical` writes them. Refuses: credentials; `store_url` is a canonical URL that never
has any.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from blake3 import blake3

from cowfs.base import clock, config
from cowfs.base.errors import (
    CorruptError,
    CowfsError,
    NoSpaceError,
    NotFoundError,
    UnavailableError,
    UnsupportedFormatError,
)
from cowfs.base.fast_dataclass import dataclass
from cowfs.base.ids import StoreId, VersionId, WriteId
from cowfs.format.heads import Intent

FORMAT = 1


@dataclass(frozen=True)
class State:
    """One consistent state of a working copy. head_number and base_version move together."""

    store_url: str
    store_id: StoreId
    volume: str
    head_number: int
    base_version: VersionId | None
    committed_layer: int = 0
    epoch: int = 0
    intent: Intent | None = None
    pin: str | None = None
    restoring: tuple[str, ...] = ()
    moving: tuple[str, int] | None = None

    def as_moved(self, volume: str) -> State:
        """The state as read in the working copy of this volume: before a move that of the volume
        that moves, after it that of the other volume."""
        if self.moving is None:
            return self
        if self.moving[0] != volume:
            return replace(self, moving=None)
        return replace(self, volume=volume, head_number=self.moving[1], epoch=0, intent=None, moving=None)

    def to_json(self) -> bytes:
        intent = self.intent
        record: dict[str, Any] = {
            "format": FORMAT,
            "store_url": self.store_url,
            "store_id": self.store_id.hex(),
            "volume": self.volume,
            "head_number": self.head_number,
            "base_version": self.base_version.hex() if self.base_version else None,
            "committed_layer": self.committed_layer,
            "epoch": self.epoch,
            "intent": intent
            and {
                "number": intent.number,
                "write_id": intent.write_id.hex(),
                "version_id": intent.version_id.hex(),
                "layer": intent.layer,
            },
            "pin": self.pin,
            "restoring": list(self.restoring),
        }
        if self.moving is not None:
            record["moving"] = {"volume": self.moving[0], "head_number": self.moving[1]}
        return json.dumps(record | {"checksum": _checksum(record)}, indent=1).encode() + b"\n"


def parse(data: bytes, where: str) -> State:
    """The state in `data`; `where` names the file in errors."""
    try:
        record: Any = json.loads(data)
        found = record["format"]
    except (ValueError, KeyError, TypeError) as error:
        raise _damage_error(where) from error
    if found != FORMAT:
        raise UnsupportedFormatError(
            f"{where} has format {found}; this cowfs reads format {FORMAT}",
            hint="Use the cowfs that used this working copy last, or a newer one; nothing was changed.",
        )
    if "checksum" in record and record.pop("checksum") != _checksum(record):
        raise _damage_error(where)
    try:
        return _from_record(record)
    except (KeyError, TypeError, ValueError, CowfsError) as error:
        raise _damage_error(where) from error


def _checksum(record: dict[str, Any]) -> str:
    return blake3(_canonical(record)).hexdigest()


def _canonical(record: dict[str, Any]) -> bytes:
    return json.dumps(record, sort_keys=True, separators=(",", ":")).encode()


def _from_record(record: dict[str, Any]) -> State:
    intent, base, moving = record["intent"], record["base_version"], record.get("moving")
    return State(
        store_url=str(record["store_url"]),
        store_id=StoreId.from_hex(record["store_id"]),
        volume=str(record["volume"]),
        head_number=int(record["head_number"]),
        base_version=VersionId.from_hex(base) if base else None,
        committed_layer=int(record["committed_layer"]),
        epoch=int(record["epoch"]),
        intent=_intent(intent) if intent else None,
        pin=record["pin"],
        moving=(str(moving["volume"]), int(moving["head_number"])) if moving else None,
        restoring=tuple(str(name) for name in record.get("restoring", ())),
    )


def _intent(record: dict[str, Any]) -> Intent:
    return Intent(
        number=int(record["number"]),
        write_id=WriteId.from_hex(record["write_id"]),
        version_id=VersionId.from_hex(record["version_id"]),
        layer=int(record["layer"]),
    )


def _damage_error(where: str) -> CorruptError:
    return CorruptError(
        f"{where} is not a cowfs working copy's state, or was changed",
        hint=f"Its directory, {os.path.dirname(where)}, may hold uncommitted work: keep it, and report this. The volume can be mounted "
        "without that work once the directory is moved away.",
    )


def load(path: Path) -> State:
    try:
        data = path.read_bytes()
    except FileNotFoundError as error:
        raise NotFoundError(f"{path.parent} holds no working copy", hint="Mount the volume to make one.") from error
    except OSError as error:
        raise config.inaccessible(path, error) from error
    return parse(data, str(path))


def store(path: Path, state: State) -> None:
    """Replaces the file; on stable storage when this returns. NoSpaceError, UnavailableError: the
    state is as it was."""
    try:
        replace_durably(path, state.to_json())
    except OSError as error:
        kind = NoSpaceError if error.errno in (errno.ENOSPC, errno.EDQUOT) else UnavailableError
        raise kind(
            f"{path} cannot be written: {error.strerror}",
            hint="Make the local disk usable again and repeat; nothing is lost.",
        ) from error


def store_if_absent(path: Path, state: State) -> None:
    """Makes the file unless there is one; on stable storage when this returns."""
    beside = path.with_name(f"{path.name}.{clock.random_bytes(8).hex()}")
    try:
        _write_synced(beside, state.to_json())
        with contextlib.suppress(FileExistsError):
            os.link(beside, path)
    finally:
        beside.unlink(missing_ok=True)
    sync_directory(path.parent)


def replace_durably(path: Path, data: bytes) -> None:
    """Writes data beside path, fsyncs, renames over it, fsyncs the directory: old or new after a
    crash."""
    beside = path.with_name(f"{path.name}.new")
    _write_synced(beside, data)
    os.replace(beside, path)
    sync_directory(path.parent)


def _write_synced(path: Path, data: bytes) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(fd)


def sync_directory(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
