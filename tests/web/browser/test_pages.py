"""Every page: what axe finds, in light and dark; what names and contents that try to run do."""

from __future__ import annotations

import zlib
from pathlib import Path
from urllib.parse import quote

from axe_playwright_python.sync_playwright import Axe

from cowfs.blocking import ROVolume, Store, Volume
from tests.web.browser.conftest import Watched, make_link
from tests.web.conftest import ODD, Web, csrf

PAGES = [
    "/",
    "/?deleted=1",
    "/stores",
    "/gc",
    "/mounts",
    "/links",
    "/api",
    "/v/-/data",
    "/v/-/data/prune?last=1",
    "/v/-/data/merge?from=side",
    "/v/-/data/diff?new=-",
    "/v/-/data/diff?new=second&old=first&path=/d/notes.txt",
    "/v/-/data/tree/-/",
    "/v/-/data/tree/-/many?page=2",
    "/v/-/data/tree/-/d/notes.txt",
    "/v/-/data/tree/-/d/link",
    "/v/-/data/tree/-/large.bin",
    "/v/-/data/tree/-/picture.png",
    "/v/-/data/find/-/?q=note",
    "/v/-/data/log/-/d/notes.txt",
]
SCRIPT = "<script>document.title = 'ran'; alert(1)</script>"


def png() -> bytes:
    """A picture of one pixel."""
    parts = (
        (b"IHDR", bytes([0, 0, 0, 1, 0, 0, 0, 1, 8, 0, 0, 0, 0])),
        (b"IDAT", zlib.compress(bytes(2))),
        (b"IEND", b""),
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        len(data).to_bytes(4) + name + data + zlib.crc32(name + data).to_bytes(4) for name, data in parts
    )


def fill(web: Web, versions: list[ROVolume], place: Path) -> str:
    """Something for each page to show. The URL of a link of the whole version."""
    tree = place / "more"
    (tree / "many").mkdir(parents=True)
    for number in range(501):
        (tree / "many" / f"{number}").touch()
    (tree / "picture.png").write_bytes(png())
    for name, each in zip(("first", "second"), versions, strict=True):
        each.tag(name)
    Volume.open("data").files.upload(tree, message=SCRIPT)
    Store().fork("data", "side")
    token = csrf(web.client)
    assert web.client.post(f"/volumes?csrf={token}", data={"name": "gone"}).status_code == 200
    Store().delete("gone")
    return make_link(web)


def test_axe_finds_no_fault(watched: Watched, versions: list[ROVolume], place: Path, web: Web) -> None:
    link = fill(web, versions, place)
    faults: list[str] = []
    for url in [*PAGES, link]:
        watched.page.goto(url)
        faults += find_faults(watched)
    watched.page.goto("/v/-/dat")
    assert "404" in watched.wrong.pop()
    faults += find_faults(watched)
    watched.page.context.clear_cookies()
    watched.page.goto("/")
    assert watched.page.get_by_role("heading", level=1).inner_text() == "Log in"
    faults += find_faults(watched)
    assert faults == []


def find_faults(watched: Watched) -> list[str]:
    """By all rules of axe, of any impact, and that of contrast in the dark; a page that is wider
    than its window."""
    page = watched.page
    violations = Axe().run(page).response["violations"]
    page.emulate_media(color_scheme="dark")
    violations += Axe().run(page, options={"runOnly": ["color-contrast"]}).response["violations"]
    page.emulate_media(color_scheme="light")
    found = [
        f"{page.url}: {each['impact']} {each['id']}: {[node['html'] for node in each['nodes']]}" for each in violations
    ]
    if page.evaluate("document.documentElement.scrollWidth > innerWidth"):
        found.append(f"{page.url}: too wide")
    return found


def test_nothing_runs_that_names_or_contents_say(watched: Watched, versions: list[ROVolume], place: Path) -> None:
    tree = place / "traps"
    tree.mkdir()
    for name in (
        "<script>alert(2)<",
        "<img src=x onerror=alert(1)>",
        "'\"><svg onload=alert(1)>",
        "javascript:alert(1)",
    ):
        (tree / name).mkdir()
        (tree / name / "page.html").write_text(SCRIPT)
    (tree / "{{ 7 * 7 }}").write_text(SCRIPT)
    (tree / "fake.png").write_bytes(b"GIF89a" + SCRIPT.encode())
    Volume.open("data").files.upload(tree, message=SCRIPT, author=SCRIPT)
    page = watched.page
    page.goto("/v/-/data")
    assert SCRIPT in page.content().replace("&lt;", "<").replace("&gt;", ">")
    shown = [f"/v/-/data/tree/-/{quote(name)}" for name in ODD]
    page.goto("/v/-/data/tree/-/")
    shown += page.eval_on_selector_all("td.name a", "links => links.map((each) => each.href)")
    shown += [f"{page.url}{quote(each.name)}/page.html" for each in tree.iterdir() if each.is_dir()]
    shown += ["/v/-/data/find/-/?q=" + quote(SCRIPT), "/v/-/data/diff?new=-", "/v/-/data/log/-/page.html", "/"]
    for url in shown:
        page.goto(url)
        assert page.title() != "ran", url
        assert page.locator("script:not([src]), [onerror], [onload]").count() == 0, url
    for name in ("page.html", "fake.png"):
        page.goto("/v/-/data/tree/-/" + name)
        with page.expect_download():
            page.get_by_role("link", name="Download").click()
    page.goto("/v/-/data/tree/-/fake.png")
    assert page.locator("img.preview").count() == 1
