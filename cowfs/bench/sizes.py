"""How much work a run does: the full measure, or a glimpse that only shows that everything
works."""

from __future__ import annotations

from cowfs.values import dataclass


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """Small files lie `per_directory` in each of `directories`.

    random_writes: few, for the time they take: on a busy machine JuiceFS did 200 to 500 a second,
    whether of 2,000 or of 10,000; why is not known, and an idle machine may show far more.
    """

    large_bytes: int = 512 << 20
    directories: int = 100
    per_directory: int = 100
    small_bytes: int = 1 << 10
    random_reads: int = 20_000
    random_writes: int = 2_000
    transactions: int = 5_000
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
    stdlib_packages=("json", "email"),
)
