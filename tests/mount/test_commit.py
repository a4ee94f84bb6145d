"""Commits through the control socket: what is in them, what is not, and that writers go on."""

from __future__ import annotations

import mmap
import os
import subprocess
import sys
import threading

import pytest

from cowfs.control import Client
from cowfs.errors import InvalidInputError
from cowfs.version.commit import Progress
from tests.mount.daemons import WAIT_S, Mount, Place

pytestmark = pytest.mark.mount


def test_the_first_commit_publishes_even_an_empty_tree(place: Place, mount: Mount) -> None:
    result = mount.call("commit", message="nothing yet")
    assert result["is_new"] is True
    assert result["stats"]["files"] == 0
    assert os.listdir(place.mount("v", version=result["version"]).path) == []


def test_a_commit_without_changes_is_the_same_version(mount: Mount) -> None:
    (mount.path / "f").write_text("x")
    first = mount.call("commit")
    second = mount.call("commit", message="again")
    assert (second["version"], second["is_new"]) == (first["version"], False)
    os.listdir(mount.path)
    (mount.path / "f").read_text()
    assert mount.commit() == first["version"], "reading is no change"


def test_words_that_are_given_for_an_unchanged_tree_make_a_version_without_data(place: Place, mount: Mount) -> None:
    (mount.path / "f").write_bytes(os.urandom(100_000))
    first = mount.call("commit", message="epoch 10", author="a", given=["message"])
    packs = sorted((place.root / "store" / "packs").rglob("*"))
    words = {"message": "done", "author": "a", "labels": {"best": "yes"}, "given": ["message", "labels"]}
    second = mount.call("commit", **words)
    assert second["is_new"]
    assert second["version"] != first["version"]
    assert sorted((place.root / "store" / "packs").rglob("*")) == packs
    assert (second["stats"]["files"], second["stats"]["stored_bytes_added"]) == (1, 0)
    assert not mount.call("commit", **words)["is_new"], "it says all that already"
    assert not mount.call("commit", message="filled in by a program")["is_new"]
    assert mount.call("commit", author="b", given=["author"])["is_new"]
    with pytest.raises(InvalidInputError):
        mount.call("commit", message="x", given=["head"])

    (mount.path / "g").write_bytes(b"written behind it")
    mount.kill()
    again = place.mount("v")
    assert sorted(os.listdir(again.path)) == ["f", "g"]
    last = again.unmount(commit=True)
    assert last["stats"]["files"] == 2
    reader = place.mount("v", version=second["version"])
    assert (reader.path / "f").stat().st_size == 100_000


def test_what_a_commit_says_is_in_the_version(mount: Mount) -> None:
    (mount.path / "f").write_bytes(bytes(1000))
    (mount.path / "d").mkdir()
    result = mount.call("commit", message="m", author="a", labels={"k": "v"}, produced_by={"system": "test"})
    assert (result["stats"]["files"], result["stats"]["directories"], result["stats"]["bytes"]) == (1, 1, 1000)
    assert result["locator"].startswith("cowfs+file://")
    assert result["version"] in result["locator"]
    assert mount.call("status")["version"] == result["version"]


