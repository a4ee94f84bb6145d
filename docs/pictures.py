"""The pictures of docs/guide/look.md and web.md: screens of the explorer and pages of `cowfs web`
over a small store.

    make test-look                      # installs Chromium and Playwright
    .tools/look/bin/python docs/pictures.py

Paths, times and ids differ from run to run; the pictures in the repository are of one run.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Page

PICTURES = Path(__file__).parent / "guide" / "pictures"
SIZE = (132, 30)
PAGE_WIDTH, PAGE_HEIGHT = 1100, 640
CHROMIUM = "/usr/bin/chromium"
WAIT_S = 30


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="cowfs-pictures-") as home:
        os.environ |= {"HOME": home, "COWFS_STORE": f"{home}/store", "XDG_RUNTIME_DIR": home}
        _fill(Path(home))
        PICTURES.mkdir(exist_ok=True)
        asyncio.run(_draw())
        _draw_pages()


def _fill(home: Path) -> None:
    """Volumes with a few versions and a fork."""
    from PIL import Image

    from cowfs.blocking import Store, Volume

    source = home / "birds"
    for name, colour in (("heron", (96, 128, 160)), ("robin", (190, 80, 40)), ("wren", (120, 96, 64))):
        (source / "images").mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (64, 64), colour).save(source / "images" / f"{name}.png")
    (source / "labels.csv").write_text("image,bird\nheron.png,heron\nrobin.png,robin\n")
    birds = Volume.open("birds", create=True)
    birds.files.upload(source, message="first images")
    (source / "labels.csv").write_text("image,bird\nheron.png,heron\nrobin.png,robin\nwren.png,wren\n")
    (source / "README.md").write_text("# Birds\n\nThree birds, for a test.\n")
    birds.files.upload(source, message="label the wren")
    Store().fork("birds", "birds-augmented")
    augmented = Volume.open("birds-augmented")
    augmented.files.move("/images", "/train")
    augmented.commit("rename images to train")


async def _draw() -> None:
    from textual.pilot import Pilot
    from textual.widgets import DataTable, Tree

    from cowfs.blocking import Store
    from cowfs.tui.app import Explorer
    from cowfs.tui.dialogs import Choose
    from cowfs.tui.version import VersionScreen

    async def until(pilot: Pilot[None], holds: Callable[[], object]) -> None:
        end = time.monotonic() + WAIT_S
        while not holds():
            if time.monotonic() > end:
                raise TimeoutError("the explorer does not show what the picture needs")
            await pilot.pause(0.05)

    app = Explorer(Store())
    async with app.run_test(size=SIZE) as pilot:
        await until(pilot, lambda: app.screen.query(DataTable) and app.screen.query_one(DataTable).row_count)
        await pilot.press("down", "enter")
        await until(pilot, lambda: isinstance(app.screen, VersionScreen) and app.screen.query_one(Tree).root.children)
        await until(pilot, lambda: app.screen.query_one("#versions", DataTable).row_count)
        await pilot.press("down", "enter")
        await until(pilot, lambda: any(node.data for node in app.screen.query_one(Tree).root.children))
        await pilot.press("down", "down", "down", "down", "down")
        await pilot.pause(0.5)
        _save(app.export_screenshot(title="cowfs explore"), "explore-version.svg")
        await pilot.press("left_square_bracket")
        await pilot.pause(0.5)
        await pilot.press("d")
        await until(pilot, lambda: isinstance(app.screen, Choose))
        await pilot.pause(0.5)
        _save(app.export_screenshot(title="cowfs explore"), "explore-diff.svg")


def _draw_pages() -> None:
    from playwright.sync_api import sync_playwright

    words = [sys.executable, "-m", "cowfs", "web", "--port", "0", "--json"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as server, sync_playwright() as playwright:
        try:
            assert server.stdout is not None
            browser = playwright.chromium.launch(executable_path=CHROMIUM)
            page = browser.new_page(viewport={"width": PAGE_WIDTH, "height": PAGE_HEIGHT})
            page.goto(json.loads(server.stdout.readline())["address"])
            page.get_by_role("link", name="birds-augmented").click()
            _save_page(page, "web-volume.png")
            page.get_by_role("link", name="Changes of").nth(1).click()
            page.get_by_role("link", name="/labels.csv").click()
            _save_page(page, "web-diff.png")
            browser.close()
        finally:
            server.terminate()


def _save_page(page: Page, name: str) -> None:
    height = min(PAGE_HEIGHT, page.evaluate("document.querySelector('main').getBoundingClientRect().bottom"))
    page.screenshot(path=PICTURES / name, clip={"x": 0, "y": 0, "width": PAGE_WIDTH, "height": height})
    print(PICTURES / name)


def _save(picture: str, name: str) -> None:
    (PICTURES / name).write_text(picture)
    print(PICTURES / name)


if __name__ == "__main__":
    main()
