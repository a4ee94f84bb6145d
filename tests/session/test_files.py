"""A volume written, committed, forked and read on a machine without /dev/fuse."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.api.conftest import place

__all__ = ["place"]

PROGRAM = """
import os
from pathlib import Path

from cowfs.blocking import Volume
from cowfs.control import MountOptions, SessionSpec
from cowfs.errors import MountFailedError
from cowfs.base.ids import StoreId
from cowfs.machine.working_copy import WorkingCopy
from cowfs.session.opening import enter_session
from cowfs.store import load_record, open_store

assert not os.path.exists("/dev/fuse")
STORE = os.environ["COWFS_STORE"]
OPTIONS = MountOptions(cache_dir=os.environ["COWFS_CACHE_DIR"] + "/cache").resolved()
OTHER = MountOptions(cache_dir=os.environ["COWFS_CACHE_DIR"] + "/cache2").resolved()


def writable(name):
    copy = WorkingCopy.locate(load_record(open_store(STORE)).store_id, name)
    return SessionSpec(store_url=STORE, volume=name, mode="rw", options=OPTIONS, working_copy=str(copy.path))


first = Volume.new("data", store=STORE).resolve()
try:
    first.mount(mode="fuse")
except MountFailedError as error:
    assert "/dev/fuse" in error.message
with enter_session(writable("data")) as session:
    session.files.mkdir("dir")
    session.files.write("dir/file", b"one" * 100_000)
    session.files.write("dir/file", b"TWO", 3)
    session.files.write("gone", b"x")
    session.files.remove("gone")
    session.files.write("old", b"moved")
    session.files.move("old", "dir/new")
version = first.commit("by hand")                       # opens the volume in this process: nothing is mounted
assert (version.stats.files, version.message) == (2, "by hand")
fork = version.fork("fork")
with enter_session(writable("fork")) as session:
    assert session.files.read("dir/file", 0, 9) == b"oneTWOone"
    session.files.write("mine", b"of the fork")
    session.files.remove("dir/new")
second = fork.finalize("second")
reader = SessionSpec(store_url=STORE, volume="fork", mode="ro", options=OTHER, version=second.id)
with enter_session(reader) as session:
    assert [path for path, _ in session.files.walk()] == [b"dir", b"dir/file", b"mine"]
    assert len(session.files.read("dir/file")) == 300_000
    assert session.files.stat("mine").size == 11
    for refused in (lambda: session.files.write("mine", b""), lambda: session.files.mkdir("no")):
        try:
            refused()
        except OSError as error:
            assert error.errno == 30, error
        else:
            raise AssertionError("a version was changed")

data = Volume.new("readme", store=STORE)                # as README has it, with `files` in place of a mount
data.files.write("hello.txt", b"hello")
version = data.finalize(message="v1")
fork = Volume.from_locator(version.locator).fork("exp-1")
assert fork.files.read("hello.txt") == b"hello"
fork.files.append("hello.txt", b" again")
assert fork.finalize().files.read("hello.txt") == b"hello again"
assert version.files.read("hello.txt") == b"hello"
print("done")
"""

HIDDEN = """
set -e
mkdir "$1/dev"
mount -t tmpfs none "$1/dev"
for name in null zero full random urandom tty; do touch "$1/dev/$name"; mount --bind "/dev/$name" "$1/dev/$name"; done
mkdir "$1/dev/shm"; mount -t tmpfs none "$1/dev/shm"
mount --rbind "$1/dev" /dev
exec "$2" -c "$3"
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="hides /dev/fuse by a mount")
def test_everything_but_mounting_works_without_fuse(place: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = ["unshare", "--mount", "sh", "-c", HIDDEN, "sh", str(place), sys.executable, PROGRAM]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
