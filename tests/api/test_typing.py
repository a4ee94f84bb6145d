"""Programs of users are checked with both kinds of classes, as mypy reads the stubs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]

PROGRAM = """
from pathlib import Path
from typing import assert_type

import cowfs
from cowfs import blocking


async def awaited(store: cowfs.Store) -> None:
    volume = cowfs.Volume.new("data", store="file:///store")
    assert_type(volume, cowfs.RWVolume)
    assert_type(cowfs.volume("data"), cowfs.RWVolume)
    assert_type(store.volume("data"), cowfs.RWVolume)
    async with volume as entered:
        assert_type(entered, cowfs.RWVolume)
        assert_type(volume / "file", Path)
        await volume.files.write("file", b"x")
    version = await volume.commit("one", labels={"a": "b"})
    assert_type(version, cowfs.ROVolume)
    assert_type(await version, cowfs.ROVolume)
    assert_type(await version.mount(cache_size="1GiB", resident=True), Path)
    assert_type(version.files, cowfs.ROFiles)
    assert_type(await version.history(), list[cowfs.ROVolume])
    async for entry in version.files.ls("/", recursive=True):
        assert_type(entry, cowfs.Entry)
    async for change in version.diff(blocking.Volume.version("data")):
        assert_type(change, cowfs.Change)
    async with await version.files.open("file") as file:
        assert_type(await file.read(), bytes)
    assert_type(await store.gc(dry_run=True), cowfs.GcReport)
    declared = await cowfs.Declared.load()
    assert_type(declared, cowfs.Declared)
    plan = await declared.plan(prune=True)
    assert_type(plan.declared, cowfs.Declared)
    await plan.apply()


def blocks(store: blocking.Store) -> None:
    with blocking.Volume.new("data", store="file:///store") as volume:
        assert_type(volume, blocking.RWVolume)
    version = volume.commit("one")
    assert_type(version, blocking.ROVolume)
    assert_type(version.history(), list[blocking.ROVolume])
    assert_type(store.gc(dry_run=True), cowfs.GcReport)
    assert_type([each.name for each in version.files.ls()], list[str])
    blocking.Declared(volumes=[cowfs.DeclaredVolume(name="data", path="/data")]).plan().apply()
    for one, other in cowfs.list_twins():
        print(one.__name__, other.__name__, cowfs.__version__, cowfs.errors.CowfsError.__doc__)
"""

WRONG = """
import cowfs
from cowfs import blocking


async def wrong(version: cowfs.ROVolume) -> None:
    version.fork()
    await version.fork(1)
    await version.mount(no_such_option=True)
    for each in version.files.ls():
        print(each)
    cowfs.ROVolume(version)
    print(cowfs.no_such_name)
    blocking.Store().no_such_method()
"""


def check(program: str, directory: Path) -> list[tuple[int, str]]:
    """Lines and codes of errors. The settings, and so the cache, are those of `make lint`."""
    path = directory / "program.py"
    path.write_text(program)
    done = subprocess.run([sys.executable, "-m", "mypy", path], capture_output=True, text=True, cwd=ROOT)
    assert not done.stderr, done.stderr
    found = [line.split(":", 2) for line in done.stdout.splitlines() if ": error: " in line]
    return [(int(line), text.rpartition("[")[2].rstrip("]")) for _, line, text in found]


def test_a_program_with_both_kinds_passes(tmp_path: Path) -> None:
    assert check(PROGRAM, tmp_path) == []


def test_mistakes_are_found(tmp_path: Path) -> None:
    codes = ["unused-coroutine", "arg-type", "call-arg", "attr-defined", "call-arg", "attr-defined", "attr-defined"]
    assert check(WRONG, tmp_path) == list(zip([7, 8, 9, 10, 12, 13, 14], codes, strict=True))
