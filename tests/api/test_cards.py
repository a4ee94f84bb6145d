"""What a notebook shows of volumes, versions and results: HTML, escaped, short, and without I/O."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from threading import get_ident
from typing import Any

import anyio
import pytest

import cowfs
from cowfs import blocking
from cowfs.base import cards
from cowfs.blocking import Locator, RWVolume, Store, Volume
from cowfs.integrations.notebook import _Shown
from cowfs.rendering import format_time
from tests.api.conftest import place

__all__ = ["place"]

HOSTILE = "<script>alert(1)<" + "&\"' \n\r\x1b[2J\u202e\u2028\x7f"
TAGS = {"div", "table", "caption", "thead", "tbody", "tr", "th", "td", "br", "pre"}
NOT_RESULTS = ("Locator", "Progress")


class Page(HTMLParser):
    """Refuses what a card has no need of, and counts rows."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.rows, self.text = 0, ""
        self._open: list[str] = []
        self.feed(html)
        self.close()
        assert not self._open

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        assert tag in TAGS, tag
        assert {name for name, _ in attrs} <= {"style", "scope"}
        assert all("url" not in value and "<" not in value for _, value in attrs)
        self.rows += tag == "tr" and "thead" not in self._open
        if tag != "br":
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "pre" in self._open:
            self.rows += data.count("\n") + 1
            data = data.replace("\n", "")
        assert data.isprintable(), data
        data.encode()
        self.text += data


_cut_off: set[int] = set()
"""Threads."""


def _refuse(event: str, given: tuple[Any, ...]) -> None:
    if (
        _cut_off
        and get_ident() in _cut_off
        and event in ("open", "socket.connect", "socket.getaddrinfo", "os.listdir", "os.scandir")
    ):
        raise AssertionError(f"a card does not {event}: {given}")


@cache
def _add_hook() -> None:
    sys.addaudithook(_refuse)  # for ever


@contextmanager
def cut_off() -> Iterator[None]:
    """Nothing in this block opens a file or a connection."""
    _add_hook()
    _cut_off.add(get_ident())
    try:
        yield
    finally:
        _cut_off.clear()


def make_results() -> Iterator[Any]:
    """Every kind of value that a notebook might end a cell with, hostile where people choose."""
    store = Store()
    volume = Volume.open("v", create=True)
    volume.files.mkdir("d")
    for number in range(60):
        volume.files.write(f"d/{number}", b"x" * number)
    first = volume.commit("first", labels={"k": HOSTILE})
    volume.files.write(HOSTILE, b"x")
    volume.files.write(b"bad\xff\nname", b"x")
    volume.files.symlink("link", HOSTILE)
    volume.files.move("d/1", "d/moved")
    last = volume.commit(HOSTILE, author=HOSTILE, labels={HOSTILE[:9]: "<b>", **{f"l{n}": "x" for n in range(99)}})
    last.tag("t")
    volume.files.write("more", b"xyz")
    yield from (volume, volume.status(), volume.diff(), first, last, last.stats, last.names(), Volume.version("v:d"))
    yield from (volume.history(), store.log("v"), store.log("v:d"), first.diff(last), store.diff("v@{1}", "v"))
    yield from (last.tree(), last.tree("d", limit=1000), last.tree("link"), last.files.stat("/d"))
    yield from (store.ls("v", recursive=True), store.stat("v:d"), store.usage("v"), store.describe("v"))
    yield from (
        store.volumes(),
        store.volumes()[0],
        store.overview(),
        store.tags("v"),
        store.tags("v")[0],
        store.plan_prune("v", last=1),
    )
    yield from (store.plan_gc(dry_run=True), store.gc(dry_run=True), store.verify(), store.plan_repair())
    yield from (store.plan_purge("v:d"), store.merge("v", [first], dry_run=True), store.stored_bytes())


def test_cards_show_what_is_here_with_the_store_out_of_reach(place: Path) -> None:
    results = list(make_results())
    for each in results:
        each._repr_html_()  # loads modules
    (place / "store").rename(place / "away")
    with cut_off():
        pages = {f"{number} {type(each).__name__}": Page(each._repr_html_()) for number, each in enumerate(results)}
    for name, page in pages.items():
        assert 0 < page.rows <= cards.MOST_ROWS, name


def test_hostile_names_are_shown_as_they_are(place: Path) -> None:
    results = list(make_results())
    tree = next(each for each in results if isinstance(each, blocking.VersionTree))
    page = Page(tree._repr_html_())
    assert "<script>alert(1)<&\"' \\n\\r\\x1b[2J\\u202e\\u2028\\x7f" in page.text
    assert "bad\\xff\\nname" in page.text
    version = Page(results[4]._repr_html_())
    assert results[4].author.startswith("<script>")
    assert version.text.count("<script>") >= 2


