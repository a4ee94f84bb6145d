"""The way through the pages of `cowfs web` with the keyboard alone: Tab, Enter and text."""

from __future__ import annotations

import hashlib
import os
import tarfile
from pathlib import Path

from playwright.sync_api import Download, Page

from cowfs.blocking import ROVolume, Store, Volume
from tests.web.browser.conftest import Watched

TABS = 200
NAME_OF_FOCUSED = """() => {
  const at = document.activeElement;
  return at.getAttribute("aria-label") ?? at.labels?.[0]?.textContent.trim() ?? at.textContent.trim();
}"""


def reach(page: Page, name: str) -> None:
    """Tab until the element whose name begins so has the focus."""
    seen = []
    for _ in range(TABS):
        page.keyboard.press("Tab")
        seen.append(page.evaluate(NAME_OF_FOCUSED))
        if seen[-1].startswith(name):
            assert page.locator(":focus-visible").count() == 1
            return
    raise AssertionError(f"Tab does not lead to {name!r}, only to {sorted(set(seen))}")


def follow(page: Page, name: str) -> None:
    reach(page, name)
    with page.expect_navigation():
        page.keyboard.press("Enter")


def download(page: Page, name: str) -> Download:
    reach(page, name)
    with page.expect_download() as found:
        page.keyboard.press("Enter")
    return found.value


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def contents(root: Path) -> dict[bytes, bytes | str]:
    """By path: the digest of a file, or the target of a link."""
    at = os.fsencode(root)
    found: dict[bytes, bytes | str] = {}
    for directory, names, files in os.walk(at):
        for name in names + files:
            path = os.path.join(directory, name)
            if os.path.islink(path):
                found[os.path.relpath(path, at)] = os.readlink(path)
            elif os.path.isfile(path):
                found[os.path.relpath(path, at)] = digest(Path(os.fsdecode(path)).read_bytes())
            else:
                found[os.path.relpath(path, at)] = "directory"
    return found


def test_from_the_list_to_a_deleted_volume_and_back(watched: Watched, versions: list[ROVolume], place: Path) -> None:
    page, (_, new) = watched.page, versions
    page.on("filechooser", lambda _: None)  # the browser is told now to leave its dialogs to the test
    page.goto("/")
    follow(page, "data")
    follow(page, new.id[:12])

    follow(page, "d/")
    follow(page, "notes.txt")
    assert page.get_by_label("Content").inner_text().splitlines()[:2] == ["one", "2"]
    assert download(page, "Download").path().read_bytes() == b"one\n2\n"
    follow(page, "data")
    follow(page, new.id[:12])
    follow(page, "large.bin")
    assert digest(download(page, "Download").path().read_bytes()) == digest(new.files.read("large.bin"))

    follow(page, "data")
    follow(page, f"Changes of {new.id[:12]}")
    assert page.get_by_role("status").inner_text() == "2 paths differ"
    follow(page, "/d/notes.txt")
    assert page.locator(".removed", has_text="-two").count() == page.locator(".added", has_text="+2").count() == 1

    follow(page, "Back to data")
    follow(page, new.id[:12])
    archive = download(page, "Download as tar")
    with tarfile.open(archive.path()) as tar:
        tar.extractall(place / "unpacked", filter="tar")
    expected = place / "expected"
    new.files.download("/", expected)
    assert contents(place / "unpacked" / archive.suggested_filename.removesuffix(".tar")) == contents(expected)

    sent = place / "<img src=x onerror=alert(1)>.txt"
    sent.write_bytes(os.urandom(100_000))
    reach(page, "Files for a new version")
    with page.expect_file_chooser() as chooser:
        page.keyboard.press("Enter")
    chooser.value.set_files(sent)
    reach(page, "Message")
    page.keyboard.type("by hand")
    follow(page, "Upload")
    uploaded = Volume.version("data")
    assert (uploaded.message, uploaded.parents) == ("by hand", [new.id])
    assert uploaded.files.read(sent.name) == sent.read_bytes()
    follow(page, sent.name)
    assert page.get_by_role("heading", level=1).inner_text() == sent.name

    follow(page, "data")
    reach(page, "Type data to delete")
    page.keyboard.type("data")
    follow(page, "Delete volume")
    assert Store().volumes() == []
    follow(page, "Deleted volumes")
    follow(page, "Bring back data")
    assert page.get_by_role("heading", level=1).inner_text() == "data"
    assert Volume.version("data") == uploaded
