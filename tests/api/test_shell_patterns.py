"""Patterns for names mean what `find -name` takes them for."""

from __future__ import annotations

import os
import random
import subprocess
from pathlib import Path

import pytest

from cowfs.api.transfers import shell_patterns
from cowfs.blocking import Volume
from tests.api import pattern_sets

SETS = int(os.environ.get("COWFS_TEST_PATTERN_SETS", "400"))


def found_by_find(root: Path, pattern: bytes) -> set[bytes]:
    command: list[str | bytes] = ["find", ".", "-mindepth", "1", "-name", pattern, "-printf", "%f\\0"]
    found = subprocess.run(command, cwd=root, capture_output=True, check=True)
    return set(found.stdout.split(b"\0")) - {b""}


def test_random_patterns_match_what_find_finds(tmp_path: Path) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    rnd = random.Random(seed)
    for name in pattern_sets.NAMES:
        os.close(os.open(os.fsencode(tmp_path) + b"/" + name, os.O_CREAT | os.O_WRONLY))
    for _ in range(SETS):
        pattern = pattern_sets.name_pattern(rnd)
        ours = {name for name in pattern_sets.NAMES if shell_patterns.matches(name, pattern)}
        assert ours == found_by_find(tmp_path, pattern), pattern


@pytest.mark.quick
@pytest.mark.parametrize(
    ("pattern", "name", "expected"),
    [
        ("[^a]*", "a.txt", False),
        ("[^a]*", "b.txt", True),
        ("\\[x]", "[x]", True),
        ("st\\*r", "st*r", True),
        ("[[:upper:]]*", "B.TXT", True),
        ("?", "é", True),
        ("[", "[", True),
        ("a\0*", "ab", False),
        ("*.bin", b"\xff\xfe.bin", True),
    ],
)
def test_single_patterns(pattern: str, name: str | bytes, expected: bool) -> None:
    assert shell_patterns.matches(name, pattern) is expected


def test_glob_and_find_take_the_shells_patterns(place: Path) -> None:
    volume = Volume.new("data")
    volume.files.mkdir("/below")
    names = ["a.txt", "B.TXT", "[x].txt", "st*r.txt", "d1", "back\\slash"]
    for name in names:
        volume.files.write(f"/below/{name}", b"")
    for pattern, expected in [
        ("below/[^a]*", ["B.TXT", "[x].txt", "st*r.txt", "d1", "back\\slash"]),
        ("below/\\[x].txt", ["[x].txt"]),
        ("**/st\\*r*", ["st*r.txt"]),
        ("below/[[:upper:]]*", ["B.TXT"]),
        ("below/back\\\\slash", ["back\\slash"]),
        ("below/back\\slash", []),
    ]:
        assert sorted(each.name for each in volume.files.glob(pattern)) == sorted(expected), pattern
