"""Reads and sets the quota of a volume."""

from __future__ import annotations

from cowfs.api import stores
from cowfs.base import byte_sizes
from cowfs.base.errors import InvalidInputError
from cowfs.version.names import described, near_names, quotas


def quota(name: str, named: stores.Named) -> int | None:
    """`Store.quota`."""
    store = stores.open_store(named)
    near_names.read_head(store.objects, name)
    return quotas.of(described.read(store.objects, name)) or None


def set_quota(name: str, named: stores.Named, size: int | str | None) -> None:
    """`Store.set_quota`."""
    quota_bytes = quotas.NONE if size is None else _bytes(size)
    quotas.save(stores.open_store(named).objects, name, quota_bytes)


def _bytes(size: int | str) -> int:
    found = byte_sizes.parse_size(size) if isinstance(size, str) else size
    if not isinstance(found, int) or isinstance(found, bool) or not 0 < found < 1 << 63:
        raise InvalidInputError(f"{size!r} is no quota", hint=f"Give {byte_sizes.WANTED}; None (none) for no quota.")
    return found
