"""Packs of a directory store as failing disks leave them."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from cowfs.base.ids import PackId
from cowfs.format import keys
from cowfs.format.pack import PackKind

KIND_AT = 10  # in a pack's header


def packs(store: Path, kind: PackKind) -> list[Path]:
    """Largest first."""
    found = [path for path in (store / "packs").rglob("*") if path.is_file() and len(path.name) == 32]
    return sorted((path for path in found if path.read_bytes()[KIND_AT] == kind), key=lambda path: -path.stat().st_size)


def id_of(path: Path) -> PackId:
    return PackId.from_hex(path.name)


def key_of(path: Path) -> str:
    return keys.pack(id_of(path))


def flip(path: Path, at: int | None = None) -> None:
    """One bit, in the middle unless it is said where."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2 if at is None else at] ^= 4
    _replace(path, bytes(data))


def cut(path: Path) -> None:
    data = path.read_bytes()
    _replace(path, data[: len(data) * 2 // 3])


def delete(path: Path) -> None:
    path.unlink()


def exchange(path: Path, other: Path) -> None:
    """Whole objects, each right in itself, under each other's keys."""
    data = path.read_bytes()
    _replace(path, other.read_bytes())
    _replace(other, data)


def _replace(path: Path, data: bytes) -> None:
    path.unlink()
    path.write_bytes(data)
    os.chmod(path, 0o600)


Damage = Callable[[Path], None]
