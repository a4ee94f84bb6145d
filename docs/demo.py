"""The main job of cowfs on real input, with the time of each step and the bytes each version added.

    python docs/demo.py                  on the default store: a directory, in a fresh temporary home
    python docs/demo.py --store s3       on a SeaweedFS server, killed with -9 and restarted between two versions

Makes a volume, mounts it, copies Python's standard library and two large files in, commits, forks,
changes a little, commits; then other processes with empty caches mount every version by its locator
and their digests are compared with what was written. Then four tasks work on a fork each, at the same
time, and their forks are merged; the forks are deleted, and what only they had is collected. Ends with
an error if a version adds more than it should, or too little is freed. `--large-mb` and `--medium-mb`
make it smaller.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import os
import random
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cowfs import ROVolume

ROOT = Path(__file__).resolve().parents[1]
BLOCK_BYTES = 4 << 20
CHECKPOINT_BYTES = 8 << 20
WHOLE_BYTES = 256 << 20
"""Beside a smaller file there is less of the standard library, too."""
READER = """
import json, os, sys, time
sys.path.insert(0, sys.argv[2])
from cowfs.blocking import Volume
from docs.demo import tree_digest
start = time.perf_counter()
version = Volume.from_locator(sys.argv[1])
path = version.mount(os.path.join(os.environ["HOME"], "mounted"))
mounted = time.perf_counter()
digest, files, size = tree_digest(path)
read = time.perf_counter()
version.unmount()
print(json.dumps({"digest": digest, "files": files, "bytes": size, "mount_s": mounted - start, "read_s": read - mounted}))
"""


def main() -> None:
    arguments = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    arguments.add_argument("--store", choices=("local", "s3"), default="local")
    arguments.add_argument("--large-mb", type=int, default=512)
    arguments.add_argument("--medium-mb", type=int, default=64)
    options = arguments.parse_args()
    with ExitStack() as stack:
        root = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="cowfs-demo-")))
        stack.callback(detach_mounts, root)
        for name in [name for name in os.environ if name.startswith(("COWFS_", "XDG_"))]:
            del os.environ[name]
        os.environ["HOME"] = str(root)
        store: Store = LocalStore(root) if options.store == "local" else S3Store(root, stack)
        locators = asyncio.run(demonstrate(root, store, options.large_mb << 20, options.medium_mb << 20))
        print("\nEvery version reads back as it was written. Locators, as long as this store is there:")
        print("", *locators, sep="\n  ")
        print("\n$ cowfs log demo-changed", flush=True)
        subprocess.run([str(Path(sys.executable).with_name("cowfs")), "log", "demo-changed"], check=True)


# -- stores: how many bytes they hold, and whether they can be interrupted


class Store(ABC):
    counted_bytes = 0

    def added_bytes(self) -> int:
        """Bytes that came since the last call: what background uploads brought before a commit
        counts for its version."""
        stored = self.stored_bytes()
        added, self.counted_bytes = stored - self.counted_bytes, stored
        return added

    @abstractmethod
    def stored_bytes(self) -> int: ...

    @abstractmethod
    def interrupt(self) -> None: ...

    @abstractmethod
    def is_aged(self) -> bool:
        """Whether its objects could be made to look nine days old: nothing that is younger than an
        hour is collected, and deleted volumes can be brought back for a week."""


class LocalStore(Store):
    """The default store: a directory of the user's data home."""

    def __init__(self, root: Path) -> None:
        self.path = root / ".local" / "share" / "cowfs" / "store"

    def stored_bytes(self) -> int:
        return sum(path.stat().st_size for path in self.path.rglob("*") if path.is_file())

    def interrupt(self) -> None:
        """A directory has no server to kill."""

    def is_aged(self) -> bool:
        for path in self.path.rglob("*"):
            then = path.stat().st_mtime - 9 * 86400
            os.utime(path, (then, then))
        return True


class S3Store(Store):
    """A bucket of a SeaweedFS server that lives as long as the demo."""

    def __init__(self, root: Path, stack: ExitStack) -> None:
        sys.path.insert(0, str(ROOT))
        from tests.seaweedfs import SeaweedFS

        with step("start SeaweedFS"):
            self.server = stack.enter_context(SeaweedFS(root / "seaweedfs"))
        os.environ.update(self.server.credentials, COWFS_STORE=self.server.store_url)

    def stored_bytes(self) -> int:
        import s3fs

        bucket = s3fs.S3FileSystem(
            endpoint_url=self.server.endpoint, skip_instance_cache=True, use_listings_cache=False
        )
        return int(bucket.du(self.server.bucket))

    def interrupt(self) -> None:
        with step("kill -9 SeaweedFS and start it again"):
            self.server.kill()
            self.server.start()

    def is_aged(self) -> bool:
        return False  # an object's time is the server's


