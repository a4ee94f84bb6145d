"""Numbers that the native half and Python must agree on: defined there, read here.

`cowfs/_native.pyi` says what they are.
"""

from cowfs._native import CONGESTION, LOADS_MAX, MAX_BACKGROUND, ROOT_INO

__all__ = ["CONGESTION", "LOADS_MAX", "MAX_BACKGROUND", "ROOT_INO"]
