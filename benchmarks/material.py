"""The input of the suite's workloads, made once a run from files on every machine with Python. In
addition to `cowfs.bench.material`:

archive       the standard library as a tar file, with its digest as `jobs.tree_digest` gives it
repository    a git repository with the same tree in one commit
wheel         the pip that comes with Python (ensurepip), so that installing needs no network; None if it is missing
"""

from __future__ import annotations

import os
import shutil
import sysconfig
import tarfile
from pathlib import Path
from typing import Any

from benchmarks.jobs import tree_digest
from cowfs.base import programs
from cowfs.base.fast_dataclass import dataclass
from cowfs.bench import material
from cowfs.bench.sizes import Sizes

QUICK_PACKAGES = ("json", "email")
GIT = {
    "GIT_AUTHOR_NAME": "bench",
    "GIT_AUTHOR_EMAIL": "bench@localhost",
    "GIT_COMMITTER_NAME": "bench",
    "GIT_COMMITTER_EMAIL": "bench@localhost",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_SYSTEM": os.devnull,
}


@dataclass(frozen=True)
class Material(material.Material):
    archive: Path
    archive_digest: list[Any]
    repository: Path | None
    wheel: Path | None


def make(place: Path, sizes: Sizes, packages: tuple[str, ...] | None = None) -> Material:
    """packages: of the standard library; None: all."""
    large = material.make(place, sizes).large
    tree = place / "tree"
    _copy_standard_library(tree, packages)
    archive = place / "stdlib.tar"
    with tarfile.open(archive, "w") as tar:
        tar.add(tree, "stdlib")
    return Material(large, archive, tree_digest(str(tree)), _repository(tree), _wheel())


def _copy_standard_library(target: Path, packages: tuple[str, ...] | None) -> None:
    source = Path(sysconfig.get_paths()["stdlib"])
    ignored = shutil.ignore_patterns("__pycache__", "site-packages", "dist-packages")
    if packages is None:
        shutil.copytree(source, target, ignore=ignored, symlinks=True)
        return
    for package in packages:
        shutil.copytree(source / package, target / package, ignore=ignored)


def _repository(tree: Path) -> Path | None:
    if shutil.which("git") is None:
        return None
    for command in (["init", "--quiet"], ["add", "--all", "--force"], ["commit", "--quiet", "--message", "all"]):
        programs.run(
            ["git", *command], cwd=tree, env={**programs.environment(), **GIT}, timeout_s=None
        ).check_returncode()
    return tree


def _wheel() -> Path | None:
    places = [Path(sysconfig.get_paths()["stdlib"]) / "ensurepip" / "_bundled", Path("/usr/share/python-wheels")]
    return next((wheel for place in places for wheel in sorted(place.glob("pip-*.whl"))), None)
