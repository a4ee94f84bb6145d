"""A mount outlives its server: another lane goes on from what the first one and the kernel agreed
on."""

from __future__ import annotations

import os
import subprocess

import pytest

from cowfs.errors import InvalidInputError
from tests.mount.daemons import Place
from tests.mount.served import Program, Served

pytestmark = pytest.mark.mount

CHANGE = (
    "os.write(fd, b' and after'); os.fsync(fd); os.mkdir('made'); os.rename('f', 'made/g'); "
    "print(os.listdir('.'), os.stat('made/g').st_size, open('made/g').read())"
)


def test_another_lane_goes_on_with_what_is_open(place: Place) -> None:
    with Served(place, place.spec()) as served, Program(served.path) as program:
        agreed = served.serve()
        assert agreed.max_write == 1 << 20
        begun = program.step(
            "os.chdir(os.environ['PLACE']); fd = os.open('f', os.O_CREAT | os.O_RDWR); print(os.write(fd, b'before'))"
        )
        assert begun == "6"
        assert served.lane is not None
        served.lane.close(10)
        program.begin(CHANGE)
        served.wait_for_requests()
        assert served.serve(agreed) == agreed
        assert program.end() == "['made'] 16 before and after"
        assert served.lane.transport == "device"


def test_another_daemon_goes_on(place: Place) -> None:
    """With a session of its own, so that only working copy and descriptor are left of the first."""
    with Served(place, place.spec()) as served, Program(served.path) as program:
        agreed = served.serve()
        program.step(
            "os.chdir(os.environ['PLACE']); os.mkdir('d'); open('d/f', 'w').write('kept'); os.chdir('d'); print()"
        )
        assert served.lane is not None
        served.lane.close(10)
        served.open()
        program.begin("print(open('f').read(), os.listdir('..')); os.unlink('f'); print(os.listdir('.'))")
        served.wait_for_requests()
        served.serve(agreed)
        assert program.end() == "kept ['d']"
        assert program.end() == "[]"
        assert served.session.engine.inodes_in_memory() >= 2


def test_the_kernel_says_when_it_is_unmounted_meanwhile(place: Place) -> None:
    with Served(place, place.spec()) as served:
        agreed = served.serve()
        assert served.lane is not None
        served.lane.close(0)
        subprocess.run(["umount", "-l", served.path], check=True)
        lane = served.connect(agreed)
        lane.start()
        lane.wait()
        lane.close(0)


def test_what_cannot_be_taken_over_is_refused(place: Place) -> None:
    with Served(place, place.spec()) as served:
        agreed = served.serve()
        writeback_cache = 1 << 16
        for other in (
            agreed._replace(flags=agreed.flags | writeback_cache),
            agreed._replace(max_write=agreed.max_write * 2),
        ):
            with pytest.raises(InvalidInputError, match="cannot be taken over"):
                served.connect(other)
        with pytest.raises(InvalidInputError, match="io_uring cannot be taken over"):
            served.connect(agreed, tried="uring")
        assert os.path.exists(f"/proc/self/fd/{served.device_fd}")
