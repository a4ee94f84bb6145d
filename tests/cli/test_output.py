"""How far a commit is, as a person reads it."""

from __future__ import annotations

import dataclasses
import io
import json
import re
from pathlib import Path

import pytest

from cowfs import Progress
from cowfs.base import clock
from cowfs.cli import output
from cowfs.rendering.progress import INTERVAL_S, describe
from tests.cli.conftest import Run

pytestmark = pytest.mark.quick

GIB = 1 << 30


@pytest.mark.parametrize(
    ("progress", "elapsed_s", "said"),
    [
        (Progress("index"), 5.0, "index"),
        (Progress("replay", 1_000, 2_000_000), 5.0, "replay 1,000 of 2,000,000"),
        (Progress("files", 0, 3, 0, GIB), 5.0, "files 0 of 3, 0 B of 1.0 GiB"),
        (Progress("files", 1, 3, GIB, 4 * GIB), 0.1, "files 1 of 3, 1.0 GiB of 4.0 GiB"),
        (Progress("files", 1, 3, GIB, 4 * GIB), 16.0, "files 1 of 3, 1.0 GiB of 4.0 GiB, 64.0 MiB/s, 48 s left"),
        (Progress("files", 1, 9, GIB, 8 * GIB), 64.0, "files 1 of 9, 1.0 GiB of 8.0 GiB, 16.0 MiB/s, 7 min left"),
        (Progress("files", 3, 3, GIB, GIB), 16.0, "files 3 of 3, 1.0 GiB of 1.0 GiB, 64.0 MiB/s, 0 s left"),
    ],
)
def test_progress(progress: Progress, elapsed_s: float, said: str) -> None:
    assert describe(progress, elapsed_s) == said


def test_progress_as_json_has_where_stages_begin_and_end(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = 100.0
    monkeypatch.setattr(clock, "monotonic_s", lambda: now_s)
    line = output.ProgressLine("json")
    seen = [Progress("files", done, 10) for done in range(11)] + [Progress("index")]
    for each in seen:
        line(each)
    now_s += INTERVAL_S
    line(Progress("index", 1, 3))
    line(Progress("index", 2, 3))
    line.close()
    line.close()
    said = capsys.readouterr()
    wanted = [seen[0], seen[10], seen[11], Progress("index", 1, 3), Progress("index", 2, 3)]
    assert [json.loads(each) for each in said.err.splitlines()] == [
        {"format": 1, "progress": dataclasses.asdict(each)} for each in wanted
    ]
    assert said.out == ""


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_bar_on_a_terminal_shows_bytes_rate_and_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 100.0
    monkeypatch.setattr(clock, "monotonic_s", lambda: now_s)
    monkeypatch.setattr("sys.stderr", terminal := Terminal())
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    line = output.ProgressLine()
    line(Progress("files", 0, 3, 0, 4 * GIB))
    assert terminal.getvalue() == "", "short work shows none"
    now_s += 16
    line(Progress("files", 1, 3, GIB, 4 * GIB))
    said = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", terminal.getvalue()).rpartition("\r")[2]
    assert re.fullmatch(r"[━╸╺]{24} files 1 of 3, 1\.0 GiB of 4\.0 GiB, 64\.0 MiB/s, 48 s left", said.strip())
    line(Progress("index"))
    assert "index" in terminal.getvalue()
    assert terminal.getvalue().rindex("\x1b[?25h") > terminal.getvalue().rindex("\x1b[?25l"), "the cursor is shown"
    line.close()
    line.close()
    assert terminal.getvalue().endswith("\x1b[2K"), "it is taken off"


def test_a_command_tells_its_progress(run: Run, home: Path) -> None:
    (home / "files").mkdir()
    (home / "files" / "one").write_text("1")
    run("create", "data")
    said = run("cp", str(home / "files"), "data:", "--progress", "json", "--json")
    assert said.json["files"] == 1
    stages = [json.loads(each)["progress"]["stage"] for each in said.err.splitlines()]
    assert "index" in stages
    assert run("cp", str(home / "files"), "data:else", "--progress", "none", "--json").err == ""
