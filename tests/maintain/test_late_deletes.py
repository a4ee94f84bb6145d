"""A collector whose request to delete arrives when another has ended the same collection, and a
copy from another store has put back what it needs meanwhile."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from cowfs.base.ids import PackId, VersionId
from cowfs.errors import ConflictError
from cowfs.format import keys
from cowfs.format.pack import PackEntry
from cowfs.maintain.check.pack_check import check_bytes
from cowfs.maintain.collect.collecting import Collection
from cowfs.maintain.collect.generations import Condemned
from cowfs.maintain.collect.moving import append_record, put_blobs
from cowfs.maintain.collect.planning import Listing
from cowfs.maintain.copy.pushing import Push
from cowfs.store import ObjectStore, initialize, open_store
from cowfs.store.sealed import sealing_of
from cowfs.version.names.deletion import delete_volume
from tests.maintain.fixtures import impatient, store
from tests.maintain.stores import ME, age, collect, commit, random_bytes, survey, tree

__all__ = ["impatient", "store"]

pytestmark = pytest.mark.usefixtures("impatient")


@pytest.fixture
def source(tmp_path: Path) -> Iterator[ObjectStore]:
    opened = open_store((tmp_path / "source").as_uri(), create=True)
    initialize(opened)
    yield opened
    opened.close()


def push(source: ObjectStore, target: ObjectStore, name: str, version: VersionId, home: Path) -> None:
    Push(
        source,
        target,
        "v",
        name,
        [version],
        holder=ME,
        owner="test",
        cache_dir=home / "push",
        progress=lambda progress: None,
    ).run(with_tags=False)


def move(store: ObjectStore, pack: PackId) -> None:
    """Its blobs, to another pack, as repair does it."""
    data = store.get(keys.pack(pack))
    state, sealing = check_bytes(data, pack, sealing_of(store)), sealing_of(store).pack(pack)
    assert state.directory is not None
    assert state.kind is not None

    def stored(entry: PackEntry) -> bytes:
        sealed = data[entry.offset : entry.offset + entry.stored_length]
        return sealing.open(sealed, entry.offset, entry.codec, entry.raw_length, what=f"pack {pack}")

    append_record(store, pack, 0, put_blobs(store, state.kind, ((each, stored(each)) for each in state.directory)))


@pytest.mark.parametrize("was_moved", [False, True])
def test_what_is_pushed_outlives_a_late_delete(
    source: ObjectStore, store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, was_moved: bool
) -> None:
    """A pack is put under another id. The first moved record of a pack has one key: while a late
    request could delete that, the push is refused."""
    first = commit(source, "v", tmp_path, {b"a": random_bytes(1)})
    second = commit(source, "v", tmp_path, {b"b": random_bytes(2)})
    whole = {b"a": random_bytes(1), b"b": random_bytes(2)}
    push(source, store, "early", first, tmp_path)
    if was_moved:
        for pack in [keys.parse_pack(info.key) for info in store.list(keys.PACKS)]:
            assert pack is not None
            move(store, pack)
    delete_volume(store, "early", ME)
    age(tmp_path)
    found, plan = survey(store, tmp_path, grace_s=1)
    outcomes: list[str] = []

    class Late:
        """The store of the late collector."""

        def __getattr__(self, name: str) -> object:
            return getattr(store, name)

        def delete(self, doomed: Iterable[str]) -> None:
            doomed = list(doomed)
            if not outcomes and any(key.startswith(keys.PACKS) for key in doomed):
                collect(store, tmp_path, grace_s=1)
                try:
                    push(source, store, "back", second, tmp_path)
                    outcomes.append("pushed")
                    assert tree(store, second, tmp_path) == whole
                except ConflictError as error:
                    outcomes.append(error.hint or "")
            store.delete(doomed)

    late = Collection(found, ME, wait_s=0)
    monkeypatch.setattr(late, "_store", Late())
    late.apply(plan)
    if was_moved:
        assert outcomes[0].startswith("Push again in an hour")
        age(tmp_path)
        push(source, store, "back", second, tmp_path)
    else:
        assert outcomes == ["pushed"]
    assert tree(store, second, tmp_path) == whole


def test_a_moved_record_that_was_put_after_the_list_stays(store: ObjectStore, tmp_path: Path) -> None:
    """It is of a pack on the list, but the list does not say that its records go."""
    commit(store, "v", tmp_path, {b"a": random_bytes(1)})
    packs = [pack for info in store.list(keys.PACKS) if (pack := keys.parse_pack(info.key)) is not None]
    found, _ = survey(store, tmp_path)
    for pack in packs:
        move(store, pack)
    found.listing = Listing.of(store)
    objects = found.listing.objects_of(Condemned(packs=frozenset(packs)))
    assert objects.keys() == {keys.pack(pack) for pack in packs}
