"""Objects, packs, refs, leases and pins over any object store; obstore, fsspec and s3fs are
imported only here, when needed.

Everything blocks and is thread-safe. `contract` says what a store does; `open_store` makes one from
a URL.
"""

from __future__ import annotations

from cowfs.store.contract import ObjectInfo, ObjectStore
from cowfs.store.credentials.identity import AMBIENT, Access, Credentials, Identity
from cowfs.store.initialize import initialize, load_record, require_writable
from cowfs.store.open import open_store
from cowfs.store.refs.pins import condemned

__all__ = [
    "AMBIENT",
    "Access",
    "Credentials",
    "Identity",
    "ObjectInfo",
    "ObjectStore",
    "condemned",
    "initialize",
    "load_record",
    "open_store",
    "require_writable",
]
