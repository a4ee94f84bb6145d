"""cowfs lock as a user at a shell has it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.api.conftest import place
from tests.cli.test_live import Command, run

__all__ = ["place", "run"]


@pytest.fixture
def file(run: Command, place: Path) -> Path:
    (place / "tree").mkdir()
    (place / "tree" / "file").write_text("1")
    run("upload", place / "tree", "data")
    path = place / "cowfs.toml"
    path.write_text(f'volumes = [{{name = "data", path = "{place}/mnt/data", mode = "copy"}}]\n')
    return path


def test_check_exits_with_one_when_the_lock_does_not_fit(run: Command, place: Path, file: Path) -> None:
    assert run("lock", "--check").code == 1
    planned = run("lock", "--dry-run", "--exit-code")
    assert (planned.code, planned.out) == (1, "")
    assert planned.err.startswith("Would lock data to ")
    assert run("lock", "--dry-run").code == 0
    assert not (place / "cowfs.lock").exists()
    said = run("lock")
    assert (said.code, said.out) == (0, f"{place}/cowfs.lock\n")
    assert run("lock", "--check").code == 0
    assert run("lock", "--dry-run", "--exit-code").code == 0
    file.write_text(file.read_text().replace('"data"', '"data@v1"'))
    said = run("lock", "--check")
    assert (said.code, said.out) == (1, "")
    assert "data is locked, and not declared to be read" in said.err
    refused = run("up")
    assert refused.code == 2
    assert "hint: `cowfs lock`" in refused.err


def test_up_stays_at_the_lock_until_an_update(run: Command, place: Path, file: Path) -> None:
    run("lock")
    (place / "tree" / "file").write_text("2")
    run("upload", place / "tree", "data")
    assert run("up").code == 0
    assert (place / "mnt" / "data" / "file").read_text() == "1"
    assert run("lock", "--update", "data", "--dry-run").err.startswith("Would update data: ")
    said = run("lock", "--update", "data")
    assert said.err.startswith("Updated data: ")
    assert run("up").code == 0
    assert (place / "mnt" / "data" / "file").read_text() == "2"
    run("down")


def test_a_release_removes_only_what_the_user_has_agreed_to(run: Command, place: Path, file: Path) -> None:
    run("lock")
    (place / "tree" / "file").write_text("2")
    run("upload", place / "tree", "data")
    shutil.copytree(place, place / "copy", ignore=lambda _, names: {*names} - {"cowfs.toml", "cowfs.lock"})
    copy = ("-f", place / "copy" / "cowfs.toml")
    run("lock", "--update-all", *copy)
    said = run("lock", "--release", *copy, "-y")
    assert (said.code, said.out, said.err) == (0, "", "Removed 0 tags\n"), "the project still locks this version"
    everything = ("lock", "--release", "--older", "0", *copy)
    said = run(*everything, "--dry-run", "--exit-code")
    assert (said.code, said.err) == (1, "Would remove 1 tag\n")
    for refused in (run(*everything), run(*everything, "--json")):
        assert refused.code == 2
        assert "hint: Add -y" in refused.err or "Add -y" in refused.out
    assert run("tag", "data").out.count("lock.") == 2
    said = run(*everything, "-y")
    assert said.code == 0
    assert said.err.startswith("Other copies and branches of the project share these tags.")
    assert said.err.endswith("Removed 1 tag\n")
    assert "lock." in said.out
    assert run(*everything, "--dry-run", "--exit-code").code == 0


@pytest.mark.parametrize(
    "words",
    [
        ("lock", "--update", "data", "--check"),
        ("lock", "--update-all", "--release"),
        ("lock", "--check", "--dry-run"),
        ("lock", "--older", "1d"),
        ("lock", "-y"),
        ("lock", "--exit-code"),
        ("lock", "-f", "FILE", "--manifest", "FILE"),
        ("lock", "--update", "nothing"),
        ("lock", "--release", "--older", "soon"),
        ("up", "FILE", "--manifest", "FILE"),
        ("up", "--root", "x"),
        ("warm",),
        ("warm", "data", "--manifest", "FILE"),
        ("warm", "--manifest", "FILE"),
    ],
)
def test_options_that_do_not_fit_together_are_refused(run: Command, file: Path, words: tuple[str, ...]) -> None:
    run("lock")
    before = (file.parent / "cowfs.lock").read_bytes()
    said = run(*(str(file) if each == "FILE" else each for each in words))
    assert said.code == 2
    assert "\nhint: " in said.err
    assert (file.parent / "cowfs.lock").read_bytes() == before


def test_a_manifest_is_locked_mounted_and_unmounted(run: Command, place: Path, file: Path) -> None:
    file.unlink()
    manifest = place / "tool.toml"
    manifest.write_text('[main]\nvolumes = ["data"]\nother = 1\n')
    said = run("lock", "--manifest", manifest)
    assert said.out == f"{place}/tool.cowfs.lock\n"
    said = run("warm", "--manifest", manifest)
    assert said.code == 0
    assert "/-/data@" in said.out
    said = run("up", "--manifest", manifest, "--root", place / "root")
    assert said.out == f"{place}/root/data\n"
    assert (place / "root" / "data" / "file").read_text() == "1"
    assert run("down", manifest).code == 0
    assert not (place / "root" / "data" / "file").exists()
