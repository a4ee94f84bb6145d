"""The explorer, driven by textual's pilot: a store's volumes, versions, tree, diff, find, views and
downloads."""

from __future__ import annotations

import io
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio
import pytest
from PIL import Image
from textual.pilot import Pilot
from textual.widgets import DataTable, OptionList, Static, Tree

from cowfs.blocking import IndexFile, ROVolume, Store, Volume
from cowfs.tui.app import Explorer
from cowfs.tui.dialogs import Choose, Help
from cowfs.tui.version import VersionScreen
from cowfs.tui.volumes import VolumesScreen
from tests.api.conftest import place
from tests.cli.conftest import Run, run
from tests.cli.test_json import check

__all__ = ["place", "run"]

pytestmark = pytest.mark.usefixtures("place")

WAIT_S = 30


@pytest.fixture
def versions(place: Path) -> list[ROVolume]:
    """Newest first: three versions of d/notes.txt."""
    volume = Volume.open("data", create=True)
    volume.files.mkdir("d")
    made = []
    for number in range(3):
        volume.files.write_text("d/notes.txt", f"state {number}\n" * (number + 1))
        volume.files.write_text(f"d/more{number}.csv", "a,b\n")
        made.append(volume.commit(f"version {number}"))
    return made[::-1]


def explore(drive: Callable[[Explorer, Pilot[None]], Awaitable[None]], app: Explorer) -> None:
    async def main() -> None:
        async with app.run_test(size=(140, 40)) as pilot:
            await drive(app, pilot)

    anyio.run(main)


async def until(pilot: Pilot[None], holds: Callable[[], object]) -> None:
    end = time.monotonic() + WAIT_S
    while not holds():
        assert time.monotonic() < end, pilot.app.screen.tree
        await pilot.pause(0.02)


def entries(app: Explorer) -> Tree[object]:
    return app.screen.query_one("#entries", Tree)


def card(app: Explorer) -> str:
    return str(app.screen.query_one("#card", Static).content)


def test_messages_and_names_are_not_markup(place: Path) -> None:
    volume = Volume.open("data", create=True)
    volume.files.mkdir("[")
    volume.files.write_text("[/x].txt", "content\n")
    volume.commit("fix [/etc] paths [@click=app.quit]x[/]", author="[/a]")

    async def drive(app: Explorer, pilot: Pilot[None]) -> None:
        await until(pilot, lambda: app.screen.query_one(DataTable).row_count == 1)
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, VersionScreen) and entries(app).root.children)
        table = app.screen.query_one("#versions", DataTable)
        await until(pilot, lambda: table.row_count == 1)
        assert str(table.get_row_at(0)[2]) == "fix [/etc] paths [@click=app.quit]x[/]"
        for title in ("[/x]", "a[/x", "[@click=app.quit]x[/]"):
            await app.push_screen(Help("shown", title))
            await pilot.pause(0.05)
            await pilot.press("escape")
            await app.push_screen(Choose(title, [("key", title)]))
            await pilot.pause(0.05)
            await pilot.press("escape")

    explore(drive, Explorer(Store()))


def test_an_index_file_is_left_by_escape(versions: list[ROVolume], place: Path) -> None:
    versions[0].export_index(place / "index")

    async def drive(app: Explorer, pilot: Pilot[None]) -> None:
        await until(pilot, lambda: isinstance(app.screen, VersionScreen) and entries(app).root.children)
        await pilot.press("escape")
        await until(pilot, lambda: not app.is_running)

    explore(drive, Explorer(None, IndexFile(place / "index")))


def test_from_the_store_to_a_file_two_versions_back(versions: list[ROVolume]) -> None:
    async def drive(app: Explorer, pilot: Pilot[None]) -> None:
        await until(pilot, lambda: isinstance(app.screen, VolumesScreen))
        table = app.screen.query_one(DataTable)
        await until(pilot, lambda: table.row_count == 1)
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, VersionScreen) and entries(app).root.children)
        await until(pilot, lambda: app.screen.query_one("#versions", DataTable).row_count == 3)
        await pilot.press("down", "enter")
        await until(pilot, lambda: entries(app).root.children[0].children)
        for _ in range(4):
            await pilot.press("down")
        await until(pilot, lambda: "/d/notes.txt" in card(app) and "24 bytes" in card(app))
        await pilot.press("left_square_bracket")
        await until(pilot, lambda: "version 1" in card(app) and "/d/notes.txt" in card(app) and "16 bytes" in card(app))
        await pilot.press("left_square_bracket")
        await until(pilot, lambda: "version 0" in card(app) and "8 bytes" in card(app))
        await pilot.press("v")
        await until(pilot, lambda: isinstance(app.screen, Help))
        assert "state 0" in str(app.screen.query_one("#shown", Static).content)

    explore(drive, Explorer(Store()))


