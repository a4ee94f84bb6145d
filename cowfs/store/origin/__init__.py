"""Objects and files that belong to others: a bucket, a container, a directory that is imported or
linked.

`contract` says what an origin does; `open_origin` makes one from a URL. A store (`store.contract`)
holds cowfs' own immutable objects under keys that cowfs chose. An origin holds objects under any
key, and others may replace them at any time, so a read names the state of the object that it means.
"""

from __future__ import annotations

from cowfs.store.origin.contract import Origin, OriginObject, source_changed, source_gone
from cowfs.store.origin.open_origin import open_origin

__all__ = ["Origin", "OriginObject", "open_origin", "source_changed", "source_gone"]
