"""What everyday commands show on a real terminal of 80 and of 160 columns: long names, many tags,
characters of two columns, names that are no text."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from cowfs.blocking import Store, Volume
from cowfs.cli import tables
from cowfs.rendering import printable
from tests.api.conftest import place

__all__ = ["place"]

pytestmark = pytest.mark.mount

LONG = "resnet50-imagenet-finetuned-2026-11-17-epoch-0042-step-001234567-fp16-and-more"
FILES = (
    b"README.md",
    "images/训练/图片-0001.png".encode(),
    b"images/caf\xe9-latin1.jpg",
    "logs/e\u0301moji-🚀.txt".encode(),
    b"logs/\x1b[31mred\x1b[0m.txt",
    b"models/best.pt",
    b"models/resnet50-imagenet-finetuned-2026-11-17.safetensors",
    f"models/{LONG}".encode(),
)
TAGS = ("golden", "nightly-2026-11-30", "production-candidate", "release-2026-11", "reviewed-by-marie-louise", "stable")
EVERYDAY = (
    "ls",
    "ls imagenet-finetuning",
    "ls imagenet-finetuning@golden:images",
    "ls imagenet-finetuning@golden:logs",
    "ls imagenet-finetuning@golden:models",
    "ls imagenet-finetuning@golden:*/*.pt",
    "log imagenet-finetuning",
    "log --graph imagenet-finetuning",
    "log imagenet-finetuning:notes",
    "status",
    "diff --stat imagenet-finetuning@golden imagenet-finetuning",
    "gc --dry-run",
    "prune imagenet-finetuning --keep-last 2 --keep-daily 3 --dry-run",
    "du imagenet-finetuning@golden",
    "du --stored",
    "du --stored imagenet-finetuning",
    "store --progress none",
    "tag imagenet-finetuning",
    "tree imagenet-finetuning@golden",
)
PROGRAM = """
import json, sys
from cowfs.cli import main, output
output.BAR_AFTER_S = 0
for words in json.loads(sys.argv[1]):
    print("\\f", end="", flush=True)
    main._run(words, as_json=False)
"""


@pytest.fixture
def store(place: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A volume of several versions with a fork that is merged, and a mount of the fork."""
    monkeypatch.setenv("COWFS_AUTHOR", "Marie Schönfelder")
    first = Volume.new("imagenet-finetuning")
    for folder in ("images/训练", "logs", "models", "notes"):
        first.files.mkdir(folder, parents=True)
    for path in FILES:
        first.files.write(path, path * 100)
    version = first.commit(message="训练: the images of the cameras, the models of last week, and logs of all nodes")
    for tag in TAGS:
        version.tag(tag)
    fork = version.fork("larger-batches")
    fork.files.write("batches.txt", b"512")
    fork.finalize(message="one line\nand another one")
    for number in range(2):
        first.files.write(f"notes/{number}.txt", b"x" * number)
        first.commit(message=f"note {number}, which says in a long sentence why it diverged after epoch 12 on node-7")
    first.files.remove("logs", recursive=True)
    first.finalize(message="logs are kept elsewhere")
    Store().merge("imagenet-finetuning", [Volume.version("larger-batches")])
    Volume.new("empty").commit()
    Volume.open("larger-batches").mount(place / "mnt" / "x")
    return place


def _environ(changes: Mapping[str, str]) -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if key not in ("COLUMNS", "LINES", "NO_COLOR")}
    return {**kept, "TERM": "xterm-256color", "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path)), **changes}


def _program(commands: Sequence[str]) -> list[str]:
    return [sys.executable, "-c", PROGRAM, json.dumps([each.split() for each in commands])]


def _on_terminal(commands: Sequence[str], columns: int, **changes: str) -> list[str]:
    """What each command writes to a terminal."""
    terminal, end = pty.openpty()
    fcntl.ioctl(end, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    process = subprocess.Popen(_program(commands), stdin=end, stdout=end, stderr=end, env=_environ(changes))
    os.close(end)
    written = bytearray()
    try:
        while piece := os.read(terminal, 1 << 16):
            written += piece
    except OSError:  # the last writer has closed it
        pass
    finally:
        os.close(terminal)
        process.wait(60)
    return written.decode().replace("\r\n", "\n").split("\f")[1:]


def _piped(commands: Sequence[str]) -> list[str]:
    done = subprocess.run(
        _program(commands), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=_environ({})
    )
    return os.fsdecode(done.stdout).split("\f")[1:]


def test_no_line_wraps_and_a_wide_terminal_has_every_cell(store: Path) -> None:
    whole = _piped(EVERYDAY)
    wide, narrow = _on_terminal(EVERYDAY, 160), _on_terminal(EVERYDAY, 80)
    assert len(whole) == len(wide) == len(narrow) == len(EVERYDAY)
    for command, lines in zip(EVERYDAY, narrow, strict=True):
        assert lines.strip(), command
        assert "\x1b" not in lines, command
        for line in lines.split("\n"):
            assert tables.width(line) <= 80 or LONG in line, (command, line)
    for command, lines, expected in zip(EVERYDAY, wide, whole, strict=True):
        for line, full in zip(lines.split("\n"), expected.split("\n"), strict=True):
            assert tables.width(line) <= 160, (command, line)
            text = printable(full)
            assert line == text or (line.endswith("…") and text.startswith(line[:-1])), command
    listed = dict(zip(EVERYDAY, narrow, strict=True))
    for tag in TAGS:
        assert tag in listed["tag imagenet-finetuning"]
    assert "caf\N{REPLACEMENT CHARACTER}-latin1.jpg" in listed["ls imagenet-finetuning@golden:images"]
    assert LONG in listed["ls imagenet-finetuning@golden:models"], "a name is not cut"
    assert "one line …" in listed["log imagenet-finetuning"]
    assert re.search(r"note 1, which says.*…\n", listed["log imagenet-finetuning"])


def test_colours_are_those_of_the_terminal_and_can_be_turned_off(place: Path) -> None:
    """Only the colours that a terminal adapts to its background, and nothing by colour alone."""
    coloured, plain = (_on_terminal(["doctor"], 80, **changes)[0] for changes in ({}, {"NO_COLOR": "1"}))
    assert set(re.findall(r"\x1b\[([\d;]*)m", coloured)) <= {"0", "31", "32", "33"}
    assert re.search(r"\x1b\[32mok +\x1b\[0m", coloured)
    assert "\x1b" not in plain
    assert "\x1b" not in _piped(["doctor"])[0]
    assert re.search("^ok ", plain, re.MULTILINE)


def test_a_bar_is_gone_before_the_result_is_shown(store: Path) -> None:
    (shown,) = _on_terminal(["store --full"], 80)
    bar, _, rest = shown.rpartition("\x1b[2K")
    assert "versions" in bar, "there was a bar"
    assert rest.lstrip("\r").startswith("store    file://")
