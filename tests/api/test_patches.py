"""Patches of two versions: `git apply` and `patch` make the second tree of the first, and what a
patch cannot say is named in it."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from cowfs.api.versions import named_comparisons, patches
from cowfs.blocking import Volume
from tests.api.test_uploading import upload

NAMES = [
    b"plain.txt", b"with space.txt", b"trail ", b" lead", b"tab\tname", b"new\nline", b'quo"te', b"back\\slash", "ümläut".encode(),
    b"\xff latin", b"-dash", b"x => y", b"dev-null", b"d/below", b"d/e/deep", b"a b/c d", b"s.sql", b"link",
]  # fmt: skip
LINES = [
    b"a", b"b", b"", b"-- sql", b"++ plus", b"-", b"a\rb", b"0%\r50%\r", b"\x0c", b"x\x0by", b"\x1e{}", "a\u0085b".encode(),
    "a\u2028b".encode(), b"caf\xe9", b"\\ No newline at end of file", b"diff --git a/x b/x", b"@@ -1 +1 @@", b"windows\r",
]  # fmt: skip
File = tuple[str, int, bytes]
"""Kind, mode, content."""


def some_file(rnd: random.Random) -> File:
    if rnd.random() < 0.1:
        return "link", 0o777, rnd.choice([b"plain.txt", b"nowhere", b"d/below"])
    text = b"\n".join(rnd.choice(LINES) for _ in range(rnd.choice([0, 1, 2, 5, 30])))
    return "file", rnd.choice([0o644, 0o644, 0o755]), text + b"\n" * (rnd.random() < 0.6)


def changed(rnd: random.Random, before: Mapping[bytes, File]) -> dict[bytes, File]:
    after = {}
    for path, (kind, mode, content) in before.items():
        what = rnd.choice(["same", "same", "edit", "mode", "gone", "other", "moved"])
        if what == "edit" and kind == "file":
            lines = content.split(b"\n")
            lines.insert(rnd.randrange(len(lines) + 1), rnd.choice(LINES))
            after[path] = (kind, mode, b"\n".join(lines))
        elif what == "mode" and kind == "file":
            after[path] = (kind, mode ^ 0o111, content)
        elif what == "other":
            after[path] = some_file(rnd)
        elif what == "moved":
            after[rnd.choice([b"m/", b""]) + b"moved-" + path.replace(b"/", b"_")] = (kind, mode, content)
        elif what != "gone":
            after[path] = (kind, mode, content)
    for path in NAMES:
        if path not in after and rnd.random() < 0.2:
            after[path] = some_file(rnd)
    return after


def make(root: Path, files: Mapping[bytes, File]) -> None:
    for path, (kind, mode, content) in files.items():
        at = os.fsencode(root) + b"/" + path
        os.makedirs(os.path.dirname(at), exist_ok=True)
        if kind == "link":
            os.symlink(content, at)
        else:
            Path(os.fsdecode(at)).write_bytes(content)
            os.chmod(at, mode)


def in_tree(root: Path) -> dict[bytes, File]:
    found: dict[bytes, File] = {}
    for above, directories, names in os.walk(os.fsencode(root)):
        for name in [*names, *(each for each in directories if os.path.islink(os.path.join(above, each)))]:
            at = os.path.join(above, name)
            path = os.path.relpath(at, os.fsencode(root))
            if os.path.islink(at):
                found[path] = ("link", 0o777, os.readlink(at))
            else:
                found[path] = ("file", os.stat(at).st_mode & 0o777, Path(os.fsdecode(at)).read_bytes())
    return found


def patch_of(place: Path, before: Mapping[bytes, File], after: Mapping[bytes, File]) -> bytes:
    volume = Volume.new("data")
    for name, files in (("before", before), ("after", after)):
        make(place / name, files)
        upload(volume, place / name, delete=True)
    newest, oldest, *_ = volume.history()
    return patch_between(oldest.locator, newest.locator)


def patch_between(old: str, new: str) -> bytes:
    two = named_comparisons.compare(old, new, (), None)
    if any(each.kind == "renamed" and each.type == "directory" for each in two.changes):
        two = named_comparisons.compare(old, new, (), None, renames=False)
    return b"".join(patches.of(two))


def applied(command: list[str], root: Path, patch: bytes) -> dict[bytes, File]:
    done = subprocess.run(command, cwd=root, input=patch, capture_output=True, check=False)
    assert done.returncode == 0, (done.stdout, done.stderr, patch)
    return in_tree(root)


@pytest.mark.parametrize("case", range(int(os.environ.get("COWFS_TEST_PATCHES", "4"))))
def test_git_and_patch_make_the_second_tree(place: Path, case: int) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    rnd = random.Random(seed)
    before = {path: some_file(rnd) for path in NAMES if rnd.random() < 0.8}
    after = changed(rnd, before) | {b"keep": ("file", 0o644, b"kept\n")}
    before[b"keep"] = ("file", 0o644, b"kept\n")
    patch = patch_of(place, before, after)
    for name, command in (("git", ["git", "apply", "-p1", "-"]), ("gnu", ["patch", "-s", "-p1", "--binary", "-f"])):
        (place / name).mkdir()
        make(place / name, before)
        assert applied(command, place / name, patch) == after, (name, patch)


def test_a_directory_and_a_file_take_each_others_place(place: Path) -> None:
    before: dict[bytes, File] = {b"one/x": ("file", 0o644, b"x\n"), b"two": ("file", 0o644, b"two\n")}
    after: dict[bytes, File] = {b"one": ("file", 0o644, b"one\n"), b"two/y": ("link", 0o777, b"z")}
    patch = patch_of(place, before, after)
    make(place / "git", before)
    assert applied(["git", "apply", "-p1", "-"], place / "git", patch) == after


def test_what_a_patch_cannot_say_is_named(place: Path) -> None:
    source = place / "source"
    (source / "empty").mkdir(parents=True)
    (source / "kept").write_text("a\n")
    volume = Volume.new("data")
    upload(volume, source)
    shutil.rmtree(source / "empty")
    (source / "binary").write_bytes(b"\0\1")
    (source / "large").write_bytes(b"x" * (patches.PATCHED_BYTES + 1))
    (source / "private").write_text("secret\n")
    (source / "private").chmod(0o600)
    (source / "kept").chmod(0o640)
    upload(volume, source, delete=True)
    newest, oldest, *_ = volume.history()
    patch = patch_between(oldest.locator, newest.locator)
    notes = {line for line in patch.split(b"\n") if line.startswith(b"#")}
    content = b"content (binary or larger than 1 MiB)"
    assert notes == {
        b"# cowfs: /binary: not in this patch: " + content,
        b"# cowfs: /large: not in this patch: " + content,
        b"# cowfs: /empty: not in this patch: a directory removed",
        b"# cowfs: /private: not in this patch: mode 600",
        b"# cowfs: /kept: not in this patch: mode 640",
    }
    make(place / "git", {b"kept": ("file", 0o644, b"a\n")})
    found = applied(["git", "apply", "-p1", "-"], place / "git", patch)
    assert found == {b"kept": ("file", 0o644, b"a\n"), b"private": ("file", 0o644, b"secret\n")}


def test_a_file_of_many_equal_lines_is_replaced_as_a_whole(tmp_path: Path) -> None:
    rnd = random.Random(1)
    before = b"".join(b"%d\n" % rnd.randrange(150) for _ in range(30_000))
    after = before[: len(before) // 2] + b"new\nno end"
    (tmp_path / "x").write_bytes(before)
    patch = b"diff --git a/x b/x\n" + b"".join(patches._hunks(before, after, b"a/x", b"b/x"))
    subprocess.run(["git", "apply"], cwd=tmp_path, input=patch, check=True)
    assert (tmp_path / "x").read_bytes() == after
