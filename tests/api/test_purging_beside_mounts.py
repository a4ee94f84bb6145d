"""A purge while mounts of its machine read and write."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path

import pytest

from cowfs.api.access import file_session
from cowfs.blocking import Store, Volume
from cowfs.errors import PurgedError
from tests.api.conftest import place
from tests.cli.test_gc import store_path

__all__ = ["place"]

pytestmark = [pytest.mark.mount, pytest.mark.usefixtures("place")]

SECRET = os.urandom(300_000)
OTHER = os.urandom(300_000)


def make() -> str:
    vol = Volume.new("data")
    vol.files.write("secret", SECRET)
    vol.files.write("other", OTHER)
    locator = vol.finalize().locator
    file_session._end_all()
    return str(locator)


def packs() -> bytes:
    return b"".join(path.read_bytes() for path in (store_path() / "packs").rglob("*") if path.is_file())


def test_a_program_hears_that_nothing_is_there(place: Path) -> None:
    version = Volume.from_locator(make())
    path = Path(version.mount())
    Store().purge("data:secret", name="data")
    assert (path / "other").read_bytes() == OTHER
    with pytest.raises(OSError, match="data") as caught:
        (path / "secret").read_bytes()
    assert caught.value.errno == errno.ENODATA
    assert any("purged" in log.read_text() for log in place.rglob("*.log"))
    version.unmount()


def test_a_mount_that_writes_meanwhile_loses_nothing() -> None:
    """It has copies of the secret, committed and not, and writes and commits all the time."""
    make()
    work = Volume.open("work", create=True)
    path = Path(work.mount())
    (path / "uncommitted").write_bytes(SECRET)
    written: dict[str, bytes] = {}
    stop, failures = threading.Event(), list[BaseException]()

    def write() -> None:
        try:
            while not stop.is_set():
                name = f"f{len(written)}"
                (path / name).write_bytes(data := os.urandom(50_000) + OTHER)
                written[name] = data
                work.commit()
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        report = Store().purge("data:secret", name="data")
    finally:
        stop.set()
        thread.join()
    assert failures == []
    assert report.is_done == (report.stored_again == 0)
    assert report.waits_for == []
    last = work.finalize()
    for name, data in written.items():
        assert last.files.read(name) == data
    if any("/uncommitted" in each.paths for each in report.versions):  # a commit came before the list
        with pytest.raises(PurgedError):
            last.files.read("uncommitted")
        assert SECRET[1000:2000] not in packs()
    else:
        assert last.files.read("uncommitted") == SECRET
    with pytest.raises(PurgedError):
        Store().version("data@{0}").files.read("secret")
