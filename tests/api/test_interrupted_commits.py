"""Ctrl-C in a call that publishes a version from this process: whatever it interrupts, the same
call works at once again, and publishes all."""

from __future__ import annotations

import _thread
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import fsspec
import pytest

from cowfs.api.versions import waiting
from cowfs.blocking import ROVolume, RWVolume, Store, Volume
from cowfs.version.commit import Progress
from tests.api.conftest import place
from tests.interrupt import interrupts

__all__ = ["place"]

pytestmark = pytest.mark.usefixtures("place")

MODULES = (
    "cowfs.base.interruptible",
    "cowfs.api.access.used_files",
    "cowfs.api.mounts.unmounted",
    "cowfs.machine.working_copy",
    "cowfs.writer.acquiring",
    "cowfs.session.committer",
    "cowfs.session.frozen_layer",
    "cowfs.writer.publishing",
    "cowfs.session.session",
    "cowfs.store.refs.refs",
    "cowfs.version.publish.known_chunks",
    "cowfs.version.publish.publisher",
)

Round = tuple[Callable[[], object], Callable[[], bytes]]


def used(vol: RWVolume, content: bytes) -> Round:
    vol.files.write("file", content)
    return vol.commit, lambda: vol.commit().files.read("file")


def kept(vol: RWVolume, content: bytes) -> Round:
    vol.files.write("file", content)
    vol.unmount()
    reopened = Volume.open(vol.name)
    return reopened.commit, lambda: reopened.commit().files.read("file")


def in_transaction(vol: RWVolume, content: bytes) -> Round:
    vol.unmount()

    def write() -> None:
        fs = fsspec.filesystem("cowfs", skip_instance_cache=True)
        with fs.transaction, fs.open(f"cowfs://{vol.name}/file", "wb") as file:
            file.write(content)

    def again() -> bytes:
        write()
        return newest(vol.name).files.read("file")

    return write, again


def rolled_back(vol: RWVolume, content: bytes) -> Round:
    vol.files.write("file", content)
    to = vol.commit()
    vol.files.write("file", b"newer than that")
    vol.finalize()

    def roll_back() -> None:
        Store().rollback(vol.name, to)

    def read() -> bytes:
        roll_back()
        return newest(vol.name).files.read("file")

    return roll_back, read


def uploaded(vol: RWVolume, content: bytes) -> Round:
    vol.unmount()
    Path("file").write_bytes(content)

    def upload() -> None:
        Volume.open(vol.name).files.upload("file", "/")

    def again() -> bytes:
        upload()
        return newest(vol.name).files.read("file")

    return upload, again


def newest(name: str) -> ROVolume:
    return Volume.open(name).history(limit=1)[0]


@pytest.mark.parametrize("begin", [used, kept, in_transaction, rolled_back, uploaded])
def test_after_an_interruption_the_next_call_publishes_all(
    begin: Callable[[RWVolume, bytes], Round], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(waiting, "WAIT_S", 3.0)  # else a lease of its own would be waited for
    Volume.new("data", strict=True).finalize()
    for interrupt in interrupts(MODULES, dense=24, sparse=11):
        content = b"%d" % interrupt.number
        call, again = begin(Volume.open("data"), content)
        with interrupt:
            call()
        assert again() == content, f"interrupted before line {interrupt.number}"
    assert interrupt.number > 10


def test_a_listener_is_called_by_who_commits() -> None:
    vol, found = Volume.new("data"), list[tuple[int, bytes]]()
    vol.files.write("file", b"content")

    def hear(progress: Progress) -> None:
        found.append((threading.get_ident(), vol.files.read("file")))

    vol.finalize(progress=hear)
    assert found
    assert set(found) == {(threading.get_ident(), b"content")}


def test_an_interrupted_commit_ends_soon_and_publishes_nothing() -> None:
    vol, heard = Volume.new("data"), list[Progress]()
    for number in range(3000):
        vol.files.write(f"{number}", b"%d" % number)

    def hear(progress: Progress) -> None:
        heard.append(progress)
        _thread.interrupt_main()

    with pytest.raises(KeyboardInterrupt):
        vol.commit(progress=hear)
    assert len(heard) == 1
    assert vol.history() == []
    assert vol.commit().files.read("2999") == b"2999"


def test_an_error_of_a_listener_at_any_news_leaves_the_work_for_the_next_commit() -> None:
    vol, seen = Volume.new("data"), list[str]()
    vol.files.write("file", b"content")
    for failing in range(100):
        count = iter(range(failing + 1))

        def hear(progress: Progress, count: Iterator[int] = count, failing: int = failing) -> None:
            seen.append(progress.stage)
            if next(count) == failing:
                raise LookupError

        try:
            assert vol.commit(progress=hear).files.read("file") == b"content"
            break
        except LookupError:
            assert vol.files.read("file") == b"content"
            assert vol.commit("after an error").files.read("file") == b"content"
            vol.files.write("more", b"%d" % failing)
    assert set(seen) == {"frozen", "files", "index"}


@pytest.mark.parametrize("end", ["commit", "finalize"])
def test_a_listener_of_a_copy_may_ask_the_volume(tmp_path: Path, end: str) -> None:
    """While the volume waits for the commit, in the thread that has its lock."""
    vol, found = Volume.new("copied"), list[int]()
    path = vol.mount(tmp_path / "copy", mode="copy")
    (path / "file").write_text("content")
    vol.commit("one")
    (path / "file").write_text("changed")
    vol.unmount()

    def hear(_: Progress) -> None:
        found.append(len(vol.history()))

    done = threading.Thread(target=lambda: getattr(vol, end)("two", progress=hear), daemon=True)
    done.start()
    done.join(60)
    assert not done.is_alive()
    assert found
    assert Volume.version("copied").files.read("file") == b"changed"
