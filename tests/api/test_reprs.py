"""What a shell or a notebook shows: short, of everything that calls return."""

from __future__ import annotations

import asyncio
import dataclasses
import pickle
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import anyio
import pytest

import cowfs
from cowfs import blocking
from cowfs.api.twins.twin import as_async
from cowfs.api.versions.version_list import VersionList
from cowfs.base import clock
from cowfs.base.quantities import format_time
from cowfs.base.short_repr import short_repr
from cowfs.blocking import Change, ROVolume, Store, Volume
from tests.api.conftest import place

__all__ = ["place"]

LONGEST = 1000
OWN_WAY = ("Change", "Diff", "Locator", "VersionLog", "VersionTree")
RESULTS = [
    getattr(blocking, name)
    for name in blocking.__all__
    if dataclasses.is_dataclass(getattr(blocking, name)) and name not in OWN_WAY
]


@dataclasses.dataclass(frozen=True)
class Part:
    text: str


@short_repr
@dataclasses.dataclass(frozen=True)
class Report:
    locator: str
    parts: list[Part]
    counts: dict[str, int] = dataclasses.field(default_factory=dict)
    is_new: bool = False
    problem: str | None = None
    work: object = None


@pytest.mark.quick
def test_a_report_is_shown_on_one_line() -> None:
    assert repr(Report("x", [])) == "Report(locator='x')"
    assert repr(Report("x", [Part("a")], {"b": 1}, True)) == (
        "Report(locator='x', parts=[Part(text='a')], counts={'b': 1}, is_new=True)"
    )
    large = Report("l" * 900, [Part("a")] * 5000, dict.fromkeys(map(str, range(99)), 0), problem="p", work=len)
    assert repr(large) == (
        f"Report(locator='{'l' * 80}…{'l' * 40}', parts=[Part(text='a'), … 5,000 in all], "
        "counts={'0': 0, … 99 in all}, problem='p', work=…)"
    )
    assert repr(Report("x", [Part("y" * 999)])) == "Report(locator='x', parts=[… 1 in all])"


@pytest.mark.quick
@pytest.mark.parametrize("kind", RESULTS, ids=lambda kind: kind.__name__)
def test_no_result_is_shown_at_length(kind: Any) -> None:
    """Each field that can hold many items holds very many."""
    result = object.__new__(kind)
    for each in dataclasses.fields(kind):
        many = str(each.type).split("[")[0] in ("list", "dict", "tuple", "Mapping", "Changes")
        value: Any = [Change("added", "/x", None, "file", None, (), 1, None, 1, 0)] * 9999 if many else None
        if str(each.type).startswith(("dict", "Mapping")):
            value = dict.fromkeys(range(9999), "x" * 100)
        object.__setattr__(result, each.name, value)
    assert len(repr(result)) < LONGEST


def test_versions_and_changes_are_shown_as_lines(place: Path) -> None:
    volume = Volume.new("shown")
    versions = []
    for number in range(12):
        volume.files.write(f"/{number}", b"x")
        versions.append(volume.commit(f"number {number}", labels={"loss": number / 2}))
    versions[-1].tag("best")
    past = volume.history()
    assert isinstance(past, list)
    title, first, *others = repr(past).splitlines()
    assert title == "<12 versions"
    assert (
        first == f"  {past[0].id[:12]}  {format_time(past[0].created_ns, to_the_second=True)}  'number 11'  loss='5.5'"
    )
    assert (len(others), others[-1]) == (10, "  … 2 more>")
    assert repr(volume.history(limit=1)).startswith("<1 version\n")
    assert repr(volume.history(labels="loss<0")) == "<0 versions>"
    log = Store().log("shown")
    assert repr(log).splitlines()[:2] == ["<log of shown: 12 versions", f"{first}  (best)"]

    changes = versions[0].diff(versions[-1])
    assert repr(changes).splitlines()[:2] == ["<11 changes: 11 added", "  added    '/1'"]
    assert [each.path for each in changes][:2] == ["/1", "/10"]
    assert (len(changes), changes[-1].path, bool(versions[0].diff(versions[0]))) == (11, "/9", False)
    assert pickle.loads(pickle.dumps(changes)) == changes
    volume.files.move("/1", "/moved")
    assert repr(volume.diff()) == "<1 change: 1 renamed\n  renamed  '/1' -> '/moved'>"
    assert repr(Store().diff("shown@{1}", "shown")).startswith(f"Diff(shown@{versions[-2].id[:12]} .. shown@")
    assert repr(Store().diff("shown")).startswith(f"Diff(shown@{versions[-1].id[:12]} .. shown now, <1 change")
    assert repr(volume.files) == f"{volume!r}.files"
    assert len(repr(Store().describe("shown"))) < LONGEST


def test_results_of_async_calls_are_async(place: Path) -> None:
    Volume.open("v", create=True).finalize("first").tag("t")

    async def main() -> None:
        store = cowfs.Store()
        log = await store.log("v")
        assert isinstance(log, cowfs.VersionLog)
        [version] = log.versions
        assert type(version) is cowfs.ROVolume
        assert log.names[version.id].tag_names == ["t"]
        assert [each async for each in version.files.ls()] == []
        assert repr(log) == repr(Store().log("v"))
        [again] = await (await cowfs.Volume.version("v")).history()
        assert type(again) is cowfs.ROVolume
        assert [each async for each in version.diff(again)] == []

    anyio.run(main)


def test_times_are_given_as_such(place: Path) -> None:
    volume = Volume.open("v", create=True)
    before = datetime.now(UTC)
    version = volume.commit("first")
    tag = version.tag("t")
    after = datetime.now(UTC)
    [summary] = Store().volumes()
    [planned] = Store().plan_prune("v", last=1).versions
    for time in (version.created, tag.created, planned.published, summary.changed):
        assert before.replace(microsecond=0) <= time <= after
    assert clock.as_datetime(1_700_000_000_123_456_789) == datetime(2023, 11, 14, 22, 13, 20, 123456, UTC)


@pytest.mark.quick
def test_calls_are_coroutines() -> None:
    """What asyncio and trio make tasks of."""
    assert cowfs.ROVolume.__name__ == "ROVolume"  # loads the async classes
    version = as_async(ROVolume(blocking.Locator.parse("cowfs+file:///nowhere/-/v@" + "0" * 64)))

    async def main() -> None:
        call = version.history()
        assert asyncio.iscoroutine(call)
        task = asyncio.create_task(call)
        with pytest.raises(cowfs.errors.CowfsError):
            await task

    asyncio.run(main())


@pytest.mark.quick
def test_what_was_not_read_is_shown_without_a_request() -> None:
    version = ROVolume(blocking.Locator.parse("cowfs+file:///nowhere/-/v@" + "1" * 64))
    gone = ROVolume(blocking.Locator.parse("cowfs+file:///nowhere/-/v@" + "2" * 64), is_pruned=True)
    assert not version.is_resolved
    assert repr(VersionList([version, gone])) == f"<2 versions\n  {version!r}\n  {'2' * 12}  not here>"
    assert repr(blocking.VersionLog("v", [version], {})) == f"<log of v: 1 version\n  {version!r}>"
