"""What a run prepares once and its sessions share: sizes, material, and committed versions for those who only read.

tree       the directories of small files that the files workloads make
large      the one large file
count-N    N small files, for mount times
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cowfs.bench.crew import Crew
from cowfs.bench.material import Material
from cowfs.bench.sizes import Sizes
from cowfs.blocking import Volume
from cowfs.format.store_url import StoreUrl

LARGE = "large"
PER_DIRECTORY = 100


class Library:
    def __init__(
        self, place: Path, base: StoreUrl, store: StoreUrl, sizes: Sizes, material: Material, crew: Crew
    ) -> None:
        """base: where sessions may make stores; store: one for the whole run."""
        self.base, self.store, self.sizes, self.material, self.crew = base, store, sizes, material, crew
        self._place = place
        self._locators: dict[str, str] = {}

    def tree(self) -> str:
        return self._prepared("tree", self.sizes.directories, self.sizes.per_directory)

    def count(self, files: int) -> str:
        return self._prepared(f"count-{files}", max(1, files // PER_DIRECTORY), min(files, PER_DIRECTORY))

    def large(self) -> str:
        return self._prepared(LARGE, 0, 0)

    def _prepared(self, key: str, directories: int, per_directory: int) -> str:
        """Locator of the version; made on the first call."""
        if key not in self._locators:
            place = self._place / key
            volume = Volume.new(key, store=str(self.store))
            root = volume.mount(place / "mount", cache_dir=make_directory(place / "cache"), meta_dir=place / "meta")
            try:
                if directories:
                    shares = directory_shares(self.crew, root, directories, 1)
                    self.crew.run("create", [{**shares[0], "count": per_directory, "size": self.sizes.small_bytes}])
                else:
                    self.crew.run("write", [self.writing(root / LARGE)])
                self._locators[key] = volume.commit(key).locator
            finally:
                volume.unmount()
        return self._locators[key]

    def writing(self, path: Path, *, syncs: bool = False) -> dict[str, Any]:
        """Arguments of the write job."""
        return {"path": str(path), "material": str(self.material.large), "syncs": syncs}


def directory_shares(crew: Crew, root: Path, directories: int, workers: int) -> list[dict[str, Any]]:
    """Makes the directories; each worker's share of them."""
    names = directory_names(root, directories)
    crew.run("make_directories", [{"directories": names}])
    return shares(names, workers)


def directory_names(root: Path, directories: int) -> list[str]:
    return [f"{root}/d{number}" for number in range(directories)]


def shares(names: list[str], workers: int) -> list[dict[str, Any]]:
    return [{"directories": names[worker::workers]} for worker in range(workers)]


def make_directory(path: Path) -> Path:
    path.mkdir(parents=True)
    return path
