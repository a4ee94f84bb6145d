"""Names that no terminal should see: programs get them byte for byte."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from cowfs.blocking import Volume
from cowfs.cli import main
from cowfs.rendering import printable
from tests.cli.conftest import Run

ODD = sorted([b"a\tb", b"n\nl", b"e\x1b[31m", b"l\xe9", "ü\u00a0".encode()])


@pytest.fixture(autouse=True)
def versions(home: Path) -> None:
    """ "odd", whose newest version has more files with odd names, and one that was moved."""
    vol = Volume.new("odd")
    vol.files.write("before\t", b"moved" * 1000)
    vol.commit()
    for name in ODD:
        vol.files.write(os.fsdecode(name), b"")
    vol.files.move("before\t", "after\t")
    vol.finalize()


@pytest.fixture(params=["utf-8:strict", "utf-8:surrogateescape"])
def encoding(request: pytest.FixtureRequest) -> str:
    """Of Python's streams: the first is what a locale of a language has."""
    return str(request.param)


def piped(*arguments: str, encoding: str = "utf-8:strict") -> bytes:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))}
    done = subprocess.run(
        [sys.executable, "-m", "cowfs.cli", *arguments],
        env={**environment, "PYTHONIOENCODING": encoding},
        capture_output=True,
        timeout=180,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_find_writes_bytes_into_a_pipe(encoding: str) -> None:
    names = sorted([*ODD, b"after\t"])
    assert piped("find", "odd", "-0", encoding=encoding) == b"".join(b"/%s\0" % name for name in names)
    assert piped("find", "odd", encoding=encoding) == b"".join(b"/%s\n" % name for name in names)


@pytest.mark.parametrize("command", [["ls", "odd"], ["tree", "odd"], ["diff", "odd@{1}", "odd"]])
def test_lists_write_bytes_into_a_pipe(command: list[str]) -> None:
    said = piped(*command)
    assert [name for name in ODD if name not in said] == []


def test_a_path_is_written_as_bytes() -> None:
    assert b" /l\xe9\n" in piped("stat", os.fsdecode(b"odd:l\xe9"))


def test_names_and_their_status_end_with_nul() -> None:
    said = piped("diff", "odd@{1}", "odd", "--name-status", "-0")
    fields = said.removesuffix(b"\0").split(b"\0")
    at = fields.index(b"R")
    assert fields[at + 1 : at + 3] == [b"/before\t", b"/after\t"]
    del fields[at : at + 3]
    assert sorted(zip(fields[::2], fields[1::2], strict=True)) == [(b"A", b"/" + name) for name in ODD]
    assert b"A\t/a\tb\n" in piped("diff", "odd@{1}", "odd", "--name-status")


def test_nul_is_about_names_and_their_status(run: Run) -> None:
    refused = run("diff", "odd@{1}", "odd", "-0")
    assert (refused.code, "--name-status" in refused.err) == (2, True)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    "command",
    [
        ["find", "odd"],
        ["find", "odd", "-0"],
        ["ls", "odd"],
        ["tree", "odd"],
        ["diff", "odd@{1}", "odd", "--name-status"],
    ],
)
def test_a_terminal_is_not_driven_by_names(command: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout", terminal := Terminal())
    assert main._run(command, as_json=False) == 0
    said = terminal.getvalue()
    assert "e [31m" in said
    assert "\x1b" not in said
    said.encode()


def test_what_a_terminal_gets_can_be_printed() -> None:
    assert printable(os.fsdecode(b"a\tb\n\x1b\xe9")) == "a b  \ufffd"
