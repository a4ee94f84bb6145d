"""Versions made of change sets that no engine and no session had a part in: as a merge, a restore
or an import would."""

from __future__ import annotations

import builtins
import math
import random
import shutil
import stat
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Barrier

import pytest

from cowfs.errors import InvalidStateError, LeaseLostError, NotFoundError, UnavailableError
from cowfs.format import keys
from cowfs.format.heads import Intent
from cowfs.index import ChangeSet, Index, empty_index, open_index
from cowfs.machine.known_stores import KnownStore
from cowfs.native.chunks import ChunkRef, FileRows
from cowfs.store import ObjectStore
from cowfs.store.backends.directory.directory_store import DirectoryStore
from cowfs.store.contract import Data, ObjectInfo
from cowfs.store.packs import PackReader
from cowfs.store.refs import refs
from cowfs.store.refs.pins import Pin
from cowfs.version.commit import Base, CommitRequest
from cowfs.version.history import open_version
from cowfs.version.names.volumes import create_volume, find_head, read_head
from cowfs.version.publish import still_there
from cowfs.version.publish.pack_numbers import PackNumbers
from cowfs.version.publish.protection import Protection
from cowfs.version.publish.publisher import Draft, Publisher
from tests.faulty_store import Fault, FaultyStore
from tests.store.test_pins import declare_dead
from tests.version.test_protection import condemn, delete, fence, packs, tree
from tests.version.working_volume import WorkingVolume, id_of

pytestmark = pytest.mark.usefixtures("impatient")

ROOT = 1
NEW = random.Random(1).randbytes(1_500_000)
MUCH = random.Random(2).randbytes(40 << 20)
"""More than a pack holds."""
WATCHDOG_S = 60


class Line:
    """A publisher of volume `v`, what it had recorded on this machine, and what is to happen right
    before a head is put."""

    def __init__(self, store: ObjectStore, home: Path) -> None:
        head = find_head(store, "v") or create_volume(store, "v")
        manifest = open_version(store, head.version) if head.version else None
        reader = PackReader(store)
        index = (
            empty_index(home, uid=1, gid=1, now_ns=1)
            if manifest is None
            else open_index(store, reader, manifest.index, cache_dir=home)
        )
        self.intents: list[Intent] = []
        self.recorded: list[Intent] = []
        self.meanwhile: list[Callable[[], None]] = []
        self.protection = Protection(store, Pin.create(store, volume="v", number=head.number, owner="test"))
        self.publisher = Publisher(
            store,
            store_id=id_of(store),
            volume="v",
            epoch=head.epoch,
            base=Base(head.number, head.version, manifest),
            index=index,
            packs=reader,
            numbers=PackNumbers(index),
            protection=self.protection,
            record_intent=self._record_intent,
            record_published=self.recorded.append,
            drop_intent=lambda: None,
        )

    def _record_intent(self, intent: Intent) -> None:
        self.intents.append(intent)
        if self.meanwhile:
            self.meanwhile.pop()()


@contextmanager
def line(store: ObjectStore, home: Path) -> Iterator[Line]:
    made = Line(store, home)
    try:
        yield made
    finally:
        made.publisher.close()
        made.publisher.index.close()


@dataclass(frozen=True)
class Bytes:
    """An extent whose bytes are in memory."""

    data: bytes
    offset: int = 0
    skip: int = 0
    chunk: ChunkRef | None = None

    @property
    def length(self) -> int:
        return len(self.data)


