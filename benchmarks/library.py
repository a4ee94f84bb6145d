"""What a run prepares once and its sessions share: sizes, material, and committed versions for
those who only read.

tree       the directories of small files that the files workloads make
large      the one large file
count-N    N small files, for mount times
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.material import Material
from cowfs.bench.crew import Crew
from cowfs.bench.sizes import Sizes
from cowfs.bench.workloads.large import LARGE, paths
from cowfs.bench.workloads.small_files import directory_names
from cowfs.blocking import Volume
from cowfs.format.store_url import StoreUrl

PER_DIRECTORY = 100


@dataclass
class Library:
    """base: where sessions may make stores; store: one for the whole run.

    mount_counts: how many files are in the versions whose mount is timed.
    """

    place: Path
    base: StoreUrl
    store: StoreUrl
    sizes: Sizes
    mount_counts: tuple[int, ...]
    material: Material
    crew: Crew
    _locators: dict[str, str] = field(default_factory=dict)

    def tree(self) -> str:
        return self._prepared("tree", self.sizes.directories, self.sizes.per_directory)

    def count(self, files: int) -> str:
        return self._prepared(f"count-{files}", max(1, files // PER_DIRECTORY), min(files, PER_DIRECTORY))

    def large(self) -> str:
        return self._prepared(LARGE, 0, 0)

    def _prepared(self, key: str, directories: int, per_directory: int) -> str:
        """Locator of the version; made on the first call."""
        if key not in self._locators:
            place = self.place / key
            volume = Volume.new(key, store=str(self.store))
            root = volume.mount(place / "mount", cache_dir=make_directory(place / "cache"), meta_dir=place / "meta")
            try:
                if directories:
                    share = {"directories": directory_names(root, directories)}
                    self.crew.run("make_directories", [share])
                    self.crew.run("create", [{**share, "count": per_directory, "size": self.sizes.small_bytes}])
                else:
                    self.crew.run("write", [{**paths(root, self.material), "syncs": False}])
                self._locators[key] = volume.commit(key).locator
            finally:
                volume.unmount()
        return self._locators[key]


def make_directory(path: Path) -> Path:
    path.mkdir(parents=True)
    return path
