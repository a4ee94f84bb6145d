"""Versions whose rows were changed by SQL behind the writer's back, and every reader on one.

craft(store, name, home, statements)   publishes `d/e/f`, `g`, `s` -> g, then the same with the statements applied:
                                       right hashes, wrong rows
python -m tests.version.crafted STORE SOURCE BASE HOME
                                       runs READERS on a version in a process of its own, within limits of memory and
                                       time, and prints {reader: outcome} as JSON; an outcome is "read" or the kind of
                                       a cowfs error. Anything else ends the process with a traceback.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

from cowfs.errors import CorruptError, CowfsError
from cowfs.index import ChangeSet
from cowfs.index import index as index_module
from cowfs.index.applying import apply_changes
from cowfs.index.connection import Connection
from cowfs.native.chunks import FileRows
from cowfs.store import ObjectStore
from cowfs.version.commit import CommitRequest
from cowfs.version.publish.publisher import Draft, Source
from tests.version.working_volume import ME, ROOT, WorkingVolume

MEMORY_BYTES = 4 << 30  # of address space
TIME_S = 300

Names = Mapping[str, int]


def craft(store: ObjectStore, name: str, home: Path, statements: Callable[[Names], Sequence[str]]) -> tuple[str, str]:
    """(source of the good version, of the crafted one)."""
    with WorkingVolume(store, name, home) as volume:
        volume.mkdir(b"d")
        volume.mkdir(b"d/e")
        volume.write(b"d/e/f", b"x" * 100)
        volume.write(b"g", b"victim")
        volume.call(volume.engine.symlink, ROOT, b"s", b"g", ME)
        good = volume.commit()
        names = {path: volume.find(path.encode()) for path in ("d", "d/e", "d/e/f", "g", "s")}
        index = volume.publisher.index

        class Crafted(Source):
            def draft(self) -> Draft:
                root = index.inode(1)
                assert root is not None
                return Draft(ChangeSet(index.next_ino, inodes=[root]), FileRows())

        def applied(*arguments: Any, **options: Any) -> Any:
            overlay, facts = apply_changes(*arguments, **options)
            connection = Connection(overlay, writable=True)
            connection.execute("BEGIN IMMEDIATE")
            for statement in statements(names):
                connection.execute(statement)
            connection.execute("COMMIT")
            connection.close()
            return overlay, facts

        with (
            mock.patch.object(index_module, "apply_changes", applied),
            mock.patch("cowfs.index.index.read_meta", _meta),
        ):
            crafted = volume.publisher.publish(Crafted(), CommitRequest(message="crafted"))
        return f"{name}@{good.version_id}", f"{name}@{crafted.version_id}"


def _meta(connection: Connection) -> dict[str, int]:
    """Unchecked: the publisher opens what it has made."""
    return dict(connection.execute("SELECT key, value FROM meta"))


def outcomes(store: str, source: str, base: str, home: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """Of every reader. Removes what they leave in `home`: pytest fails to remove a deep tree, which
    it does some runs later."""
    home.mkdir(parents=True)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "tests.version.crafted", store, source, base, str(home)],
            env={**environment, "COWFS_CACHE_DIR": str(home / "c"), "COWFS_STATE_DIR": str(home / "s")},
            capture_output=True,
            text=True,
            timeout=TIME_S,
            check=False,
        )
    finally:
        subprocess.run(["rm", "-rf", home], check=True)
    assert done.returncode == 0, f"{source}\n{done.stdout}\n{done.stderr[-4000:]}"
    found: dict[str, str] = json.loads(done.stdout)
    return found


def _readers(store: str, source: str, base: str, home: Path) -> dict[str, Callable[[], object]]:
    import fsspec

    from cowfs.blocking import Store, Volume

    version, good = Volume.version(source, store=store), Volume.version(base, store=store)
    files = fsspec.filesystem("cowfs", store=store)
    return {
        "walk": lambda: [None for _ in version.files.walk("/")],
        "list": lambda: list(version.files.ls("/", recursive=True)),
        "download": lambda: version.files.download("/", home / "download"),
        "diff": lambda: list(good.diff(version)),
        "warm": version.warm,
        "content id": version.content_id,
        "find": lambda: files.find(source),
        "du": lambda: files.du(source),
        "fsspec walk": lambda: list(files.walk(source, detail=True)),
        "verify": lambda: _verified(Store(store).verify(source)),
    }


def _verified(report: Any) -> None:
    if not report.is_sound:
        raise CorruptError(str(report.broken))


def main() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    store, source, base, home = sys.argv[1:]
    found = {}
    for name, read in _readers(store, source, base, Path(home)).items():
        try:
            read()
            found[name] = "read"
        except CowfsError as error:
            found[name] = error.kind
            print(f"{name}: {error.kind}: {error}", file=sys.stderr)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
