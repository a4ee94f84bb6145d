"""Objects and files of somebody else: a bucket, a container, a directory that is imported or
linked.

`contract` says what an origin does; `open_origin` makes one from a URL. A store (`store.contract`)
holds cowfs' own immutable objects under keys that cowfs chose. An origin holds objects under any
key, and anybody may replace them: whoever reads says which state of the object is meant.
"""

from __future__ import annotations

from cowfs.store.origin.contract import Origin, OriginObject, changed, gone
from cowfs.store.origin.open import open_origin

__all__ = ["Origin", "OriginObject", "changed", "gone", "open_origin"]
