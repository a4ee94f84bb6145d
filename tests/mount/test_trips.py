"""A cold read makes one trip through Python: rows and chunks are loaded in one visit."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import Future

import pytest

from cowfs.native import NotResident
from cowfs.native.chunks import ChunkRef
from tests.mount.daemons import Mount, Place
from tests.mount.served import Program, Served

pytestmark = pytest.mark.mount


def test_a_cold_read_is_parked_once(place: Place, mount: Mount) -> None:
    (mount.path / "f").write_bytes(os.urandom(4 << 20))
    version = mount.unmount(commit=True)["version"]
    spec = place.spec("v", version=version, cache_dir=str(place.root / "c" / "empty"))
    with Served(place, spec) as served, Program(served.path) as program:
        rows: list[str] = []
        fetches: list[int] = []

        def load_rows(missing: NotResident) -> Sequence[ChunkRef]:
            rows.append(missing.what)
            return served.session.residency.load_rows(missing)

        def load_chunks(
            missing: NotResident, chunks: Sequence[ChunkRef], done: Callable[[BaseException | None], None]
        ) -> Sequence[Future[None]]:
            fetches.append(len(chunks))
            return served.session.residency.load_chunks(chunks, done)

        served.serve(load_rows=load_rows, load_chunks=load_chunks)
        program.step("os.chdir(os.environ['PLACE']); fd = os.open('f', os.O_RDONLY); print()")
        program.step("os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM); print()")  # one page is one request
        rows.clear()
        fetches.clear()
        assert program.step("print(len(os.pread(fd, 100, 1 << 20)))") == "100"
        assert rows == ["content"]
        assert len(fetches) == 1, "a second one would be of a request that was parked again"
