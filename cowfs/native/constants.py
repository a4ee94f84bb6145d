"""Numbers and names that the native half and Python must agree on: defined there, read here.

`cowfs/_native.pyi` documents them.
"""

from cowfs._native import (
    ACL_ACCESS,
    ACL_DEFAULT,
    CONGESTION,
    COUNTED_BYTES,
    DIRECTORY_RUN,
    INODE_HAS_XATTRS,
    LAST_INO,
    LOADS_MAX,
    MAX_BACKGROUND,
    ROOT_INO,
)

__all__ = [
    "ACL_ACCESS",
    "ACL_DEFAULT",
    "CONGESTION",
    "COUNTED_BYTES",
    "DIRECTORY_RUN",
    "INODE_HAS_XATTRS",
    "LAST_INO",
    "LOADS_MAX",
    "MAX_BACKGROUND",
    "ROOT_INO",
]
