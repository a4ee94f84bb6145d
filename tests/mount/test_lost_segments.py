"""A staging segment that is gone at the next mount costs the bytes in it: named, never served as
something else, never committed."""

from __future__ import annotations

import errno
import os
import time
from pathlib import Path

import pytest

from cowfs.errors import CorruptError
from tests.mount.daemons import Mount, Place

pytestmark = pytest.mark.mount

LOST = ["deep/er/base", "new"]


def segments(mount: Mount) -> set[Path]:
    assert mount.spec.working_copy is not None
    return set((Path(mount.spec.working_copy) / "staging").glob("*.seg"))


def pread(path: Path, offset: int, size: int) -> bytes:
    fd = os.open(path, os.O_RDONLY)
    try:
        return os.pread(fd, size, offset)
    finally:
        os.close(fd)


def test_a_missing_segment_costs_the_bytes_in_it(place: Place, mount: Mount) -> None:
    base = os.urandom(100_000)
    (mount.path / "deep" / "er").mkdir(parents=True)
    (mount.path / "deep" / "er" / "base").write_bytes(base)
    mount.commit()
    mount.unmount()

    mount = place.start(place.spec())
    with (mount.path / "deep" / "er" / "base").open("r+b") as file:
        file.seek(40_960)
        file.write(bytes(range(100)))
    (mount.path / "new").write_bytes(base)
    mount.kill()
    gone = segments(mount)

    mount = place.start(place.spec())
    (mount.path / "intact").write_bytes(base)
    mount.kill()
    for path in gone:
        path.unlink()

    for _ in range(2):
        mount = place.start(place.spec())
        assert mount.ready["lost_files"] == LOST
        assert [file["path"] for file in mount.call("status")["writer"]["lost_files"]] == LOST
        assert "deep/er/base" in mount.log()
        assert (mount.path / "intact").read_bytes() == base
        assert pread(mount.path / "deep" / "er" / "base", 0, 40_960) == base[:40_960]
        for path, offset in ((mount.path / "new", 0), (mount.path / "deep" / "er" / "base", 40_960)):
            with pytest.raises(OSError, match=os.strerror(errno.EIO)):
                pread(path, offset, 50)
        with pytest.raises(CorruptError, match="deep/er/base, new") as refused:
            mount.commit()
        assert [file["path"] for file in refused.value.details["lost_files"]] == LOST
        mount.kill()

    mount = place.start(place.spec())
    with (mount.path / "deep" / "er" / "base").open("r+b") as file:
        file.seek(40_960)
        file.write(b"x" * 100)
    (mount.path / "new").unlink()
    version = mount.commit()
    assert mount.call("status")["writer"]["lost_files"] == []
    reader = place.mount("v", version=version)
    expected = base[:40_960] + b"x" * 100 + base[41_060:]
    assert (reader.path / "deep" / "er" / "base").read_bytes() == expected
    assert (reader.path / "intact").read_bytes() == base
    mount.unmount()


def test_the_log_says_why_a_read_failed(place: Place, mount: Mount) -> None:
    (mount.path / "f").write_bytes(os.urandom(100_000))
    mount.kill()
    (segment,) = segments(mount)
    with segment.open("r+b") as file:
        file.seek(50_000)
        file.write(b"damaged")

    mount = place.start(place.spec())
    for _ in range(3):
        with pytest.raises(OSError, match=os.strerror(errno.EIO)):
            pread(mount.path / "f", 49_152, 4096)
    reason = f"staging segment {segment.stem}: bytes "
    end_s = time.monotonic() + 60
    while reason not in mount.log() and time.monotonic() < end_s:
        time.sleep(0.05)
    assert mount.log().count(reason) == 1, mount.log()
    mount.unmount()
