"""The rows of the suite's table.

They are those of `cowfs.bench`, and those that need a store, a local cache or a daemon.
"""

from __future__ import annotations

from cowfs.bench.table import FILES, RANDOM, SQLITE, WRITE, Row

PROGRAMS = [
    Row("untar", "untar of the standard library", "files/s"),
    Row("git-clone", "git clone", "s"),
    Row("git-status", "git status, cold", "s"),
    Row("pip-install", "pip install", "s"),
    *SQLITE,
]


def all_rows(mount_counts: tuple[int, ...]) -> list[Row]:
    """In the order of the table. mount_counts: files in the versions whose mount is timed."""
    return [
        *FILES,
        *WRITE,
        Row("read-store", "sequential read, cold from the store", "MB/s"),
        Row("read-again", "sequential read, the second time", "MB/s"),
        Row("read-disk", "sequential read, local cache on disk", "MB/s"),
        Row("read-cache", "sequential read, local cache in memory", "MB/s"),
        Row("read-warm", "sequential read, warm", "MB/s"),
        *RANDOM,
        *PROGRAMS,
        Row("commit-large", "commit, incompressible", "MB/s"),
        Row("upload-large", "write and commit, incompressible", "MB/s"),
        Row("commit-small", "commit, small files", "files/s"),
        Row("upload-small", "write and commit, small files", "files/s"),
        Row("commit-one", "commit, one file of them changed", "s"),
        *(Row(f"mount-{files}", f"mount of {files:,} files", "s") for files in mount_counts),
        Row("memory-clean", "memory, clean file", "bytes/file"),
        Row("memory-changed", "memory, changed file", "bytes/file"),
    ]