@pytest.mark.quick
def test_a_long_list_says_how_much_is_not_shown() -> None:
    shown = Page(cards.render(cards.Card("t", {"a": "1"}, [cards.tabulate(range(2000)), cards.tabulate(range(9))])))
    assert shown.rows == cards.MOST_ROWS
    assert "… 1,951 more" in shown.text
    assert "… 9 more" in shown.text
    assert len(cards.visible("\u202e" * 99999)) <= cards.MOST_CHARACTERS + 1


@pytest.mark.quick
def test_every_result_has_a_card() -> None:
    for name in blocking.__all__:
        kind = getattr(blocking, name)
        if dataclasses.is_dataclass(kind) and name not in NOT_RESULTS:
            assert hasattr(kind, "_repr_html_"), name
    assert _Shown(1, 2, "files <1> of 2")._repr_html_().endswith("</progress> files &lt;1&gt; of 2")


@pytest.mark.quick
def test_what_was_not_read_has_no_card() -> None:
    version = blocking.ROVolume(Locator.parse("cowfs+file:///nowhere/-/v@" + "1" * 64))
    assert version._repr_html_() is None  # the repr is shown
    assert "not looked up yet" in Page(Volume.open("v")._repr_html_()).text
    gone = blocking.ROVolume(Locator.parse("cowfs+file:///nowhere/-/v@" + "2" * 64), is_pruned=True)
    assert "not in the store" in Page(gone._repr_html_() or "").text


def test_volumes_and_tags_are_tables(place: Path) -> None:
    store = Store()
    for name in ("a", "b"):
        store.create(name).commit().tag("first")
    assert store.volumes()._repr_html_().count("<tr") == 3  # type: ignore[attr-defined]
    assert Page(store.tags("a")._repr_html_()).text.startswith("1 Tag")  # type: ignore[attr-defined]
    assert isinstance(store.volumes(), list)

    async def main() -> None:
        assert (await cowfs.Store().volumes())._repr_html_() == store.volumes()._repr_html_()  # type: ignore[attr-defined]

    anyio.run(main)


def test_values_in_values_are_shown_by_their_fields(place: Path) -> None:
    store = Store()
    store.create("gone").commit()
    store.delete("gone")
    overview = store.overview(count_bytes=True)
    assert overview.garbage is not None
    card = Page(overview._repr_html_()).text  # type: ignore[attr-defined]
    assert "Restorable(" not in card
    assert f"gone {format_time(overview.garbage.deleted_volumes[0].until_ns)}" in card


@pytest.mark.mount
def test_a_writable_volume_shows_its_mount_its_work_and_its_last_version(place: Path) -> None:
    volume = Volume.new("v")
    path = volume.mount()
    version = volume.commit("one")
    (path / "a").write_text("abc")
    card = read_card(volume)
    assert str(path) in card
    assert version.locator in card
    assert "uncommitted" not in card  # nobody asked
    volume.status()
    assert "uncommitted: 1 file, 3 B (" in read_card(volume)
    version = volume.commit("two")
    assert version.locator in read_card(volume)
    assert "uncommitted" not in read_card(volume)
    volume.status()
    assert "committed (" in read_card(volume)
    volume.finalize()
    assert "finalized" in read_card(volume)
    assert str(path) not in read_card(volume)


def read_card(volume: RWVolume) -> str:
    volume._repr_html_()
    with cut_off():
        return Page(volume._repr_html_()).text


def test_a_volume_without_a_mount_shows_its_work(place: Path) -> None:
    volume = Volume.open("v", create=True)
    volume.files.write("a", b"abcd")
    volume.status()
    assert "uncommitted: 1 file, 4 B (" in read_card(volume)


def test_async_objects_have_the_same_cards(place: Path) -> None:
    Volume.open("v", create=True).finalize("first")

    async def main() -> None:
        version = await cowfs.Volume.version("v")
        wanted = Volume.version("v").resolve()
        await version.resolve()
        assert version._repr_html_() == wanted._repr_html_()
        assert repr(await version.tree()) == repr(wanted.tree()) == "/"
        assert (await version.history())._repr_html_() == wanted.history()._repr_html_()  # type: ignore[attr-defined]
        assert (await cowfs.Store().log("v"))._repr_html_() == Store().log("v")._repr_html_()
        assert version.files._repr_html_() is None

    anyio.run(main)