class Files:
    """A source: new files below the root, whose bytes are here."""

    layer = 7

    def __init__(self, publisher: Publisher, files: dict[bytes, bytes]) -> None:
        self._publisher = publisher
        self._files = sorted(files.items())
        self.drafts = 0
        self.outcome: list[str] = []

    def draft(self) -> Draft:
        self.drafts += 1
        contents = FileRows()
        inodes, entries = [], []
        first = self._publisher.index.next_ino
        for ino, (name, data) in enumerate(self._files, first):
            rows = self._publisher.rows(ino, [Bytes(data)], lambda extent, at, length: extent.data[at : at + length])
            contents.put(ino, 0, rows)
            inodes.append((ino, stat.S_IFREG | 0o644, 1, 1, 1, 0, len(data), len(data), 1, 1, 1, 0, b""))
            entries.append((ROOT, name, ino))
        return Draft(ChangeSet(first + len(inodes), inodes=inodes, entries=entries), contents)

    def list_kept(self, ino: int) -> Collection[tuple[int, bytes, int]]:
        return ()

    def record_published(self, index: Index) -> None:
        self.outcome.append("published")

    def abandon(self) -> None:
        self.outcome.append("abandoned")


def test_two_versions_and_another_writers(store: ObjectStore, tmp_path: Path) -> None:
    with line(store, tmp_path / "a") as mine, line(store, tmp_path / "b") as other:
        files = Files(mine.publisher, {b"f": NEW, b"g": b"small"})
        first = mine.publisher.publish(files, CommitRequest("first"))
        assert (first.head_number, files.outcome, files.drafts) == (2, ["published"], 1)
        assert mine.recorded == mine.intents
        assert [intent.layer for intent in mine.intents] == [7]

        again = Files(mine.publisher, {b"h": NEW})
        second = mine.publisher.publish(again, CommitRequest("second"))
        assert second.manifest is not None
        assert second.manifest.parents == (first.version_id,)
        assert second.manifest.stats.added_bytes == 0, "what the first had is found"
        expected = {b"f": NEW, b"g": b"small", b"h": NEW}
        assert tree(store, second.version_id, tmp_path / "r") == expected

        lost = Files(other.publisher, {b"late": b"x"})
        with pytest.raises(LeaseLostError):
            other.publisher.publish(lost, CommitRequest())
        assert lost.outcome == ["abandoned"]
        assert other.recorded == []
    assert read_head(store, "v").version == second.version_id


def test_a_collections_fence_is_stepped_over_with_a_new_draft(store: ObjectStore, tmp_path: Path) -> None:
    """The pin was taken for dead, and the packs that the first draft had stored are gone."""
    with line(store, tmp_path / "a") as mine:
        before = packs(store)

        def collect() -> None:
            gone = packs(store) - before
            condemn(store, 1, gone)
            declare_dead(store, mine.protection.pin)
            fence(store, "v")
            delete(store, gone)

        mine.meanwhile.append(collect)
        files = Files(mine.publisher, {b"f": NEW})
        base = mine.publisher.publish(files, CommitRequest())
        assert (base.head_number, files.drafts, files.outcome) == (3, 2, ["published"])
    assert [record.kind for _, record in refs.history(store, refs.head("v"))] == ["commit", "fence", "create"]
    assert tree(store, base.version_id, tmp_path / "r") == {b"f": NEW}


def test_a_version_of_unknown_outcome_is_settled_before_the_next(store: ObjectStore, tmp_path: Path) -> None:
    """Nobody is told that it is abandoned, or published, until that is known; and then the next is
    drafted on it."""
    faulty = FaultyStore(store)
    with line(faulty, tmp_path / "a") as mine:
        faulty.inject(Fault.FAIL, "put_if_absent", times=math.inf, key_part="/head/")
        unknown = Files(mine.publisher, {b"f": NEW})
        with pytest.raises(UnavailableError):
            mine.publisher.publish(unknown, CommitRequest())
        refused = Files(mine.publisher, {b"g": b"x"})
        with pytest.raises(UnavailableError):
            mine.publisher.publish(refused, CommitRequest())
        assert (unknown.outcome, refused.outcome, refused.drafts) == ([], ["abandoned"], 0)
        assert mine.publisher.is_unsettled
        faulty.heal()
        base = mine.publisher.publish(Files(mine.publisher, {b"g": b"x"}), CommitRequest())
        assert unknown.outcome == ["published"]
        assert (base.head_number, len(mine.recorded)) == (3, 2)
    assert tree(store, base.version_id, tmp_path / "r") == {b"f": NEW, b"g": b"x"}


