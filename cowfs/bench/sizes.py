"""The amount of work in a run: the full measure, or a quick one that only shows that everything
works."""

from __future__ import annotations

from cowfs.base.fast_dataclass import dataclass


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """There are `per_directory` small files in each of `directories`.

    random_writes: few, because they take long: on a busy machine JuiceFS did 200 to 500 a second,
    whether of 2,000 or of 10,000; the reason is not known, and an idle machine may be far faster.
    """

    large_bytes: int = 512 << 20
    directories: int = 100
    per_directory: int = 100
    small_bytes: int = 1 << 10
    random_reads: int = 20_000
    random_writes: int = 2_000
    transactions: int = 5_000

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
)
