"""Debian's Chromium over a real server, as `make test-look` runs it. The page is that of a user who
has opened the server's link."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Dialog, Page, sync_playwright

from cowfs.blocking import ROVolume
from tests.web.conftest import Start, Web, csrf

CHROMIUM = "/usr/bin/chromium"
WAIT_MS = 60_000


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM)
        yield started
        started.close()


@pytest.fixture
def web(start: Start, versions: list[ROVolume]) -> Web:
    return start()


class Watched:
    """A page, and what no page may do: errors on its console, also those of refused contents
    (Content-Security-Policy), exceptions, dialogs, requests to other servers."""

    def __init__(self, page: Page, web: Web) -> None:
        self.page = page
        self.wrong: list[str] = []
        page.set_default_timeout(WAIT_MS)
        page.on("console", lambda each: self._note(each.type in ("error", "warning"), each.text))
        page.on("pageerror", lambda each: self._note(True, str(each)))
        page.on("dialog", self._dismiss)
        page.on("request", lambda each: self._note(not each.url.startswith(web.url), f"asked for {each.url}"))

    def _dismiss(self, dialog: Dialog) -> None:
        self._note(True, f"dialog {dialog.message}")
        dialog.dismiss()

    def _note(self, is_wrong: bool, text: str) -> None:
        if is_wrong:
            self.wrong.append(f"{self.page.url}: {text}")


@pytest.fixture
def watched(browser: Browser, web: Web) -> Iterator[Watched]:
    """Logged in. No page did what it may not."""
    with browser.new_context(base_url=web.url) as context:
        for each in web.client.cookies.jar:
            context.add_cookies([{"name": each.name, "value": each.value or "", "url": web.url}])
        found = Watched(context.new_page(), web)
        yield found
        assert found.wrong == []


def make_link(web: Web) -> str:
    """The path of a new link to the newest version of `data`."""
    fields = {"store": "-", "volume": "data", "version": "-", "path": "", "hours": "24"}
    made = web.client.post(f"/links?csrf={csrf(web.client)}", data=fields)
    found = re.search(r'href="(?:http://[^/"]+)?(/s/[^"]+)"', made.text)
    assert found is not None, made.text
    return found[1]