def test_an_outcome_that_turns_out_to_be_another_writers(store: ObjectStore, tmp_path: Path) -> None:
    faulty = FaultyStore(store)
    with line(faulty, tmp_path / "a") as mine, line(store, tmp_path / "b") as other:
        faulty.inject(Fault.FAIL, "put_if_absent", times=math.inf, key_part="/head/")
        unknown = Files(mine.publisher, {b"f": NEW})
        with pytest.raises(UnavailableError):
            mine.publisher.publish(unknown, CommitRequest())
        won = other.publisher.publish(Files(other.publisher, {b"f": b"theirs"}), CommitRequest())
        faulty.heal()
        late = Files(mine.publisher, {b"g": b"x"})
        with pytest.raises(LeaseLostError):
            mine.publisher.publish(late, CommitRequest())
        assert (unknown.outcome, late.outcome) == (["abandoned"], ["abandoned"])
        assert not mine.publisher.is_unsettled
    assert read_head(store, "v").version == won.version_id


def test_a_failure_anywhere_before_the_head_abandons_once(store: ObjectStore, tmp_path: Path) -> None:
    with line(store, tmp_path / "counted") as counted:
        counted.publisher.publish(Files(counted.publisher, {b"0": b"first"}), CommitRequest())
    places = [("put", "packs/", 0), ("put", "packs/", 1), ("put", "versions/", 0), ("list", "gc/", 1)]
    for number, (method, key_part, skip) in enumerate(places, 1):
        faulty = FaultyStore(store)
        with line(faulty, tmp_path / f"{number}") as mine:
            faulty.inject(Fault.FAIL, method, key_part=key_part, skip=skip)
            files = Files(mine.publisher, {b"%d" % number: random.Random(number).randbytes(100_000)})
            with pytest.raises(UnavailableError):
                mine.publisher.publish(files, CommitRequest())
            assert files.outcome == ["abandoned"]
            faulty.heal()
            mine.publisher.publish(files, CommitRequest())
            assert files.outcome == ["abandoned", "published"]
    assert sorted(tree(store, read_head(store, "v").version, tmp_path / "r")) == [b"0", b"1", b"2", b"3", b"4"]


class PairsStore(FaultyStore):
    """Once armed, answers what a commit asks before its head only when the other request has come
    that may be made at the same time."""

    def __init__(self, store: ObjectStore) -> None:
        super().__init__(store)
        self.packs, self.others = Barrier(2, timeout=60), Barrier(2, timeout=60)
        self.is_armed = False

    def put(self, key: str, data: Data) -> None:
        if self.is_armed:
            (self.packs if key.startswith("packs/") else self.others).wait()
        super().put(key, data)

    def list(self, prefix: str, *, start_after: str = "", limit: int | None = None) -> builtins.list[ObjectInfo]:
        if self.is_armed and prefix == keys.GC:
            self.others.wait()
        return super().list(prefix, start_after=start_after, limit=limit)


def test_a_commit_makes_five_requests_in_three_turns(store: ObjectStore, tmp_path: Path) -> None:
    """The last pack beside the index's, then the manifest beside the look at the condemned lists,
    then the head."""
    pairs = PairsStore(store)
    with line(pairs, tmp_path / "v") as mine:
        mine.publisher.publish(Files(mine.publisher, {b"f": b"first"}), CommitRequest())
        mine.publisher.chunks.wait_for_uploads()
        pairs.calls.clear()
        pairs.is_armed = True
        base = mine.publisher.publish(Files(mine.publisher, {b"g": NEW}), CommitRequest())
        looks = [call for call in pairs.calls if call[0] in ("get", "size")]  # which cost nothing in a directory
        assert len(looks) == 2 * store.url.startswith("file:")
        assert len(pairs.calls) - len(looks) == 5
        assert pairs.calls[-1][0] == "put_if_absent"
    assert tree(store, base.version_id, tmp_path / "r") == {b"f": b"first", b"g": NEW}


