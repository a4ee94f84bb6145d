"""Patterns as in .gitignore have git's verdict: random sets beside git itself, and an upload."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
from pathlib import Path

import pytest

from cowfs.api.transfers.ignore_patterns import excluding
from cowfs.blocking import Volume
from cowfs.errors import InvalidInputError
from cowfs.transfer.upload.upload_plan import is_left_out
from tests.api import pattern_sets

SETS = int(os.environ.get("COWFS_TEST_PATTERN_SETS", "400"))


@pytest.fixture
def work_tree(tmp_path: Path) -> Path:
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    return tmp_path / "tree"


def make(root: Path, tree: dict[bytes, bool]) -> None:
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir()
    for path, is_directory in tree.items():
        where = os.fsencode(root) + b"/" + path
        os.mkdir(where) if is_directory else os.close(os.open(where, os.O_CREAT | os.O_WRONLY))


def ignored_by_git(root: Path, patterns: list[bytes], paths: list[bytes]) -> set[bytes]:
    (root / ".gitignore").write_bytes(b"".join(each + b"\n" for each in patterns))
    said = subprocess.run(
        ["git", "check-ignore", "-z", "--stdin", "--no-index"],
        cwd=root,
        input=b"\0".join(paths),
        capture_output=True,
        check=False,
    )
    assert said.returncode in (0, 1), said.stderr
    return set(said.stdout.split(b"\0")) - {b""}


def test_random_sets_have_gits_verdict(work_tree: Path) -> None:
    seed = int(os.environ.get("COWFS_TEST_PATTERN_SEED", random.randrange(1 << 32)))
    print(f"COWFS_TEST_PATTERN_SEED={seed}")
    rnd = random.Random(seed)
    for _ in range(SETS):
        patterns = [pattern_sets.ignore_pattern(rnd) for _ in range(rnd.choice([1, 1, 2, 3, 4]))]
        tree = pattern_sets.tree(rnd)
        make(work_tree, tree)
        excluded = excluding(patterns)
        ours = {path for path, is_directory in tree.items() if is_left_out(excluded, path + b"/" * is_directory)}
        assert ours == ignored_by_git(work_tree, patterns, list(tree)), patterns


@pytest.mark.quick
@pytest.mark.parametrize("pattern", [b"a**/b", b"/a**/b", b"\\!***//", b"!***/", b"\\#a**/b"])
def test_stars_behind_a_literal_match_as_in_git(work_tree: Path, pattern: bytes) -> None:
    """git compares the literal first and what is left by itself, where a backslash ends the
    literal."""
    names = [b"a", b"a/b", b"ax", b"ax/y", b"ax/y/b", b"!", b"!/a", b"!/a/b", b"!x", b"#a", b"#a/x", b"#a/x/b", b"#ab"]
    tree = {name: any(other.startswith(name + b"/") for other in names) for name in names}
    make(work_tree, tree)
    excluded = excluding([pattern])
    ours = {path for path, is_directory in tree.items() if is_left_out(excluded, path + b"/" * is_directory)}
    assert ours == ignored_by_git(work_tree, [pattern], names)


@pytest.mark.parametrize(
    ("patterns", "kept"),
    [
        (["vol/fn/**", "!vol/fn/keep.json"], ["vol/fn/keep.json"]),
        (["ckpt/**", "!ckpt/final/", "!ckpt/final/**"], ["ckpt/final/w"]),
        (["*", "!*/", "!*.py"], ["a.py", "d/b.py", "d/e/c.py"]),
        (["/*", "!/scripts/**"], []),
        (["a[[:digit:]]b"], ["axb"]),
        (["dir/**/"], ["dir/f"]),
        (["*.tmp"], ["x.tmp\n"]),
        (["[z-a]", "x\\"], ["x"]),
        (["\t", "# all", ""], ["a"]),
    ],
)
def test_an_upload_takes_what_git_would_take(tmp_path: Path, place: Path, patterns: list[str], kept: list[str]) -> None:
    """kept: of what is in the directory, all but what the patterns leave out."""
    source = tmp_path / "source"
    left_out = ["vol/fn/b", "ckpt/x", "ckpt/sub/y", "d/x.txt", "scripts/a", "a1b", "dir/sub/f", "y.tmp"]
    for path in [*kept, *left_out]:
        (source / path).parent.mkdir(parents=True, exist_ok=True)
        (source / path).write_text(path)
    paths = [os.fsencode(each.relative_to(source)) for each in source.rglob("*") if each.is_file()]
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    ignored = ignored_by_git(source, [os.fsencode(each) for each in patterns], paths)
    (source / ".gitignore").unlink()
    volume = Volume.new("data")
    volume.files.upload(source, exclude=patterns)
    found = {os.fsencode(each.path[1:]) for each in volume.files.ls(recursive=True) if each.type == "file"}
    assert found == set(paths) - ignored
    assert {os.fsencode(each) for each in kept} <= found


@pytest.mark.quick
@pytest.mark.parametrize("wrong", [["a\nb"], [1]])
def test_what_is_not_one_line_is_refused(wrong: list[str]) -> None:
    with pytest.raises(InvalidInputError):
        excluding(wrong)
