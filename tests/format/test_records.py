"""Records: what is written comes back, what is damaged or newer is told apart, what a newer cowfs
added is kept."""

from __future__ import annotations

import contextlib
import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cowfs.base.ids import PackId, StoreId, VersionId, WriteId
from cowfs.errors import CorruptError, CowfsError, InvalidInputError, UnsupportedFormatError
from cowfs.format import canonical, fields
from cowfs.format.records import (
    FORMAT,
    CondemnedRecord,
    DoneRecord,
    HeadRecord,
    HeartbeatRecord,
    Holder,
    LeaseRecord,
    MetaRecord,
    MovedBlob,
    MovedRecord,
    PinRecord,
    ProbeResult,
    PrunedRecord,
    Record,
    SeenRecord,
    SeenVolume,
    SparedRecord,
    StoreRecord,
    TagRecord,
)
from tests.format.samples import CREATED_NS, HOLDER, PACK_A, PACK_B, RECORDS, VERSION, WRITE

pytestmark = pytest.mark.quick

each_record = pytest.mark.parametrize("name", RECORDS)


def test_what_nobody_could_read_is_not_written() -> None:
    """A clock before 1970: a head of such a time made every command about the volume fail."""
    head = next(record for record in RECORDS.values() if isinstance(record, HeadRecord))
    with pytest.raises(InvalidInputError, match="created_ns") as caught:
        dataclasses.replace(head, created_ns=-1).encode()
    assert "clock" in caught.value.hint


def ids(kind: Any) -> st.SearchStrategy[Any]:
    return st.binary(min_size=kind.length, max_size=kind.length).map(kind)


text = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
number = st.integers(0, (1 << 64) - 1)
counted = st.integers(1, (1 << 64) - 1)
holders = st.builds(
    Holder, user=text, host=text, mount_path=text, pid=number, start_time=number, machine_id=text, boot_id=text
)
extras = st.dictionaries(text.map(lambda t: "x-" + t), text | number | st.booleans() | st.none(), max_size=2)
common: dict[str, Any] = {"created_ns": number, "write_id": ids(WriteId), "extra": extras}
moved_blobs = st.lists(
    st.builds(
        MovedBlob, offset=number, new_pack=st.just(PACK_B) | ids(PackId), new_offset=number, stored_length=counted
    ),
    max_size=6,
    unique_by=lambda blob: blob.offset,
).map(lambda blobs: tuple(sorted(blobs, key=lambda blob: blob.offset)))
probes = st.builds(ProbeResult, st.booleans(), number, number, number, st.booleans(), st.booleans(), number)
records: st.SearchStrategy[Record] = st.one_of(
    st.builds(
        HeadRecord,
        kind=st.sampled_from(["commit", "fork", "fence"]),
        version=ids(VersionId),
        epoch=number,
        holder=st.none() | holders,
        source=st.none() | text,
        **common,
    ),
    st.builds(HeadRecord, kind=st.sampled_from(["create", "fence", "void"]), version=st.none(), epoch=number, **common),
    st.builds(PrunedRecord, ranges=st.just(((1, 4), (6, 6))), holder=st.none() | holders, **common),
    st.builds(TagRecord, version=st.none() | ids(VersionId), holder=st.none() | holders, **common),
    st.builds(
        MetaRecord,
        owner=text,
        settings=st.dictionaries(text, text | number | st.booleans(), max_size=3),
        expires_ns=st.none() | number,
        quota_bytes=st.none() | number,
        origin=st.sampled_from(["created", "registered"]),
        **common,
    ),
    st.builds(LeaseRecord, epoch=counted, holder=holders, since_ns=number, write_id=ids(WriteId), extra=extras),
    st.builds(HeartbeatRecord, epoch=counted, beat=number, at_ns=number, released=st.booleans(), extra=extras),
    st.builds(
        PinRecord,
        volume=st.from_regex(r"[a-z0-9][a-z0-9._-]{0,9}", fullmatch=True),
        number=number,
        gc_generation=number,
        lifetime_s=st.none() | number,
        owner=text,
        kind=st.sampled_from(["writer", "reader", "fork", "hold", "dead"]),
        packs=st.lists(ids(PackId), max_size=3).map(tuple),
        version=st.none() | ids(VersionId),
        **common,
    ),
    st.builds(MovedRecord, pack=st.just(PACK_A), blobs=moved_blobs, **common),
    st.builds(
        SparedRecord,
        generation=counted,
        packs=st.lists(ids(PackId), max_size=3).map(tuple),
        versions=st.lists(ids(VersionId), max_size=3).map(tuple),
        moved=st.lists(ids(PackId), max_size=3).map(tuple),
        **common,
    ),
    st.builds(
        CondemnedRecord,
        generation=counted,
        packs=st.lists(ids(PackId), max_size=3).map(tuple),
        versions=st.lists(ids(VersionId), max_size=3).map(tuple),
        moved=st.lists(ids(PackId), max_size=3).map(tuple),
        shards=st.none() | number,
        **common,
    ),
    st.builds(
        DoneRecord,
        generation=counted,
        young_s=number,
        live_bytes=number,
        other_bytes=number,
        lost_packs=number,
        shards=number,
        **common,
    ),
    st.builds(
        SeenRecord,
        generation=counted,
        volumes=st.lists(st.builds(SeenVolume, st.just("v"), number, number, number, number), max_size=3).map(tuple),
        write_id=common["write_id"],
        extra=common["extra"],
    ),
    st.builds(StoreRecord, store_id=ids(StoreId), probe=probes, **common),
)


