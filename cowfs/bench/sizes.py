"""How much work a run does: the full measure, or a glimpse that only shows that everything works."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """Small files lie `per_directory` in each of `directories`. mount_counts: files in the versions whose mount is timed.
    random_writes: JuiceFS stands nearly still once a 64 MiB piece of a file has some hundred slices (10,000 writes ran at 200
    a second), which would say nothing about random writes."""

    large_bytes: int = 512 << 20
    directories: int = 100
    per_directory: int = 100
    small_bytes: int = 1 << 10
    random_reads: int = 20_000
    random_writes: int = 2_000
    transactions: int = 5_000
    mount_counts: tuple[int, ...] = (100, 10_000, 100_000)
    stdlib_packages: tuple[str, ...] | None = None

    @property
    def files(self) -> int:
        return self.directories * self.per_directory


FULL = Sizes()
QUICK = Sizes(
    large_bytes=4 << 20,
    directories=8,
    per_directory=10,
    random_reads=200,
    random_writes=100,
    transactions=20,
    mount_counts=(10, 200),
    stdlib_packages=("json", "email"),
)
