"""What an earlier writer has uploaded is looked for, but not for ever."""

from __future__ import annotations

import pytest

from cowfs.base.ids import PackId
from cowfs.store import ObjectStore
from cowfs.store.packs import PackReader, PackReceipt
from cowfs.store.refs.pins import Pin
from cowfs.version.names.volumes import create_volume
from cowfs.version.publish.known_chunks import KnownChunks
from cowfs.version.publish.protection import Protection
from tests.faulty_store import Fault, FaultyStore

pytestmark = [pytest.mark.quick, pytest.mark.usefixtures("impatient")]


def test_a_store_that_does_not_answer_is_asked_for_one_pack(store: ObjectStore) -> None:
    """Each further one would be waited for as long."""
    head = create_volume(store, "v")
    faulty = FaultyStore(store)
    faulty.inject(Fault.FAIL, "get_range", "get", "size", times=1000, key_part="packs/")
    uploaded = [PackReceipt(PackId(bytes([number]) * 16), 1000, 16, 48, 1) for number in range(5)]
    protection = Protection(store, Pin.create(store, volume="v", number=head.number, owner="test"))
    known = KnownChunks(faulty, PackReader(faulty), protection, volume="v", section=None, uploaded=uploaded)
    known.wait_own_loaded()
    known.close()
    asked = {key for method, key in faulty.calls if method == "get_range"}
    assert len(asked) == 1
    assert known.list_uploaded_packs() == set()


def test_nothing_is_asked_before_there_is_something_to_store(store: ObjectStore) -> None:
    """Each other volume costs a few requests."""
    head = create_volume(store, "v")
    create_volume(store, "other")
    protection = Protection(store, Pin.create(store, volume="v", number=head.number, owner="test"))
    counting = FaultyStore(store)
    known = KnownChunks(counting, PackReader(counting), protection, volume="v", section=None)
    assert counting.calls == []
    known.begin()
    known.begin()
    known.wait_loaded(1 << 40)
    assert known.is_loaded
    assert [method for method, key in counting.calls if key == "volumes/"] == ["list"]
    known.close()