@given(records)
def test_round_trip(record: Record) -> None:
    data = record.encode()
    found = type(record).decode(data, what="x")
    assert found == record
    assert found.encode() == data


@given(st.binary(max_size=300))
def test_arbitrary_bytes_are_refused(data: bytes) -> None:
    for record in RECORDS.values():
        with pytest.raises(CorruptError, match="the record"):
            type(record).decode(data, what="the record")


@each_record
@pytest.mark.parametrize("value", [None, True, -1, 0, 7, 1 << 63, "", "zz", [], [1], [[]], {}, {"a": 1}])
def test_well_sealed_nonsense_raises_only_our_errors(name: str, value: object) -> None:
    """Any field of any record replaced by a value of another kind, as a hostile writer could."""
    record = RECORDS[name]
    body = canonical.decode(record.encode(), what="x")
    del body["check"], body["record"], body["format"]
    for key in body:
        data = fields.seal(record.record, record.format_number, {**body, key: value})
        with contextlib.suppress(CowfsError):
            found = type(record).decode(data, what="x")
            # An optional field that is null means the same as an absent one.
            expected = {k: v for k, v in body.items() if k != key} if value is None else {**body, key: value}
            assert found.encode() in (data, fields.seal(record.record, record.format_number, expected))


@each_record
def test_a_missing_field_is_named_or_optional(name: str) -> None:
    record = RECORDS[name]
    body = canonical.decode(record.encode(), what="x")
    del body["check"], body["record"], body["format"]
    for key in body:
        data = fields.seal(record.record, record.format_number, {k: v for k, v in body.items() if k != key})
        try:
            type(record).decode(data, what="x")
        except CorruptError as error:
            assert key in error.message
        else:
            assert key in (
                "version",
                "prev",
                "holder",
                "source",
                "expires_ns",
                "lease",
                "lifetime_s",
                "shards",
                "versions",
                "moved",
                "quota_bytes",
                "cipher",
            )


@each_record
def test_a_newer_format_is_named(name: str) -> None:
    record = RECORDS[name]
    data = fields.seal(record.record, 23, {"anything": "else"})
    with pytest.raises(UnsupportedFormatError, match="the record has format 23"):
        type(record).decode(data, what="the record")