class Places:
    """A directory store of which earlier states and other stores can be put in its place."""

    def __init__(self, root: Path) -> None:
        self._place, self._root = root / "store", root
        self._place.mkdir()
        self.store = DirectoryStore(self._place, url=f"file://{self._place}")
        id_of(self.store)

    def keep(self, name: str) -> None:
        shutil.copytree(self._place, self._root / name)

    def swap(self, name: str) -> None:
        """The other one takes its place, and it the other's."""
        self._place.rename(self._root / "swapped")
        (self._root / name).rename(self._place)
        (self._root / "swapped").rename(self._root / name)


@pytest.mark.parametrize("is_first", [True, False])
def test_nothing_is_published_where_the_base_is_not(is_first: bool, tmp_path: Path) -> None:
    """A disk was changed under a mount, or a backup put back."""
    places = Places(tmp_path)
    places.keep("earlier")
    with line(places.store, tmp_path / "v") as mine:
        if not is_first:
            mine.publisher.publish(Files(mine.publisher, {b"f": b"first"}), CommitRequest())
        before = find_head(places.store, "v")
        places.swap("earlier")
        files = Files(mine.publisher, {b"g": NEW})
        with pytest.raises(InvalidStateError, match="does not have the base version"):
            mine.publisher.publish(files, CommitRequest())
        assert files.outcome == ["abandoned"]
        assert find_head(places.store, "v") is None
        places.swap("earlier")
        assert find_head(places.store, "v") == before
        base = mine.publisher.publish(files, CommitRequest())
        assert files.outcome == ["abandoned", "published"]
    first = {} if is_first else {b"f": b"first"}
    assert tree(places.store, base.version_id, tmp_path / "r") == {b"g": NEW, **first}


def test_a_head_of_unknown_outcome_is_not_put_behind_what_is_gone(tmp_path: Path) -> None:
    places = Places(tmp_path)
    faulty = FaultyStore(places.store)
    with line(faulty, tmp_path / "v") as mine:
        places.keep("earlier")
        mine.publisher.publish(Files(mine.publisher, {b"f": b"first"}), CommitRequest())
        faulty.inject(Fault.FAIL, "put_if_absent", key_part="head/", times=math.inf)
        files = Files(mine.publisher, {b"g": NEW})
        with pytest.raises(UnavailableError):
            mine.publisher.publish(files, CommitRequest())
        faulty.heal()
        places.swap("earlier")
        before = find_head(places.store, "v")
        with pytest.raises(InvalidStateError, match="does not have the base version"):
            mine.publisher.resume()
        assert find_head(places.store, "v") == before
        places.swap("earlier")
        mine.publisher.resume()
        assert files.outcome == ["published"]
        version = mine.publisher.base.version_id
    assert tree(places.store, version, tmp_path / "r") == {b"f": b"first", b"g": NEW}


@pytest.mark.parametrize("is_committed_between", [True, False])
def test_what_got_into_an_earlier_state_is_stored_again(is_committed_between: bool, tmp_path: Path) -> None:
    """Uploads between commits see nothing of the head; the commit looks for what they stored."""
    places = Places(tmp_path)
    with line(places.store, tmp_path / "v") as mine:
        mine.publisher.publish(Files(mine.publisher, {b"f": b"first"}), CommitRequest())
        places.keep("earlier")
        mine.publisher.publish(Files(mine.publisher, {b"f": b"second"}), CommitRequest())
        places.swap("earlier")
        files = Files(mine.publisher, {b"g": MUCH, b"h": NEW})
        if is_committed_between:
            with pytest.raises(InvalidStateError):
                mine.publisher.publish(files, CommitRequest())
            files.outcome.clear()
        store_early(mine, places.store, MUCH[::-1] if is_committed_between else MUCH)
        places.swap("earlier")
        try:
            base = mine.publisher.publish(files, CommitRequest())
        except NotFoundError:  # of a pack that was on its way meanwhile: told once
            base = mine.publisher.publish(files, CommitRequest())
    states = tree(places.store, base.version_id, tmp_path / "r")
    assert states == {b"f": b"second", b"g": MUCH, b"h": NEW}


