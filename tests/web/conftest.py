"""A server of its own for each test that asks for one: `cowfs web` as a process, and clients."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from cowfs.blocking import ROVolume, Volume
from tests.api.conftest import place

__all__ = ["place"]

WAIT_S = 120
ODD = [b"<script>alert(1)<", b"..x", b"..\\x", b"new\nline", b"\xff\xfe", b"n" * 255, b"a b?c#d%2F&e=1", "ü".encode()]
"""Names that mean something to a browser, a shell or a decoder, and are names here."""


class Web:
    """A running server. client: of its one-time link, if it has one."""

    def __init__(self, process: subprocess.Popen[str], url: str) -> None:
        self.process = process
        self.link = url
        self.url = re.sub(r"(?<=\d)/.*", "", url)
        self.clients = ExitStack()
        self.client = self.new_client()
        if "token=" in url:
            assert self.client.get(url).status_code == 200

    def new_client(self, **options: Any) -> httpx.Client:
        return self.clients.enter_context(
            httpx.Client(base_url=self.url, follow_redirects=True, timeout=WAIT_S, trust_env=False, **options)
        )

    def log_in(self, name: str, password: str) -> httpx.Client:
        client = self.new_client()
        answer = client.post("/login", data={"name": name, "password": password})
        assert answer.status_code == 200, answer.text
        return client


def csrf(client: httpx.Client) -> str:
    """The token of the client's session, as a page has it."""
    found = re.search(r"csrf=([0-9a-f]+)", client.get("/").text)
    assert found is not None
    return found[1]


Start = Callable[..., Web]


@pytest.fixture
def start() -> Iterator[Start]:
    yield from run_servers()


def run_servers() -> Iterator[Start]:
    """A function that starts `cowfs web` with these words; all are ended at the end."""
    running: list[Web] = []

    def begin(*words: str, environ: dict[str, str] | None = None) -> Web:
        process = subprocess.Popen(
            [sys.executable, "-m", "cowfs", "web", "--port", "0", "--json", *words],
            env={**os.environ, **(environ or {})},
            stdout=subprocess.PIPE,
            stderr=sys.stderr,
            text=True,
        )
        assert process.stdout is not None
        line = process.stdout.readline()
        found = json.loads(line)
        assert "address" in found, line
        running.append(Web(process, found["address"]))
        return running[-1]

    yield begin
    for web in running:
        web.clients.close()
        assert web.process.poll() is None
        web.process.send_signal(signal.SIGTERM)
        web.process.wait(60)
        assert web.process.stdout is not None
        web.process.stdout.close()


@pytest.fixture
def versions(place: Path) -> list[ROVolume]:
    return make_versions(place)


def make_versions(place: Path) -> list[ROVolume]:
    """Two versions of the volume `data`, the older one first: odd names, text, an image, pages that
    would run scripts."""
    tree = place / "tree"
    (tree / "d" / "empty").mkdir(parents=True)
    for name in ODD:
        Path(os.fsdecode(os.fsencode(tree) + b"/" + name)).write_bytes(b"content of " + name)
    (tree / "d" / "notes.txt").write_text("one\ntwo\n")
    (tree / "d" / "link").symlink_to("notes.txt")
    (tree / "d" / "run.sh").write_text("#!/bin/sh\n")
    (tree / "d" / "run.sh").chmod(0o755)
    (tree / "large.bin").write_bytes(os.urandom(3_000_000))
    (tree / "page.html").write_text("<script>document.title = 'ran'</script>")
    (tree / "page.svg").write_text('<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script></svg>')
    (tree / "dot.png").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(20))
    volume = Volume.open("data", create=True)
    volume.files.upload(tree, message="first")
    (tree / "d" / "notes.txt").write_text("one\n2\n")
    (tree / "page.svg").unlink()
    volume.files.upload(tree, message="second", delete=True)
    return volume.history()[::-1]
