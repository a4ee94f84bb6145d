"""The rows of the table: what is measured, in which unit, and which targets each has.

A target compares one of cowfs' variants with a baseline in the same run; above 1 is always better for cowfs, also where
less is better (seconds, bytes). The numbers are the project's own goals, written before they were measured.
"""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.systems.contract import Group

JUICEFS = "JuiceFS"
"""The better of its two modes, row by row."""


@dataclass(frozen=True)
class Target:
    """`system` shall reach `factor` times the `baseline` (a system's name, or JUICEFS)."""

    system: str
    baseline: str
    factor: float


@dataclass(frozen=True)
class Row:
    key: str
    group: Group
    title: str
    unit: str
    targets: tuple[Target, ...] = ()

    @property
    def more_is_better(self) -> bool:
        return self.unit not in ("s", "bytes/file")


def _against(juicefs: float | None, passthrough: float | None, system: str = "cowfs") -> tuple[Target, ...]:
    pairs = ((JUICEFS, juicefs), ("passthrough_hp", passthrough))
    return tuple(Target(system, baseline, factor) for baseline, factor in pairs if factor is not None)


_URING = (Target("cowfs-uring", "cowfs", 1.3),)


def _files(group: Group, suffix: str, title: str) -> list[Row]:
    def row(key: str, what: str, *targets: Target) -> Row:
        return Row(key + suffix, group, what + title, "files/s", targets)

    return [
        row("create", "create 1 KiB", *_against(5, 1), *_URING),
        row("stat", "stat, cold", *_against(1.1, 1), *_URING),
        row("traverse", "traverse, cold", *_against(1, 0.8), *_URING),
        row("read", "read small files, cold", *_against(2.5, 1), *_URING),
        row("rename", "rename", *_against(2.5, 1), *_URING),
        row("unlink", "unlink", *_against(4, 1), *_URING),
    ]


def all_rows(mount_counts: tuple[int, ...]) -> list[Row]:
    """In the order of the table."""
    large, programs, commit, mounts = Group.LARGE, Group.PROGRAMS, Group.COMMIT, Group.MOUNTS
    local = Target("cowfs", "local", 0.6)
    return [
        *_files(Group.FILES, "", ""),
        *_files(Group.FILES_4, "-4", ", 4 at once"),
        Row("write", large, "sequential write", "MB/s", (*_against(2, 0.4), local)),
        Row("write-sync", large, "sequential write and fsync", "MB/s"),
        Row("read-store", large, "sequential read, cold from the store", "MB/s"),
        Row("read-disk", large, "sequential read, local cache on disk", "MB/s"),
        Row("read-cache", large, "sequential read, local cache in memory", "MB/s", _against(4, 0.9, "cowfs-ro")),
        Row("read-warm", large, "sequential read, warm", "MB/s", _against(3, 0.8)),
        Row("random-read", large, "random read 4 KiB", "ops/s", (*_against(4, None), *_against(15, 0.9, "cowfs-ro"))),
        Row("random-write", large, "random write 4 KiB", "ops/s", _against(5, 1)),
        Row("untar", programs, "untar of the standard library", "files/s", _against(5, 1)),
        Row("git-clone", programs, "git clone", "s"),
        Row("git-status", programs, "git status, cold", "s"),
        Row("pip-install", programs, "pip install", "s"),
        Row("sqlite", programs, "SQLite WAL transactions", "txn/s", _against(7, 1)),
        Row("commit-large", commit, "commit, incompressible", "MB/s", (Target("cowfs", "store", 0.8),)),
        Row("upload-large", commit, "write and commit, incompressible", "MB/s"),
        Row("commit-small", commit, "commit, small files", "files/s"),
        Row("upload-small", commit, "write and commit, small files", "files/s"),
        Row("commit-one", commit, "commit, one file of them changed", "s"),
        *(Row(f"mount-{files}", mounts, f"mount of {files:,} files", "s") for files in mount_counts),
        Row("memory-clean", mounts, "memory, clean file", "bytes/file"),
        Row("memory-changed", Group.FILES, "memory, changed file", "bytes/file"),
    ]