def test_what_a_sparse_file_takes_is_known_everywhere_before_it_is_read(place: Place, mount: Mount) -> None:
    with (mount.path / "sparse").open("wb") as file:
        file.write(os.urandom(10_000))
        file.seek(1 << 40)
        file.write(b"end")
    before = os.stat(mount.path / "sparse")
    assert before.st_blocks == -(-10_003 // 512)
    version = mount.commit()
    assert os.stat(mount.path / "sparse").st_blocks == before.st_blocks
    reader = place.mount("v", version=version)
    found = os.stat(reader.path / "sparse")
    assert (found.st_size, found.st_blocks) == (before.st_size, before.st_blocks)


@pytest.mark.parametrize(
    "arguments",
    [{"message": 1}, {"labels": []}, {"labels": {"a": 1}}, {"produced_by": "x"}, {"unknown": True}],
    ids=str,
)
def test_wrong_arguments_are_refused(mount: Mount, arguments: dict[str, object]) -> None:
    with pytest.raises(InvalidInputError):
        mount.call("commit", **arguments)


def test_progress_is_reported(mount: Mount) -> None:
    for number in range(20):
        (mount.path / str(number)).write_bytes(os.urandom(100_000))
    seen: list[Progress] = []
    Client(mount.spec.socket).call("commit", on_progress=seen.append)
    assert [event.stage for event in seen][-1] == "index"
    files = [event for event in seen if event.stage == "files"]
    assert files[-1] == Progress("files", 20, 20, 2_000_000, 2_000_000)
    assert all(event.done_bytes <= event.total_bytes == 2_000_000 for event in files)


def test_only_its_caller_is_told_that_a_commit_is_frozen(mount: Mount) -> None:
    """The second commit is requested while the first one runs, whose progress it hears, too."""
    (mount.path / "a").write_bytes(os.urandom(20_000_000))
    heard: tuple[list[str], list[str]] = ([], [])
    threads: list[threading.Thread] = []

    def request(number: int) -> None:
        def listen(event: Progress) -> None:
            heard[number].append(event.stage)
            if not number and event.stage == "frozen":
                (mount.path / "b").write_bytes(b"b")
                threads.append(threading.Thread(target=request, args=(1,)))
                threads[0].start()

        Client(mount.spec.socket).call("commit", on_progress=listen)

    request(0)
    threads[0].join()
    assert [stages.count("frozen") for stages in heard] == [1, 1]
    assert heard[0][0] == "frozen"


def test_stores_through_a_mapping_are_in_a_commit_called_after_them(place: Place, mount: Mount) -> None:
    """Nobody syncs, flushes or closes the mapping before the commit."""
    fd = os.open(mount.path / "mapped", os.O_RDWR | os.O_CREAT)
    os.ftruncate(fd, 1 << 20)
    view = mmap.mmap(fd, 1 << 20)
    os.close(fd)  # the mapping alone keeps the file open
    versions = []
    for letter in (b"a", b"b"):
        view[:] = letter * (1 << 20)
        versions.append(mount.commit())
    for version, letter in zip(versions, (b"a", b"b"), strict=True):
        reader = place.mount("v", version=version)
        assert (reader.path / "mapped").read_bytes() == letter * (1 << 20)
    view.close()


def test_unlinked_open_files_are_not_in_the_version(place: Place, mount: Mount) -> None:
    with (mount.path / "gone").open("wb") as held:
        held.write(bytes(100_000))
        held.flush()
        (mount.path / "gone").unlink()
        result = mount.call("commit")
        assert result["stats"]["files"] == 0
        held.write(b"still usable")
        held.flush()
        assert mount.commit() == result["version"]


def test_unlinked_and_replaced_open_files_outlive_a_commit(place: Place, mount: Mount) -> None:
    """Nothing of them was read before they lost their name, so that the next version's index cannot
    tell what they hold."""
    held = {name: os.urandom(300_000) for name in ("unlinked", "replaced", "mapped", "written")}
    for name, data in held.items():
        (mount.path / name).write_bytes(data)
    mount.commit()
    mount.unmount()
    mount = place.start(place.spec())
    files = {name: (mount.path / name).open("r+b", buffering=0) for name in held}
    view = mmap.mmap(files["mapped"].fileno(), 0)
    (mount.path / "new").write_bytes(b"short")
    (mount.path / "new").rename(mount.path / "replaced")
    for name in ("unlinked", "mapped", "written"):
        (mount.path / name).unlink()
    assert mount.call("commit")["stats"]["files"] == 1
    os.pwrite(files["written"].fileno(), b"new bytes", 100_000)
    held["written"] = held["written"][:100_000] + b"new bytes" + held["written"][100_009:]
    for name, data in held.items():
        assert files[name].read() == data, name
    assert view[:] == held["mapped"]
    view.close()
    for file in files.values():
        file.close()
    mount.unmount()


def test_writers_go_on_while_commits_run(place: Place, mount: Mount) -> None:
    """Each version holds every line that was written before its commit was called, and none torn.
    Lines do not cross pages: the kernel would send those in two requests."""
    script = """
import os, sys
fd = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
for number in range(3000):
    os.write(fd, b"%07d\\n" % number)
"""
    log = mount.path / "log"
    writer = subprocess.Popen([sys.executable, "-c", script, log])
    promised: list[tuple[str, int]] = []
    while writer.poll() is None or not promised:
        written = log.stat().st_size if log.exists() else 0
        promised.append((mount.commit(), written))
    assert writer.wait() == 0
    promised.append((mount.commit(), 3000 * 8))
    for version, written in promised[:: max(1, len(promised) // 4)] + promised[-1:]:
        reader = place.mount("v", version=version)
        data = (reader.path / "log").read_bytes() if (reader.path / "log").exists() else b""
        assert len(data) >= written
        assert data == b"".join(b"%07d\n" % number for number in range(len(data) // 8))
        reader.unmount()


def test_commits_from_several_clients_are_one_after_the_other(mount: Mount) -> None:
    (mount.path / "f").write_text("x")
    versions: list[str] = []
    clients = [threading.Thread(target=lambda: versions.append(mount.commit())) for _ in range(4)]
    for client in clients:
        client.start()
    for client in clients:
        client.join(WAIT_S)
    assert len(versions) == 4
    assert len(set(versions)) == 1


def test_a_version_holds_everything_a_tree_can_hold(place: Place, mount: Mount) -> None:
    root = os.fsencode(mount.path)
    names = [b"\xff\xfe", b"n" * 255, "é".encode(), "e\u0301".encode(), b"new\nline"]
    for name in names:
        with open(root + b"/" + name, "wb") as file:
            file.write(name * 1000)
    path = mount.path
    (path / "d" / "e").mkdir(parents=True)
    os.link(path / "é", path / "d" / "hard")
    os.symlink(b"\xff/../x", root + b"/link")
    os.mkfifo(path / "fifo")
    os.mknod(path / "device", 0o20600, os.makedev(1, 3))
    with (path / "sparse").open("wb") as file:
        file.seek(1 << 30)
        file.write(b"end")
    os.setxattr(path / "d", "user.a", b"\0\xff")
    os.utime(path / "é", ns=(1_000_000_001, 981_173_106_123_456_789))
    reader = place.mount("v", version=mount.commit())
    back = os.fsencode(reader.path)
    assert sorted(os.listdir(back)) == sorted(os.listdir(root))
    for name in names:
        with open(back + b"/" + name, "rb") as file:
            assert file.read() == name * 1000
    assert os.readlink(back + b"/link") == b"\xff/../x"
    assert (reader.path / "d" / "hard").stat().st_nlink == 2
    assert (reader.path / "d" / "hard").stat().st_ino == (reader.path / "é").stat().st_ino
    assert (reader.path / "é").stat().st_mtime_ns == 981_173_106_123_456_789
    assert os.lstat(reader.path / "device").st_rdev == os.makedev(1, 3)
    assert (reader.path / "sparse").stat().st_size == (1 << 30) + 3
    with (reader.path / "sparse").open("rb") as file:
        assert file.read(1 << 20) == bytes(1 << 20)
        file.seek(1 << 30)
        assert file.read() == b"end"
    assert os.getxattr(reader.path / "d", "user.a") == b"\0\xff"


def test_a_large_file_reads_back_with_an_empty_cache(place: Place, mount: Mount) -> None:
    data = os.urandom(24 << 20)
    (mount.path / "big").write_bytes(data)
    version = mount.commit()
    mount.unmount()
    empty = place.root / "c" / "empty"
    reader = place.mount("v", version=version, cache_dir=str(empty))
    assert (reader.path / "big").read_bytes() == data
    fd = os.open(reader.path / "big", os.O_RDONLY)
    try:
        for offset in (0, 1, 5_000_000, (24 << 20) - 10):
            assert os.pread(fd, 1000, offset) == data[offset : offset + 1000]
    finally:
        os.close(fd)


def test_changes_on_a_base_of_another_machine(place: Place, mount: Mount) -> None:
    """A writer that has nothing of the base in memory or cache changes a little of it,
    everywhere."""
    data = os.urandom(6 << 20)
    (mount.path / "big").write_bytes(data)
    for number in range(50):
        (mount.path / f"f{number}").write_text(str(number))
    mount.unmount(commit=True)
    place.working_copy().delete()
    other = place.mount("v", cache_dir=str(place.root / "c" / "empty"))
    fd = os.open(other.path / "big", os.O_RDWR)
    os.pwrite(fd, b"changed", 3_000_000)
    os.close(fd)
    (other.path / "f7").unlink()
    os.rename(other.path / "f8", other.path / "moved")
    (other.path / "f9").chmod(0o600)
    expected = data[:3_000_000] + b"changed" + data[3_000_007:]
    assert (other.path / "big").read_bytes() == expected
    reader = place.mount("v", version=other.commit())
    assert (reader.path / "big").read_bytes() == expected
    assert not (reader.path / "f7").exists()
    assert (reader.path / "moved").read_text() == "8"
    assert (reader.path / "f9").stat().st_mode & 0o777 == 0o600
    assert len(os.listdir(reader.path)) == 50