def test_versions_are_shown_with_their_tags(versions: list[ROVolume]) -> None:
    versions[1].tag("good")
    versions[1].tag("paper")

    async def drive(app: Explorer, pilot: Pilot[None]) -> None:
        await until(pilot, lambda: isinstance(app.screen, VersionScreen) and entries(app).root.children)
        table = app.screen.query_one("#versions", DataTable)
        await until(pilot, lambda: table.row_count == 3)
        shown = [str(table.get_row_at(at)[2]) for at in range(3)]
        assert shown == ["version 2", "good, paper  version 1", "version 0"]
        assert "tags" not in card(app)
        await pilot.press("left_square_bracket")
        await until(pilot, lambda: "tags     good, paper" in card(app))

    explore(drive, Explorer(Store(), versions[0]))


def test_what_differs_is_a_list_that_leads_to_paths(versions: list[ROVolume]) -> None:
    async def drive(app: Explorer, pilot: Pilot[None]) -> None:
        await until(pilot, lambda: isinstance(app.screen, VersionScreen) and entries(app).root.children)
        await until(pilot, lambda: app.screen.query_one("#versions", DataTable).row_count == 3)
        await pilot.press("d")
        await until(pilot, lambda: isinstance(app.screen, Choose))
        lines = app.screen.query_one(OptionList)
        shown = [str(lines.get_option_at_index(at).prompt) for at in range(lines.option_count)]
        assert shown == ["added    /d/more2.csv", "changed  /d/notes.txt"]
        await pilot.press("down", "enter")
        await until(pilot, lambda: isinstance(app.screen, VersionScreen) and "/d/notes.txt" in card(app))
        await pilot.press("h")
        await until(pilot, lambda: isinstance(app.screen, Choose))
        assert app.screen.query_one(OptionList).option_count == 3

    explore(drive, Explorer(Store(), versions[0]))


def test_a_name_is_found_and_downloaded(versions: list[ROVolume], tmp_path: Path) -> None:
    async def drive(app: Explorer, pilot: Pilot[None]) -> None:
        await until(pilot, lambda: isinstance(app.screen, VersionScreen) and entries(app).root.children)
        await pilot.press("slash", *"notes", "full_stop", "asterisk", "enter")
        await until(pilot, lambda: isinstance(app.screen, Choose))
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, VersionScreen) and "/d/notes.txt" in card(app))
        await pilot.press("y", "s")
        await until(pilot, lambda: app.screen.query("Input"))
        field = app.screen.query_one("Input")
        field.value = str(tmp_path / "copy.txt")  # type: ignore[attr-defined]
        await pilot.press("enter")
        await until(pilot, (tmp_path / "copy.txt").exists)
        assert app.clipboard == f"{versions[0].locator}/d/notes.txt"

    explore(drive, Explorer(Store(), versions[0]))
    assert (tmp_path / "copy.txt").read_text() == "state 2\n" * 3


def test_an_index_file_shows_the_same_tree_without_the_store(versions: list[ROVolume], place: Path, run: Run) -> None:
    file = place / "data.index"
    check("index", run("index", "export", "data", str(file), "--json").json)
    tree = run("tree", "data", "--json").json["entries"]
    (place / "store").rename(place / "gone")

    async def drive(app: Explorer, pilot: Pilot[None]) -> None:
        await until(pilot, lambda: isinstance(app.screen, VersionScreen) and entries(app).root.children)
        await pilot.press("slash", *"notes", "full_stop", "asterisk", "enter")
        await until(pilot, lambda: isinstance(app.screen, Choose))
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, VersionScreen) and "24 bytes" in card(app))
        await pilot.press("v")  # says that there are no contents
        await pilot.pause()
        assert isinstance(app.screen, VersionScreen)

    with IndexFile(file) as version:
        assert (version.id, version.message) == (versions[0].id, "version 2")
        explore(drive, Explorer(None, version))
    assert run("explore", "--from-file", str(file), "--json").json["entries"] == tree


def test_previews_escape_what_a_file_says(place: Path) -> None:
    from cowfs.tui.previews import preview

    picture = io.BytesIO()
    Image.new("RGB", (4, 4), (255, 0, 0)).save(picture, "PNG")
    volume = Volume.open("data", create=True)
    volume.files.write("evil.txt", b"\x1b[31mred\x1b]0;title\x07")
    volume.files.write("picture.png", picture.getvalue())
    volume.files.write("broken.png", b"\x89PNG\r\n\x1a\n" + b"x" * 100)
    volume.files.write("binary", b"\0\1\2")
    version = volume.commit()
    shown = {each.name: preview(version, each) for each in version.files.ls()}
    assert "\x1b" not in shown["evil.txt"].plain
    assert "red" in shown["evil.txt"].plain
    assert "▀" in shown["picture.png"].plain
    assert "not a picture" in shown["broken.png"].plain
    assert "not text" in shown["binary"].plain


def test_without_a_terminal_the_tree_is_printed(versions: list[ROVolume], run: Run) -> None:
    assert "data" in run("explore").out
    assert "notes.txt" in run("explore", "data:d").out
    assert run("explore", "data:d", "--json").json["path"] == "d"
    assert run("explore", "nothing").code == 3
    assert run("explore", "./").code == 2
