"""Directories of this machine, read with one call each: the part of the extension that uploads
need, and the patterns that leave things out.

`cowfs/_native.pyi` documents the names.
"""

from cowfs._native import IgnorePatterns, list_directory, open_beneath, read_small_files

__all__ = ["IgnorePatterns", "list_directory", "open_beneath", "read_small_files"]

FoundStat = tuple[int, int, int, int, int, int, int]
"""Device, inode, mode, links, size, mtime and ctime in nanoseconds."""
