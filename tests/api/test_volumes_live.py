"""Volumes as a program uses them, mounted for real: under asyncio and trio."""

from __future__ import annotations

import errno
import mmap
import os
import pickle
import subprocess
import sys
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import anyio
import pytest

from cowfs import ROVolume, RWVolume, Volume, blocking, volume
from cowfs.api import stores
from cowfs.api.mounts import mount_paths
from cowfs.errors import (
    ConflictError,
    InvalidInputError,
    InvalidStateError,
    LeaseHeldError,
    LeaseLostError,
    NotFoundError,
)
from cowfs.machine import registry, reservation

pytestmark = [pytest.mark.mount, pytest.mark.usefixtures("place")]

Go = Callable[[Callable[[], Awaitable[Any]]], Any]


@pytest.fixture(params=["asyncio", "trio"])
def go(request: pytest.FixtureRequest) -> Go:
    """Runs an async test under each event loop."""
    return lambda body: anyio.run(body, backend=request.param)


def elsewhere(code: str, **variables: str) -> str:
    """What a program prints that runs in another process, with these environment variables
    changed."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **variables}
    prelude = (
        "import os, sys\nfrom pathlib import Path\nfrom cowfs.blocking import Volume\nfrom cowfs.errors import *\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", prelude + code], env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def another_machine(place: Path) -> dict[str, str]:
    """Variables of a program that knows nothing of what is mounted here."""
    (place / "run2").mkdir(mode=0o700, exist_ok=True)
    return {
        "COWFS_STATE_DIR": str(place / "c2"),
        "COWFS_CACHE_DIR": str(place / "c2"),
        "XDG_RUNTIME_DIR": str(place / "run2"),
    }


async def written(name: str, text: str = "text") -> ROVolume:
    """A finalized volume with one file."""
    async with Volume.new(name) as fresh:
        (fresh / "file").write_text(text)
        return await fresh.finalize(f"{name} says {text}")


def test_the_example_of_the_readme(go: Go, place: Path) -> None:
    async def body() -> None:
        vol = Volume.new("my-dataset")
        assert not (place / "store").exists(), "nothing happens before the mount"
        data = await vol.mount()
        assert data == place / "home" / "cowfs" / "my-dataset"
        (data / "dir").mkdir()
        (data / "dir" / "file").write_bytes(os.urandom(3_000_000))
        content = (data / "dir" / "file").read_bytes()
        ro = await vol.finalize(message="v1")
        assert not data.exists(), "a default mount point goes with its mount"

        again = await Volume.from_locator(ro.locator)
        assert again == ro
        path = await again.mount()
        assert (path / "dir" / "file").read_bytes() == content
        rw = await again.fork("exp-1")
        assert rw.locator is not None
        assert rw.locator.endswith(f"/-/exp-1@{ro.id}")
        assert ((await rw.mount()) / "dir" / "file").read_bytes() == content
        await again.unmount()
        second = await rw.finalize()
        assert second.id == ro.id, "nothing changed"

    go(body)


def test_what_a_version_says_about_itself(go: Go, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COWFS_AUTHOR", "Ada")

    async def body() -> None:
        before = datetime.now(UTC)
        vol = Volume.new("fields")
        assert vol.locator is None
        path = await vol.mount()
        (path / "a").write_text("1")
        first = await vol.commit("one", produced_by={"system": "test", "run": "7"}, labels={"colour": "blue"})
        (path / "b").write_text("22")
        second = await vol.finalize("two", author="Grace")
        assert (first.message, first.author, first.name) == ("one", "Ada", "fields")
        assert before <= first.created <= second.created
        assert first.produced_by["run"] == "7"
        assert "host" in first.produced_by
        assert first.labels == {"colour": "blue"}
        assert (first.parents, second.parents, second.author) == ([], [first.id], "Grace")
        assert (second.stats.files, second.stats.bytes) == (2, 3)
        assert second.locator.endswith(f"@{second.id}")
        assert [each.id for each in await second.history()] == [second.id, first.id]
        assert "two" in repr(second)

    go(body)


def test_a_pruned_ancestor_is_shown_as_such(go: Go, place: Path) -> None:
    async def body() -> None:
        first = await written("pruned")
        async with Volume.open("pruned") as vol:
            (vol / "more").write_text("x")
            second = await vol.finalize()
        (place / "store" / "versions" / first.id[:2] / first.id).unlink()
        found = await second.history()
        assert [each.is_pruned for each in found] == [False, True]
        with pytest.raises(NotFoundError):
            _ = found[1].message
        with pytest.raises(NotFoundError):
            await Volume.from_locator(first.locator)

    go(body)


def test_a_taken_name_gets_a_suffix(go: Go) -> None:
    async def body() -> None:
        first, second = Volume.new("taken"), Volume.new("taken")
        await first.mount()
        path = await second.mount()
        assert first.name == "taken"
        assert second.name.startswith("taken-")
        assert len(second.name) == len("taken-") + 6
        assert path.name == second.name
        forks = [await first.fork("taken") for _ in range(2)]
        assert len({fork.name for fork in (first, second, *forks)}) == 4
        assert Volume.new().name != Volume.new().name

    go(body)


def test_open_and_create_or_get(go: Go) -> None:
    async def body() -> None:
        with pytest.raises(NotFoundError) as caught:
            await Volume.open("missing")
        assert caught.value.hint
        made = await volume("/mydata")
        assert (made.name, made.locator) == ("mydata", None)
        async with volume("mydata") as same:
            (same / "file").write_text("x")
        opened = Volume.open("mydata")
        with pytest.raises(InvalidStateError):
            _ = opened.locator
        assert (await opened).locator is not None

    go(body)


def test_mounting_twice_gives_the_same_path(go: Go, place: Path) -> None:
    async def body() -> None:
        vol = Volume.new("twice")
        path = await vol.mount(place / "mnt" / "here")
        assert await vol.mount() == path == vol.path
        assert await vol.mount(place / "mnt" / ".." / "mnt" / "here") == path
        with pytest.raises(InvalidStateError):
            await vol.mount(place / "mnt" / "there")
        assert os.fspath(vol) == str(path)
        await vol.unmount()
        assert not vol.is_mounted
        await vol.unmount()
        assert await vol.mount(place / "mnt" / "there") == place / "mnt" / "there"

    go(body)


def test_after_finalize_every_method_refuses(go: Go) -> None:
    async def body() -> None:
        vol = Volume.new("ended")
        await vol.mount()
        ro = await vol.finalize()
        calls: list[Callable[[], Awaitable[Any]]] = [
            vol.mount,
            vol.commit,
            vol.finalize,
            vol.unmount,
            vol.discard,
            lambda: vol.fork("x"),
            vol.resolve,
        ]
        for call in calls:
            with pytest.raises(InvalidStateError, match="finalized"):
                await call()
        with pytest.raises(InvalidStateError):
            pickle.dumps(vol)
        assert (vol.name, vol.locator) == ("ended", ro.locator)

    go(body)


def test_an_exception_publishes_nothing_and_says_how_to_resume(go: Go) -> None:
    async def body() -> None:
        with pytest.raises(ZeroDivisionError) as caught:  # noqa: PT012 - the block is what is tested
            async with Volume.new("half") as vol:
                (vol / "half").write_text("half")
                _ = 1 // 0
        notes = "\n".join(caught.value.__notes__)
        assert "Volume.open('half')" in notes
        assert "cowfs mount half" in notes
        again = await Volume.open("half")
        assert again.locator is None
        path = await again.mount()
        assert (path / "half").read_text() == "half"
        await again.finalize()

    go(body)


def test_a_cancelled_block_publishes_nothing(go: Go) -> None:
    async def body() -> None:
        with anyio.move_on_after(3600) as scope:
            async with Volume.new("cancelled") as vol:
                (vol / "file").write_text("x")
                scope.cancel()
                await anyio.sleep_forever()
        assert not vol.is_mounted
        assert (await Volume.open("cancelled")).locator is None

    go(body)


def test_discard_drops_uncommitted_work(go: Go) -> None:
    async def body() -> None:
        await written("dropped", "kept")
        vol = Volume.open("dropped")
        path = await vol.mount()
        (path / "file").write_text("changed")
        await vol.discard()
        assert not vol.is_mounted
        path = await vol.mount()
        assert (path / "file").read_text() == "kept"
        (path / "more").write_text("x")
        await vol.unmount()
        await vol.discard()
        assert [each.name for each in (await vol.mount()).iterdir()] == ["file"]
        async with Volume.new("never") as fresh:
            await fresh.discard()
        assert (await Volume.open("never")).locator is None, "a block that discarded publishes nothing"

    go(body)


def test_commit_without_a_mount(go: Go) -> None:
    async def body() -> None:
        empty = await Volume.new("empty").commit("empty")
        assert (empty.stats.files, empty.parents) == (0, [])
        assert await Volume.open("empty").commit() == empty, "the base"
        vol = Volume.open("empty")
        path = await vol.mount()
        (path / "file").write_text("x")
        await vol.unmount()
        later = await vol.commit("what was kept")
        assert (later.stats.files, later.parents) == (1, [empty.id])
        assert await vol.commit() == later
        assert not vol.is_mounted

    go(body)


def test_commit_without_a_mount_sees_what_others_published(go: Go) -> None:
    async def body() -> None:
        first = await written("followed")
        waiting = await Volume.open("followed")
        async with Volume.open("followed") as vol:
            (vol / "more").write_text("x")
            second = await vol.finalize()
        assert waiting.locator == first.locator, "what it saw when it was awaited"
        assert await waiting.commit() == second
        assert (await waiting.fork("branch")).locator == second.locator.replace("/followed@", "/branch@")

    go(body)


def test_commit_again_returns_the_same_version(go: Go) -> None:
    async def body() -> None:
        vol = Volume.new("same")
        path = await vol.mount()
        (path / "file").write_text("x")
        first = await vol.commit("first")
        assert first.is_new
        again = await vol.commit("first")
        assert again == first
        assert not again.is_new
        assert not (await vol.commit()).is_new
        assert vol.locator == first.locator

    go(body)


def test_fork_commits_first(go: Go) -> None:
    async def body() -> None:
        vol = Volume.new("trunk")
        path = await vol.mount()
        (path / "file").write_text("uncommitted")
        fork = await vol.fork("branch")
        assert type(fork) is RWVolume
        assert ((await fork.mount()) / "file").read_text() == "uncommitted"
        (path / "file").write_text("trunk goes on")
        assert (fork / "file").read_text() == "uncommitted"

    go(body)


def test_read_only_mounts_refuse_writes(go: Go) -> None:
    async def body() -> None:
        ro = await written("fixed")
        async with ro as mounted:
            with pytest.raises(OSError, match="Read-only") as caught:
                (mounted / "file").write_text("changed")
            assert caught.value.errno == errno.EROFS
            assert await ro.mount() == ro.path
            with pytest.raises(AttributeError):
                ro.commit  # type: ignore[attr-defined] # noqa: B018
        assert not ro.is_mounted

    go(body)


def test_pickling(go: Go) -> None:
    async def body() -> None:
        vol = Volume.new("pickled")
        assert pickle.loads(pickle.dumps(vol)).name == "pickled"
        path = await vol.mount()
        (path / "file").write_text("x")
        with pytest.raises(InvalidStateError, match="cannot be pickled"):
            pickle.dumps(vol)
        await vol.unmount()
        with pytest.raises(InvalidStateError, match="cannot be pickled"):
            pickle.dumps(vol)
        ro = await vol.commit("sent")
        assert (await pickle.loads(pickle.dumps(vol))).locator == ro.locator
        sent = pickle.dumps(ro)
        assert ro.locator.encode() in sent
        assert len(sent) < len(ro.locator) + 100
        received = pickle.loads(sent)
        assert received == ro
        assert received.message == "sent"

    go(body)


def test_a_second_writer_is_told_who_where_and_since(go: Go, place: Path) -> None:
    async def body() -> None:
        vol = Volume.new("busy")
        path = await vol.mount()
        said = elsewhere(
            "try: Volume.open('busy').mount()\n"
            "except LeaseHeldError as e: print(sorted(e.details), e.message, e.hint, sep='|')",
            **another_machine(place),
        )
        keys, message, hint = said.split("|")
        assert {"who", "where", "since"} <= set(eval(keys))
        assert str(path) in message
        assert hint

    go(body)


def test_a_cell_that_is_run_again_finds_its_mount(go: Go, place: Path) -> None:
    async def body() -> None:
        path = await Volume.new("notebook").mount()
        (path / "file").write_text("before the kernel was restarted")
        assert elsewhere("print(Volume.open('notebook').mount())") == str(path)
        again = Volume.open("notebook")
        assert await again.mount() == path
        with pytest.raises(LeaseHeldError):
            await Volume.open("notebook").mount(place / "mnt" / "other")
        assert (await again.finalize()).stats.files == 1

    go(body)


def test_a_mount_that_is_off_its_path_is_not_taken_for_one(place: Path) -> None:
    """Its daemon is registered until all is synced and released: what is written at the path by
    then would be in no volume."""
    made = blocking.Volume.new("ending").resolve()
    store = stores.open_store()
    ending = registry.register(
        registry.new_id(),
        mount_path=mount_paths.default_root() / "ending",
        socket=place / "run" / "nobody.sock",
        store_url=str(made.store_url),
        store_id=store.record.store_id.hex(),
        volume="ending",
        version_id=None,
        read_only=False,
        working_copy=place / "working",
    )
    path = blocking.Volume.open("ending").mount()
    registry.unregister(ending)
    assert os.path.ismount(path)


def test_a_mount_point_that_somebody_is_about_to_mount_on_stays() -> None:
    """He waits for the mount before his to end, and who ended that one tidies up meanwhile."""
    path = mount_paths.default_root() / "next"
    path.mkdir(parents=True)
    with reservation.first_free([str(path)]) as free:
        assert free == str(path)
        mount_paths.leave(str(path))
        assert path.is_dir()
    mount_paths.leave(str(path))
    assert not path.exists()


@pytest.mark.parametrize("has_base", [True, False])
def test_work_of_a_writer_that_was_taken_over_moves_to_a_fork(go: Go, place: Path, has_base: bool) -> None:
    async def body() -> None:
        vol = Volume.new("line")
        path = await vol.mount()
        if has_base:
            (path / "base").write_text("base")
            await vol.commit()
        (path / "mine").write_text("not published")
        theirs = (
            "vol = Volume.open('line')\n"
            f"path = vol.mount({str(place / 'mnt' / 'theirs')!r}, take_over=True)\n"
            "(path / 'theirs').write_text('x')\n"
            "print(vol.finalize().locator)"
        )
        locator = await anyio.to_thread.run_sync(lambda: elsewhere(theirs, **another_machine(place)))
        with pytest.raises(LeaseLostError) as caught:
            await vol.commit()
        assert caught.value.hint
        assert (path / "mine").read_text() == "not published"
        rescued = await vol.fork("rescued")
        assert not vol.is_mounted
        saved = await rescued.mount()
        assert {each.name for each in saved.iterdir()} == ({"mine", "base"} if has_base else {"mine"})
        ro = await rescued.finalize()
        assert (await ro.mount() / "mine").read_text() == "not published"
        assert (await Volume.open("line")).locator == locator
        assert {each.name for each in (await vol.mount()).iterdir()} == ({"base"} if has_base else set()) | {"theirs"}

    go(body)


def test_finalize_returns_the_version_although_a_file_is_open(go: Go) -> None:
    async def body() -> None:
        async with Volume.new("open-file") as vol:
            path = vol.path
            (path / "data").write_bytes(b"x" * 10000)
            with (path / "data").open("rb") as file:
                mapped = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
            version = await vol.finalize("done")
        assert vol.locator == version.locator
        assert not path.exists()
        assert mapped[:3] == b"xxx", "what is open goes on"
        assert [entry.is_detached for entry in registry.list_mounts()] == [True]
        with pytest.raises(LeaseHeldError, match="still have files of it open"):
            await Volume.open("open-file").mount()
        mapped.close()
        with anyio.fail_after(60):
            while registry.list_mounts():  # noqa: ASYNC110 - the end of another process sends no event
                await anyio.sleep(0.02)
        assert (await version.mount() / "data").stat().st_size == 10000
        await version.unmount()
        async with Volume.open("open-file") as again:
            assert (again / "data").stat().st_size == 10000

    go(body)


def test_readers_that_mount_at_once_share_the_mount(go: Go) -> None:
    async def body() -> None:
        version = await written("loader", "for everybody")
        readers = [await Volume.from_locator(version.locator) for _ in range(4)]
        async with anyio.create_task_group() as group:
            for reader in readers:
                group.start_soon(reader.mount)
        assert len({reader.path for reader in readers}) == 1
        for reader in readers:
            assert (reader / "file").read_text() == "for everybody"
            await reader.unmount()
            assert not reader.is_mounted
        assert registry.list_mounts() == []

    go(body)


def test_a_forked_child_leaves_its_parents_mount_alone() -> None:
    code = (
        "version = Volume.new('parent').commit()\n"
        "with Volume.new('forking') as vol, version:\n"
        "    (vol / 'file').write_text('x')\n"
        "    pid = os.fork()\n"
        "    if pid == 0: sys.exit(0)\n"
        "    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0\n"
        "    assert (vol / 'file').read_text() == 'x' and version.is_mounted\n"
        "print(vol.locator is not None)"
    )
    assert elsewhere(code) == "True"


def test_versions_are_equal_by_what_they_are(go: Go) -> None:
    async def body() -> None:
        version = await written("original")
        fork = await version.fork("copy")
        assert fork.locator != version.locator
        same = await Volume.from_locator(str(fork.locator))
        assert same == version
        assert len({same, version}) == 1

    go(body)


def test_another_process_commits_and_unmounts(go: Go) -> None:
    async def body() -> None:
        vol = Volume.new("shared")
        path = await vol.mount()
        (path / "file").write_text("x")
        locator = await anyio.to_thread.run_sync(elsewhere, "print(Volume.open('shared').commit('theirs').locator)")
        assert (await vol.commit()).locator == locator
        (path / "file").write_text("y")
        await anyio.to_thread.run_sync(elsewhere, "Volume.open('shared').unmount(force=True)")
        assert not vol.is_mounted
        assert ((await vol.mount()) / "file").read_text() == "y"

    go(body)


async def kill(vol: RWVolume) -> None:
    entry = vol._blocking._handle.live()
    assert entry is not None
    os.kill(entry.pid, 9)
    with anyio.fail_after(30):
        while entry.process.is_alive:  # noqa: ASYNC110 - another process' death sends no event
            await anyio.sleep(0.01)


def test_a_killed_daemon_loses_nothing(go: Go) -> None:
    async def body() -> None:
        vol = Volume.new("killed")
        path = await vol.mount()
        (path / "file").write_text("written")
        await kill(vol)
        assert not vol.is_mounted
        assert ((await vol.mount()) / "file").read_text() == "written"
        await kill(vol)
        assert (await vol.finalize()).stats.files == 1, "from the working copy"
        assert not path.exists(), "nothing is left mounted"

    go(body)


def test_bad_mount_points(go: Go, place: Path) -> None:
    async def body() -> None:
        vol = Volume.new("points")
        with pytest.raises(NotFoundError, match="does not exist"):
            await vol.mount(place / "no" / "parent")
        assert not (place / "store").exists(), "no name was claimed for it"
        with pytest.raises(InvalidInputError):
            await vol.mount("")
        (place / "mnt" / "full").mkdir()
        (place / "mnt" / "full" / "file").write_text("mine")
        with pytest.raises(ConflictError, match="not empty"):
            await vol.mount(place / "mnt" / "full")
        with pytest.raises(InvalidInputError, match="max_uploads"):
            await vol.mount(max_uploads=0)
        with pytest.raises(InvalidInputError, match="descriptor"):
            await vol.mount(fuse_fd=999)
        assert await vol.mount() == place / "home" / "cowfs" / "points"

    go(body)


def test_memory_stores_cannot_be_mounted(go: Go) -> None:
    async def body() -> None:
        with pytest.raises(InvalidInputError, match="memory"):
            await Volume.new("x", store="memory://test").mount()

    go(body)


def test_two_stores_may_have_volumes_of_one_name(go: Go, place: Path) -> None:
    async def body() -> None:
        paths = [await Volume.new("name", store=(place / store).as_uri()).mount() for store in ("s1", "s2")]
        assert paths[0] == place / "home" / "cowfs" / "name"
        assert paths[1].name.startswith("name-")

    go(body)


@pytest.mark.usefixtures("place")
def test_blocking_volumes_inside_a_running_loop() -> None:
    async def notebook_cell() -> str:
        with blocking.Volume.new("notebook") as vol:
            (vol / "file").write_text("x")
            assert type(vol) is blocking.RWVolume
            version = vol.commit("from a cell")
            assert type(version) is blocking.ROVolume
        return version.locator

    locator = anyio.run(notebook_cell)
    version = blocking.Volume.from_locator(locator)
    assert version.message == "from a cell"
    assert pickle.loads(pickle.dumps(version)) == version
    assert [type(each) for each in version.history()] == [blocking.ROVolume]
    with version.fork("other") as fork:
        assert (fork / "file").read_text() == "x"
