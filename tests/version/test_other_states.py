"""A store that is exchanged under a writer, in any order with uploads and commits: other states of
it come to lie at its path and go again, as backups and disks do. What a commit has acknowledged can
be read where it was acknowledged; what it has not is kept, and comes with a later one."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cowfs.errors import InvalidStateError
from cowfs.store import ObjectStore
from cowfs.store.backends.directory.directory_store import DirectoryStore
from cowfs.store.packs import PackUploader
from cowfs.version.commit import CommitRequest
from cowfs.version.publish import publisher as publish
from cowfs.version.publish import still_there
from tests.version.test_protection import tree
from tests.version.test_publish import Bytes, Files, Line, Places, line

pytestmark = pytest.mark.usefixtures("impatient")

PACK_BYTES = 64 << 10
FILE_BYTES = 200 << 10
SLOTS = ("earlier", "older", BEFORE := "before the volume")
STEPS = st.one_of(
    st.sampled_from([("write", ""), ("write", ""), ("upload", ""), ("upload", ""), ("commit", "")]),
    st.tuples(st.sampled_from(["keep", "swap", "swap"]), st.sampled_from(SLOTS)),
)


@contextmanager
def impatient_publisher() -> Iterator[None]:
    """Packs that a file fills, and no time for which anything is taken to be there."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(publish, "PackUploader", partial(PackUploader, target_bytes=PACK_BYTES))
        patch.setattr(still_there, "PROVEN_S", 0.0)
        yield


class World:
    """A line of a store at `place`, and states of it that are kept elsewhere."""

    def __init__(self, root: Path, mine: Line, places: Places, store: ObjectStore) -> None:
        self.root, self.mine, self.places, self.store = root, mine, places, store
        self.kept = {BEFORE}
        self.pending: dict[bytes, bytes] = {}
        self.published: dict[bytes, bytes] = {}
        self.count = 0

    def write(self, _: str) -> None:
        self.count += 1
        self.pending[b"%d" % self.count] = random.Random(self.count).randbytes(FILE_BYTES)

    def upload(self, _: str) -> None:
        """What is pending, as between two commits; it has ended when this returns."""
        publisher = self.mine.publisher
        with publisher.storing():
            for number, data in enumerate(self.pending.values()):
                publisher.rows(10**6 + number, [Bytes(data)], lambda extent, at, length: extent.data[at : at + length])
        for receipt_and_upload in list(publisher.chunks._uploader._uploads.values()):
            receipt_and_upload[1].result()

    def commit(self, _: str) -> None:
        files = Files(self.mine.publisher, self.pending)
        heads = sorted(info.key for info in self.store.list("volumes/v/head/"))
        try:
            base = self.mine.publisher.publish(files, CommitRequest())
        except InvalidStateError:
            assert files.outcome == ["abandoned"]
            assert sorted(info.key for info in self.store.list("volumes/v/head/")) == heads
            return
        assert len(heads) + 1 == base.head_number, "the line has no gap"
        self.published |= self.pending
        self.pending = {}
        with TemporaryDirectory(dir=self.root) as home:
            assert tree(self.store, base.version_id, Path(home)) == self.published

    def keep(self, slot: str) -> None:
        if slot not in self.kept:
            self.places.keep(slot)
            self.kept.add(slot)

    def swap(self, slot: str) -> None:
        if slot in self.kept:
            self.places.swap(slot)


@pytest.mark.parametrize("protocol", ["file", "s3"])
@settings(max_examples=60, deadline=None)
@given(steps=st.lists(STEPS, min_size=3, max_size=14))
@example(steps=[("write", ""), ("keep", "earlier"), ("upload", ""), ("swap", "earlier"), ("commit", "")])
@example(steps=[("write", ""), ("swap", BEFORE), ("commit", "")])
@example(
    steps=[
        *[("write", ""), ("commit", ""), ("keep", "earlier"), ("write", ""), ("commit", ""), ("swap", "earlier")],
        *[("write", ""), ("commit", ""), ("upload", ""), ("swap", "earlier"), ("commit", "")],
    ]
)
def test_what_was_acknowledged_is_there_and_what_was_not_is_kept(protocol: str, steps: list[tuple[str, str]]) -> None:
    """protocol: in a directory it costs nothing to ask; elsewhere requests, for which it must be
    time."""
    with TemporaryDirectory() as home, impatient_publisher():
        places = Places(Path(home))
        places.keep(BEFORE)
        store = DirectoryStore(Path(home) / "store", url=f"{protocol}://{home}/store")
        with line(store, Path(home) / "v") as mine:
            world = World(Path(home), mine, places, store)
            for name, slot in steps:
                getattr(world, name)(slot)