@each_record
def test_unknown_fields_are_kept(name: str) -> None:
    record = dataclasses.replace(RECORDS[name], extra={"invented_later": {"a": [1, None]}})
    found = type(record).decode(record.encode(), what="x")
    assert found.extra == {"invented_later": {"a": [1, None]}}
    assert dataclasses.replace(found).encode() == record.encode()


def test_one_record_is_not_read_as_another() -> None:
    for name, record in RECORDS.items():
        for other in {type(r) for r in RECORDS.values()} - {type(record)}:
            with pytest.raises(CorruptError, match=f"is not a {other.record} record"):
                other.decode(record.encode(), what=name)


@pytest.mark.parametrize(
    ("kind", "version"), [("create", VERSION), ("commit", None), ("fork", None), ("other", VERSION)]
)
def test_heads_that_contradict_themselves_cannot_be_made(kind: Any, version: VersionId | None) -> None:
    with pytest.raises(InvalidInputError):
        HeadRecord(kind, version, 0, CREATED_NS, WRITE)


@pytest.mark.parametrize(
    "blobs",
    [
        (MovedBlob(16, PACK_B, 0, 1), MovedBlob(16, PACK_B, 1, 1)),
        (MovedBlob(17, PACK_B, 0, 1), MovedBlob(16, PACK_B, 1, 1)),
        (MovedBlob(16, PACK_A, 0, 1),),
        (MovedBlob(16, PACK_B, 0, 0),),
    ],
    ids=["twice", "out of order", "into its own pack", "empty"],
)
def test_moved_records_that_contradict_themselves_cannot_be_made(blobs: tuple[MovedBlob, ...]) -> None:
    with pytest.raises(InvalidInputError):
        MovedRecord(PACK_A, CREATED_NS, WRITE, blobs)


def test_moved_records_locate_every_blob() -> None:
    blobs = tuple(MovedBlob(16 + 3 * n, PACK_B, 16 + 5 * n, 3) for n in range(100))
    moved = MovedRecord(PACK_A, CREATED_NS, WRITE, blobs)
    assert [moved.locate(blob.offset) for blob in blobs] == list(blobs)
    assert [moved.locate(offset) for offset in (0, 15, 17, 18, 16 + 300)] == [None] * 5


@pytest.mark.parametrize(("name", "field"), [("head-commit", "kind"), ("pin", "kind"), ("meta", "origin")])
def test_a_kind_that_came_later_is_named_and_not_called_damage(name: str, field: str) -> None:
    record = RECORDS[name]
    body = canonical.decode(record.encode(), what="x")
    del body["check"], body["record"], body["format"]
    data = fields.seal(record.record, record.format_number, {**body, field: "invented"})
    with pytest.raises(UnsupportedFormatError, match=r"the record has .* 'invented'"):
        type(record).decode(data, what="the record")


def test_an_encrypted_store_is_refused_by_name() -> None:
    body = canonical.decode(RECORDS["store"].encode(), what="x")
    del body["check"], body["record"], body["format"]
    data = fields.seal("store", FORMAT, {**body, "cipher": "xchacha20"})
    with pytest.raises(UnsupportedFormatError, match="xchacha20"):
        StoreRecord.decode(data, what=r"cowfs\.json")


@pytest.mark.parametrize(
    ("change", "safe"),
    [({}, True), ({"race_max_winners": 2}, False), ({"race_max_winners": 0}, False), ({"put_if_absent": False}, False)],
)
def test_a_store_is_safe_only_when_exactly_one_wins(change: dict[str, Any], safe: bool) -> None:
    record = RECORDS["store"]
    assert isinstance(record, StoreRecord)
    assert dataclasses.replace(record.probe, **change).is_safe is safe


def test_text_that_is_not_unicode_is_refused() -> None:
    with pytest.raises(InvalidInputError):
        LeaseRecord(1, dataclasses.replace(HOLDER, user="\udcff"), CREATED_NS, WRITE).encode()
