"""README's programs, run twice, do what a reader expects: `new` makes a volume of its own each
time, and `open` continues."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from cowfs.blocking import Store, Volume
from tests.api.conftest import place

__all__ = ["place"]

pytestmark = pytest.mark.mount

README = Path(__file__).parents[2] / "README.md"


def test_programs_of_the_readme_run_twice(place: Path) -> None:
    ten_lines, continuing = re.findall(r"^```python\n(.*?)^```", README.read_text(), re.DOTALL | re.MULTILINE)
    first, second = (_run(ten_lines, place) for _ in range(2))
    assert first != second
    names = [each.name for each in Store().volumes()]
    assert len(names) == 4
    assert re.fullmatch("exp-1 exp-1-[0-9a-f]{6} my-dataset my-dataset-[0-9a-f]{6}", " ".join(names))
    assert Volume.version("my-dataset").locator == first, "it was left as it was"
    _run(continuing, place)
    last = _run(continuing, place)
    assert [each.name for each in Store().volumes()] == names
    version = Volume.version("my-dataset")
    assert version.locator == last
    assert len(version.history()) == 3
    assert version.files.read_text("runs.txt") == "one more\none more\n"
    assert version.files.read_text("hello.txt") == "hello"


def _run(program: str, place: Path) -> str:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=place, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()