# -- the job


async def demonstrate(root: Path, store: Store, large_bytes: int, medium_bytes: int) -> list[str]:
    """Does it all; returns the locators."""
    from cowfs import Volume

    expected: dict[str, str] = {}  # locator: digest of what was written

    with step("create a volume and mount it"):
        volume = Volume.new("demo")
        data = await volume.mount()
    with step("copy Python's standard library in") as note:
        note(copy_standard_library(data / "python", is_whole=large_bytes >= WHOLE_BYTES))
    with step(f"copy a file of {large_bytes >> 20} MB and one of {medium_bytes >> 20} MB in") as note:
        make_file(data / "large", large_bytes, seed=1)
        make_file(data / "medium", medium_bytes, seed=2)
        note(f"{(large_bytes + medium_bytes) >> 20} MB")
    with step("commit", store):
        first = await volume.commit("the standard library and two large files")
    expected[first.locator] = tree_digest(data)[0]
    store.interrupt()

    with step("fork and mount the fork"):
        fork = await first.fork("demo-changed")
        data = await fork.mount()
    with step("change one byte in the middle of the large file"):
        with (data / "large").open("r+b") as file:
            file.seek(large_bytes // 2)
            byte = file.read(1)
            file.seek(large_bytes // 2)
            file.write(bytes([byte[0] ^ 1]))
    with step("commit", store) as note:
        second = await fork.commit("one byte changed")
        one_byte = note
    expected[second.locator] = tree_digest(data)[0]

    with step("prepend one byte to the medium file"):
        prepend(data / "medium", b"!")
    written = tree_digest(data)[0]
    with step("commit, unmount", store) as note:
        third = await fork.finalize("one byte prepended")
        one_more = note
    expected[third.locator] = written

    with step("nothing changed since: the same version, unmount", store):
        again = await volume.finalize()
    assert again.locator == first.locator, "a commit without changes made a version"

    for number, (locator, digest) in enumerate(expected.items(), start=1):
        with step(f"version {number} from another process with an empty cache") as note:
            found = read_elsewhere(root / f"elsewhere-{number}", locator)
            note(f"{found['files']} files, {int(found['bytes']) >> 20} MB, mounted in {found['mount_s']:.2f} s")
        assert found["digest"] == digest, f"version {number} is not what was written"

    check_added("one changed byte", one_byte.added_bytes, 2 << 20)
    check_added("one prepended byte", one_more.added_bytes, 4 << 20)
    await fan_out(third, store)
    return list(expected)


async def fan_out(version: ROVolume, store: Store) -> None:
    """Four forks, merged; then what they leave behind is collected."""
    import cowfs
    from cowfs import Volume

    await version.fork("demo-merged")
    parts = [f"demo-part-{number}" for number in range(4)]
    with step("four tasks write to a fork each, at the same time", store):
        done = await asyncio.gather(*(work(version, name) for name in parts))
    with step("merge the forks", store) as note:
        report = await cowfs.Store().merge("demo-merged", done)
        merging = note
    check_added("a merge", merging.added_bytes, 1 << 20)
    merged = await Volume.version("demo-merged")
    with step("compare") as note:
        changes = [change async for change in version.diff(merged)]
        note(f"{len(changes)} paths differ from the version that was forked")
    assert len(changes) == len(report.changes) == 2 * len(parts)

    for name in parts:
        await cowfs.Store().delete(name)
    is_aged = store.is_aged()
    title = "nine days later: collect what only the deleted forks had" if is_aged else "collect: all is too young"
    with step(title) as note:
        freed_bytes = (await cowfs.Store().gc()).freed_bytes
        note(f"{freed_bytes / 1e6:.3f} MB freed")
    if is_aged and freed_bytes < len(parts) * CHECKPOINT_BYTES:
        raise SystemExit(f"{freed_bytes} bytes were freed; the forks' checkpoints alone have more")
    assert [change async for change in merged.diff(await Volume.version("demo-merged"))] == []


async def work(version: ROVolume, name: str) -> ROVolume:
    """On a fork: a result, and a checkpoint that is in one version only."""
    fork = await version.fork(name)
    data = await fork.mount()
    (data / name).mkdir()
    make_file(data / name / "checkpoint", CHECKPOINT_BYTES, seed=int(name[-1]) + 3)
    await fork.commit("half way")
    (data / name / "checkpoint").unlink()
    (data / name / "result").write_text(name)
    return await fork.finalize("done")


def detach_mounts(root: Path) -> None:
    """After a failure: takes off what is still mounted below root, so that removing root removes no
    file through it."""
    points = [line.split()[4] for line in os.fsdecode(Path("/proc/self/mountinfo").read_bytes()).splitlines()]
    for point in points:
        if point.startswith(f"{root}/"):
            command = ["umount", "-l", point] if os.geteuid() == 0 else ["fusermount3", "-u", "-z", point]
            subprocess.run(command, check=True)


def check_added(what: str, added_bytes: int, limit_bytes: int) -> None:
    if added_bytes >= limit_bytes:
        raise SystemExit(f"{what} added {added_bytes} bytes; it should add less than {limit_bytes}")


def read_elsewhere(home: Path, locator: str) -> dict[str, str | int | float]:
    """Mounts the version in a process with a home, and so caches, of its own; digests it;
    unmounts."""
    home.mkdir()
    done = subprocess.run(
        [sys.executable, "-c", READER, locator, str(ROOT)],
        env={**os.environ, "HOME": str(home)},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    found: dict[str, str | int | float] = json.loads(done.stdout)
    return found


# -- files


def copy_standard_library(target: Path, *, is_whole: bool) -> str:
    source = sysconfig.get_paths()["stdlib"]
    left_out = ("site-packages", "dist-packages", *(() if is_whole else ("test", "__pycache__", "config-*")))
    shutil.copytree(source, target, symlinks=True, ignore=shutil.ignore_patterns(*left_out))
    sizes = [path.lstat().st_size for path in target.rglob("*") if path.is_file()]
    return f"{len(sizes)} files, {sum(sizes) >> 20} MB"


def make_file(path: Path, size_bytes: int, *, seed: int) -> None:
    """Bytes that do not compress, the same for a seed each time."""
    draw = random.Random(seed)
    with path.open("wb") as file:
        for start in range(0, size_bytes, BLOCK_BYTES):
            file.write(draw.randbytes(min(BLOCK_BYTES, size_bytes - start)))


def prepend(path: Path, prefix: bytes) -> None:
    """As an editor would: a new file beside, then a rename over the old one."""
    beside = path.with_name(path.name + ".new")
    with path.open("rb") as old, beside.open("wb") as new:
        new.write(prefix)
        shutil.copyfileobj(old, new, BLOCK_BYTES)
    beside.replace(path)


def tree_digest(root: Path) -> tuple[str, int, int]:
    """A digest of names, types, permissions, times and content below root; the number of files, and
    their bytes."""
    digest = hashlib.sha256()
    files = size = 0
    for directory, directories, names in os.walk(root):
        directories.sort()
        for name in sorted(directories + names):
            path = Path(directory, name)
            found = path.lstat()
            facts = (str(path.relative_to(root)), oct(found.st_mode), found.st_mtime_ns)
            digest.update(repr(facts).encode(errors="surrogateescape"))
            if path.is_symlink():
                digest.update(os.fsencode(path.readlink()))
            elif path.is_file():
                with path.open("rb") as file:
                    digest.update(hashlib.file_digest(file, "sha256").digest())
                files, size = files + 1, size + found.st_size
    return digest.hexdigest(), files, size


# -- what is printed


class Note:
    """What a step adds to its line: a remark, and how much the store grew."""

    def __init__(self) -> None:
        self.remark = ""
        self.added_bytes = 0

    def __call__(self, remark: str) -> None:
        self.remark = remark


@contextmanager
def step(title: str, store: Store | None = None) -> Iterator[Note]:
    """Prints what a step took and, for a store, the bytes it added."""
    note = Note()
    start = time.perf_counter()
    yield note
    took_s = time.perf_counter() - start
    if store:
        note.added_bytes = store.added_bytes()
        note(f"added {max(note.added_bytes, 0) / 1e6:.3f} MB to the store")
    print(f"{took_s:8.2f} s   {title}{': ' + note.remark if note.remark else ''}", flush=True)


if __name__ == "__main__":
    main()
