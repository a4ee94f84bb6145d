"""Numbers and names that the native half and Python must agree on: defined there, read here.

`cowfs/_native.pyi` says what they are.
"""

from cowfs._native import (
    ACL_ACCESS,
    ACL_DEFAULT,
    CONGESTION,
    COUNTED_BYTES,
    DIRECTORY_RUN,
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
    "LOADS_MAX",
    "MAX_BACKGROUND",
    "ROOT_INO",
]
