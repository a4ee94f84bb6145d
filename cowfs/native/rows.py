"""Which rows of an index are plainly right, many with one call (`index.validation`).

`cowfs/_native.pyi` documents the names.
"""

from cowfs._native import plain_contents, plain_entries, plain_inodes

__all__ = ["plain_contents", "plain_entries", "plain_inodes"]
