"""The rows of the table: the measurements and their units."""

from __future__ import annotations

from cowfs.base.fast_dataclass import dataclass


@dataclass(frozen=True)
class Row:
    key: str
    title: str
    unit: str

    @property
    def more_is_better(self) -> bool:
        return self.unit not in ("s", "bytes/file")


FILES = [
    Row(key + suffix, title + at_once, "files/s")
    for suffix, at_once in (("", ""), ("-4", ", 4 at once"))
    for key, title in (
        ("create", "create 1 KiB"),
        ("stat", "stat, cold"),
        ("traverse", "traverse, cold"),
        ("read", "read small files, cold"),
        ("rename", "rename"),
        ("unlink", "unlink"),
    )
]
WRITE = [Row("write", "sequential write", "MB/s"), Row("write-sync", "sequential write and fsync", "MB/s")]
READ = [Row("read-disk", "sequential read, cold", "MB/s"), Row("read-warm", "sequential read, warm", "MB/s")]
RANDOM = [Row("random-read", "random read 4 KiB", "ops/s"), Row("random-write", "random write 4 KiB", "ops/s")]
SQLITE = [Row("sqlite", "SQLite WAL transactions", "txn/s")]
ALL = [*FILES, *WRITE, *READ, *RANDOM, *SQLITE]
