"""How long looking at large versions takes, over S3 with an empty cache.

    python -m benchmarks.look [--files 1000000] [--runs 5] [--directory DIR]

explore: from the start of a process until the explorer shows the root of a version, whose files are
in 1,000 directories. textual draws into memory. Requests and bytes are those of the relay in front
of the server.

page: a page of `cowfs web` with 500 of the 10,000 entries of a directory, as a client on this
machine gets it: the first one of a server, which fetches the index, and the 20 pages one by one.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from statistics import median

import httpx

from benchmarks import scratch
from benchmarks.store_path import places
from cowfs.base import clock
from tests.version.empty_files import publish_empty_files

DIRECTORIES = 1000
ENTRIES = 10_000
PAGES = 20
EXPLORE = """
import anyio
from cowfs.blocking import Store
from cowfs.tui.app import Explorer
from cowfs.tui.version import VersionScreen
from textual.widgets import Tree

async def main():
    app = Explorer(Store(), Store().version("many").resolve())
    async with app.run_test(size=(140, 40)) as pilot:
        while not (isinstance(app.screen, VersionScreen) and app.screen.query_one(Tree).root.children):
            await pilot.pause(0.01)

anyio.run(main)
"""


def main() -> None:
    chosen = scratch.options("Looking at large versions.", files=1_000_000, runs=5)
    with (
        scratch.directory(chosen.directory) as directory,
        places.opened("counted", directory / "server") as place,
    ):
        assert place.relayed is not None
        os.environ["COWFS_STORE"] = str(place.store)
        publish_empty_files(str(place.store), "many", DIRECTORIES, chosen.files, directory / "maker")
        times_s, seen = [], {}
        for number in range(chosen.runs):
            os.environ["COWFS_CACHE_DIR"] = str(directory / f"cache-{number}")
            place.relayed.seen()
            times_s.append(_took_s())
            seen = place.relayed.seen()
        print(
            f"explore, {chosen.files:,} files: {median(times_s):.2f} s (median of {chosen.runs}, "
            f"{min(times_s):.2f} to {max(times_s):.2f}), {seen['requests']} requests, "
            f"{seen['received_bytes'] / 1e6:.2f} MB fetched"
        )
        publish_empty_files(str(place.store), "wide", 1, ENTRIES, directory / "wide-maker")
        os.environ["COWFS_CACHE_DIR"] = str(directory / "cache-web")
        first_s, times_s = _time_pages(chosen.runs)
        print(
            f"page, {ENTRIES // PAGES} of {ENTRIES:,} entries: {1000 * median(times_s):.0f} ms (median of {len(times_s)}, "
            f"{1000 * min(times_s):.0f} to {1000 * max(times_s):.0f}), {1000 * first_s:.0f} ms the first one"
        )


def _took_s() -> float:
    start_s = clock.monotonic_s()
    subprocess.run([sys.executable, "-c", EXPLORE], check=True)
    return clock.monotonic_s() - start_s


def _time_pages(runs: int) -> tuple[float, list[float]]:
    words = [sys.executable, "-m", "cowfs", "web", "--port", "0", "--json"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            link = json.loads(server.stdout.readline())["address"]
            with httpx.Client(
                base_url=link.partition("/login")[0], follow_redirects=True, timeout=60, trust_env=False
            ) as client:
                client.get(link).raise_for_status()
                first_s = _page_s(client, 1)
                return first_s, [_page_s(client, page) for _ in range(runs) for page in range(1, PAGES + 1)]
        finally:
            server.terminate()


def _page_s(client: httpx.Client, page: int) -> float:
    start_s = clock.monotonic_s()
    answer = client.get("/v/-/wide/tree/-/d0000", params={"page": page})
    took_s = clock.monotonic_s() - start_s
    assert answer.text.count("file-") >= ENTRIES // PAGES, answer
    return took_s


if __name__ == "__main__":
    main()