def store_early(mine: Line, store: ObjectStore, data: bytes) -> None:
    """As a background upload does."""
    before = {info.key for info in store.list("packs/")}
    with mine.publisher.storing():
        mine.publisher.rows(10**6, [Bytes(data)], lambda extent, at, length: extent.data[at : at + length])
    end_s = time.monotonic() + WATCHDOG_S
    while not (new := {info.key for info in store.list("packs/")} - before):
        assert time.monotonic() < end_s, "no pack was full"
        time.sleep(0.01)
    while not new <= set(map(keys.pack, mine.publisher.chunks.list_uploaded_packs())):
        assert time.monotonic() < end_s
        time.sleep(0.01)


def test_what_was_found_in_a_later_state_is_stored_again(tmp_path: Path) -> None:
    """Of another volume, whose version went when a backup was put back."""
    places = Places(tmp_path)
    with line(places.store, tmp_path / "v") as mine:
        mine.publisher.publish(Files(mine.publisher, {b"f": b"first"}), CommitRequest())
        places.keep("earlier")
        with WorkingVolume(places.store, "other", tmp_path / "other") as other:
            other.write(b"much", MUCH)
            other.commit()
        mine.publisher.chunks.wait_for_uploads()
        with mine.publisher.storing():
            mine.publisher.rows(10**6, [Bytes(MUCH)], lambda extent, at, length: extent.data[at : at + length])
        assert not mine.publisher.chunks.list_uploaded_packs(), "it was found"
        places.swap("earlier")
        base = mine.publisher.publish(Files(mine.publisher, {b"g": MUCH}), CommitRequest())
    assert tree(places.store, base.version_id, tmp_path / "r") == {b"f": b"first", b"g": MUCH}


def test_nothing_is_published_in_a_store_that_was_made_anew(
    store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There the volume has no version either."""
    monkeypatch.setattr(still_there, "PROVEN_S", 0.0)
    with line(store, tmp_path / "v") as mine:
        store.delete([info.key for info in store.list("")])
        KnownStore(store.url).forget()
        id_of(store)
        before = create_volume(store, "v")
        with pytest.raises(InvalidStateError, match="does not have the base version"):
            mine.publisher.publish(Files(mine.publisher, {b"g": NEW}), CommitRequest())
        assert find_head(store, "v") == before


@pytest.mark.parametrize("is_head", [True, False])
def test_a_store_is_looked_at_again_in_time(
    is_head: bool, store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where that costs requests, as of a bucket that was put back to an earlier state."""
    monkeypatch.setattr(still_there, "PROVEN_S", 0.0)
    with line(store, tmp_path / "v") as mine:
        base = mine.publisher.publish(Files(mine.publisher, {b"f": b"first"}), CommitRequest())
        store_early(mine, store, MUCH)
        if is_head:
            store.delete([refs.head("v").key(base.head_number)])
            with pytest.raises(InvalidStateError, match="does not have the base version"):
                mine.publisher.publish(Files(mine.publisher, {b"g": NEW}), CommitRequest())
            return
        early = mine.publisher.chunks.list_uploaded_packs()
        assert early
        store.delete(map(keys.pack, early))
        base = mine.publisher.publish(Files(mine.publisher, {b"g": MUCH}), CommitRequest())
    assert tree(store, base.version_id, tmp_path / "r") == {b"f": b"first", b"g": MUCH}
