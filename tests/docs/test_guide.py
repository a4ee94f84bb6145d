"""What README and guide show works: their blocks are run, page by page, as somebody who follows the
page would run them.

    ```sh        all of a page in one shell, in order, which stops at the first command that fails
    ```python    a program each, in the same directory
    ```text      is not run; nor json, yaml and dockerfile

Each page begins on a machine of its own: empty home, no store, no mounts.
"""

from __future__ import annotations

import ast
import functools
import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from cowfs.machine import mount_table
from tests.seaweedfs import free_ports

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs/guide").glob("*.md"))]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
KNOWN = {"sh", "python", "text", "json", "yaml", "dockerfile"}
TIMEOUT_S = 300


def script(page: Path, place: Path) -> str:
    lines = ["set -euo pipefail"]
    for number, (language, text) in enumerate(BLOCK.findall(page.read_text(encoding="utf-8"))):
        assert language in KNOWN, f"{page.name} has a block in {language or 'no language'}"
        if language == "sh":
            lines.append(with_free_ports(text))
        elif language == "python":
            program = place / f"block_{number}.py"
            program.write_text(text)
            lines.append(f"{shlex.quote(sys.executable)} {program}")
    return "\n".join(lines)


def with_free_ports(text: str) -> str:
    """A server that a page starts has its usual ports. Here it gets others, since something else
    may run at the same time."""
    if "weed mini" not in text:
        return text
    names = [f"{part}.port{kind}" for part in ("s3", "master", "volume", "filer", "admin") for kind in ("", ".grpc")]
    ports = dict(zip(names, free_ports(len(names)), strict=True))
    quiet = "-webdav=false -s3.port.iceberg=0 -s3.port.lance=0 -admin.ui=false -master.telemetry=false -debug.port=0"
    options = " ".join(f"-{name}={port}" for name, port in ports.items())
    return text.replace("weed mini", f"weed mini {options} {quiet}").replace(":8333", f":{ports['s3.port']}")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_what_a_page_shows_works(page: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    environ = {key: value for key, value in os.environ.items() if not key.startswith(("COWFS_", "XDG_", "AWS_"))}
    runtime = tempfile.TemporaryDirectory(prefix="cowfs-test-")  # short: a socket's name has 107 bytes
    environ |= {
        "HOME": str(home),
        "XDG_RUNTIME_DIR": runtime.name,
        "PATH": f"{Path(sys.executable).parent}:{environ['PATH']}",
    }
    try:
        done = subprocess.run(
            ["bash", "-c", script(page, tmp_path)],
            cwd=home,
            env=environ,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    finally:
        left = [mount.path for mount in mount_table.mounts() if mount.path.startswith(str(tmp_path))]
        for path in left:
            subprocess.run(["umount", "-l", path], check=False)
        runtime.cleanup()
    print(done.stdout, done.stderr)
    assert done.returncode == 0
    assert not left, "the page leaves mounts behind"
    if page.stem == "trouble":
        unknown = [line for line in messages(page) if not is_shown(line, done.stdout + done.stderr)]
        assert not unknown, "cowfs has no such messages"


def messages(page: Path) -> list[str]:
    """The lines of the blocks without commands: messages that a user gets. `…` stands for a part
    that differs."""
    texts = [text for language, text in BLOCK.findall(page.read_text(encoding="utf-8")) if language == "text"]
    return [line.removeprefix("cowfs: ").removeprefix("hint: ") for text in texts for line in text.splitlines()]


def is_shown(message: str, output: str) -> bool:
    """Whether the page's commands print the message, or a message of cowfs has all of its parts."""
    parts = [part.strip() for part in message.split("…")]
    if re.search(".*".join(map(re.escape, parts)), output):
        return True
    return any(all(part in text for part in parts) for text in source_texts())


@functools.cache
def source_texts() -> list[str]:
    """The texts in the code; `…` is in the place of each value."""
    found = []
    for path in (ROOT / "cowfs").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.JoinedStr):
                parts = [str(part.value) if isinstance(part, ast.Constant) else "…" for part in node.values]
                found.append("".join(parts))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.append(node.value)
    return found
