"""What README and guide show works: their blocks are run, page by page, as somebody who follows the
page would run them.

    ```sh        all of a page in one shell, in order, which stops at the first command that fails
    ```python    a program each, in the same directory
    ```text      is not run

Each page begins on a machine of its own: empty home, no store, no mounts.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from cowfs.machine import mount_table

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs/guide").glob("*.md"))]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
KNOWN = {"sh", "python", "text", "yaml", "dockerfile"}
TIMEOUT_S = 300


def script(page: Path, place: Path) -> str:
    lines = ["set -euo pipefail"]
    for number, (language, text) in enumerate(BLOCK.findall(page.read_text(encoding="utf-8"))):
        assert language in KNOWN, f"{page.name} has a block in {language or 'no language'}"
        if language == "sh":
            lines.append(text)
        elif language == "python":
            program = place / f"block_{number}.py"
            program.write_text(text)
            lines.append(f"{shlex.quote(sys.executable)} {program}")
    return "\n".join(lines)


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
