"""cowfs apply, up and down as a user at a shell has them."""

from __future__ import annotations

import os
import pty
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from cowfs.machine import applied
from tests.api.conftest import place
from tests.cli.test_live import Command, run

__all__ = ["place", "run"]


@pytest.fixture
def file(place: Path) -> Path:
    path = place / "cowfs.toml"
    path.write_text('volumes = [{name = "ckpt", path = "/ckpt", read_only = false}]\n')
    return path


def test_a_dry_run_exits_with_one_on_request_when_there_is_something_to_do(
    run: Command, place: Path, file: Path
) -> None:
    said = run("apply", "--dry-run", "--no-mount")
    assert (said.code, said.out.split()[:6]) == (0, ["ACTION", "VOLUME", "PATH", "STORE", "WHY", "+"])
    assert run("apply", "--dry-run", "--no-mount", "--exit-code").code == 1
    assert not (place / "store").exists()
    said = run("apply", "--no-mount")
    assert said.code == 2
    assert "hint: Add -y" in said.err
    assert not (place / "store").exists()
    said = run("apply", "--no-mount", "-y")
    assert (said.code, said.err) == (0, "Created ckpt (/ckpt)\n")
    said = run("apply", "--no-mount", "--dry-run", "--exit-code")
    assert (said.code, said.err) == (0, "Nothing to do.\n")
    assert run("apply", "--no-mount").code == 0, "nobody is asked when nothing is to be done"
    assert "'ckpt'" not in run("ls").err


def test_nothing_to_do_is_not_said_while_somebody_undoes_it(run: Command, place: Path, file: Path) -> None:
    assert run("apply", "--no-mount", "-y").code == 0
    with applied.hold_lock(file):
        said = run("apply", "--no-mount")
        assert (said.code, said.out) == (4, "")
        assert f"process {os.getpid()} is applying, mounting or locking" in said.err
        assert run("apply", "--no-mount", "--dry-run").code == 0


@pytest.mark.mount
def test_missing_parents_are_made_below_the_home_and_the_files_directory(
    run: Command, place: Path, file: Path, tmp_path: Path
) -> None:
    paths = [place / "home" / "a" / "b" / "ckpt", file.parent / "c" / "d" / "other"]
    names = ("ckpt", "other")
    rows = [f'{{name = "{name}", path = "{path}", read_only = false}}' for name, path in zip(names, paths, strict=True)]
    file.write_text(f"volumes = [{', '.join(rows)}]\n")
    assert run("apply", "--dry-run", "--exit-code").code == 1
    assert not paths[0].parent.exists(), "a plan makes nothing"
    try:
        assert run("apply", "-y").code == 0
        assert all(path.is_mount() for path in paths)
    finally:
        run("down", str(file))
    at = place / "home" / "x" / "y" / "z"
    try:
        assert run("mount", "ckpt", str(at)).code == 0
        assert at.is_mount()
    finally:
        run("unmount", str(at))
    said = run("mount", "ckpt", str(tmp_path / "no" / "such"))
    assert said.code == 3
    assert f"mkdir -p {tmp_path / 'no'}" in said.err


def test_a_plan_finds_what_no_mount_can_be_made_in(run: Command, place: Path, file: Path, tmp_path: Path) -> None:
    path = tmp_path / "no" / "such" / "ckpt"
    file.write_text(f'volumes = [{{name = "ckpt", path = "{path}", read_only = false}}]\n')
    for options in (["--dry-run"], ["-y"]):
        said = run("apply", "-f", str(file), *options)
        assert said.code == 3
        assert f"mkdir -p {path.parent}" in said.err
        assert "volume 'ckpt'" in said.err
        assert not (place / "store").exists(), "nothing is done by halves"
    assert run("apply", "--no-mount", "-y").code == 0


def test_a_bad_file_is_told_with_its_keys(run: Command, place: Path, file: Path) -> None:
    file.write_text('[[volumes]]\nname = "ckpt"\npath = "ckpt"\nsize = "big"\n')
    said = run("apply", "--dry-run")
    assert said.code == 2
    assert f"cowfs: {file}: volumes[0].path: " in said.err
    assert f"\n{file}: volumes[0].size: " in said.err
    details = run("up", "--json").json["error"]["details"]
    assert [each["key"] for each in details["problems"]] == ["volumes[0].path", "volumes[0].size"]
    assert run("up", "missing.toml").code == 3
    file.unlink()
    assert "`cowfs up FILE`" in run("up").err


@pytest.mark.parametrize(("answer", "code"), [(b"y\n", 0), (b"n\n", 1)])
def test_a_person_is_asked(place: Path, file: Path, answer: bytes, code: int) -> None:
    terminal, end = pty.openpty()
    os.write(terminal, answer)
    done = subprocess.run(
        [sys.executable, "-m", "cowfs.cli", "apply", "--no-mount"],
        stdin=end,
        stdout=subprocess.PIPE,
        stderr=end,
        timeout=120,
        cwd=place,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))},
        check=False,
    )
    os.close(end)
    said = os.read(terminal, 65536)
    os.close(terminal)
    assert b"Apply 1 step?" in said
    assert (done.returncode, (place / "store").exists()) == (code, answer == b"y\n")


@pytest.mark.mount
def test_up_and_down(run: Command, place: Path, file: Path) -> None:
    path = place / "mnt" / "ckpt"
    file.write_text(f'volumes = [{{name = "ckpt", path = "{path}", read_only = false}}]\n')
    assert run("up").code == 3
    assert run("apply", "-y").code == 0
    assert (run("down").err, run("up").out) == (f"Unmounted ckpt from {path}\n", f"{path}\n")
    (path / "file").write_text("one")
    with (path / "file").open():
        said = run("down")
        assert said.code == 4
        assert "Could not unmount" in said.err
        said = run("down", "--json")
        assert said.code == 4
        assert [each["state"] for each in said.json["error"]["details"]["outcomes"]] == ["failed"]
    file.unlink()
    assert run("down", file).err == f"Unmounted ckpt from {path}; uncommitted work is kept\n"
    assert "was mounted by it" in run("down", file).err


@pytest.mark.mount
def test_down_does_not_keep_in_use_what_it_unmounts(run: Command, place: Path, file: Path) -> None:
    path = place / "mnt" / "ckpt"
    file.write_text(f'volumes = [{{name = "ckpt", path = "{path}", read_only = false}}]\n')
    assert run("apply", "-y").code == 0
    assert run("down", file, cwd=path).err == f"Unmounted ckpt from {path}\n"


@pytest.mark.mount
def test_pruning_says_that_work_is_kept(run: Command, place: Path, file: Path) -> None:
    run("create", "ckpt")
    path = place / "mnt" / "ckpt"
    file.write_text(f'volumes = [{{name = "ckpt", path = "{path}", read_only = false}}]\n')
    assert run("apply", "-y").code == 0
    (path / "file").write_text("one")
    file.write_text("volumes = []\n")
    assert run("apply", "--prune", "-y").err == f"Forgot ckpt ({path}); uncommitted work is kept\n"


@pytest.mark.mount
def test_pruning_a_volume_with_work_is_refused_with_commands_that_can_be_typed(
    run: Command, place: Path, file: Path
) -> None:
    path = place / "mnt" / "ckpt"
    head = f'[stores]\nmain = "{place}/main"\n'
    file.write_text(f'volumes = [{{name = "ckpt", path = "{path}", read_only = false, store = "main"}}]\n{head}')
    assert run("apply", "-y").code == 0
    (path / "file").write_text("one")
    run("down")
    file.write_text(f"volumes = []\n{head}")
    refused = run("apply", "--prune", "-y")
    assert refused.code != 0
    (forced,) = re.findall("`cowfs (delete [^`]*--force[^`]*)`", refused.err)
    assert run(*shlex.split(forced), "-y").code == 0
    assert run("apply", "--prune", "-y").code == 0
    assert run("apply", "--prune", "--dry-run").err.endswith("Nothing to do.\n")


def test_a_file_deletes_what_it_created(run: Command, place: Path, file: Path) -> None:
    run("apply", "--no-mount", "-y")
    said = run("delete", "-f", str(file))
    assert said.code == 2
    assert "hint: Add -y" in said.err
    assert run("delete").code == run("delete", "-f", str(file), "ckpt").code == 2
    said = run("delete", "-f", str(file), "-y")
    assert (said.code, said.err) == (0, "Deleted ckpt (/ckpt)\n")
    assert "ckpt" in run("ls", "--deleted").out
    said = run("delete", "-f", str(file), "-y", "--json")
    assert (said.json["steps"], said.json["has_changes"]) == ([], False)


def test_a_found_file_is_allowed_by_command(run: Command, place: Path, file: Path) -> None:
    said = run("apply", "--dry-run")
    assert said.code == 2
    assert f"hint: Read it. If you trust it, allow it as it is now: `cowfs allow {file}`" in said.err
    assert run("up").code == 2
    said = run("allow", file)
    assert (said.code, said.out, said.err) == (0, f"{file}\n", "Allowed; it mounts at: /ckpt\n")
    assert run("apply", "--dry-run").out.startswith("ACTION")
    file.write_text(file.read_text() + "\n")
    assert run("apply", "--dry-run").out == ""
    assert run("allow", file, "--json").json["mount_paths"] == ["/ckpt"]
    assert run("apply", "--dry-run").code == 0
    assert run("allow", "missing.toml").code == 3


@pytest.mark.parametrize("answer", [b"y\n", b"n\n"])
def test_a_person_is_asked_whether_a_found_file_is_allowed(place: Path, file: Path, answer: bytes) -> None:
    terminal, end = pty.openpty()
    os.write(terminal, answer)
    done = subprocess.run(
        [sys.executable, "-m", "cowfs.cli", "apply", "--dry-run"],
        stdin=end,
        stdout=subprocess.PIPE,
        stderr=end,
        timeout=120,
        cwd=place,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))},
        check=False,
    )
    os.close(end)
    said = os.read(terminal, 65536)
    os.close(terminal)
    assert b"it mounts at /ckpt" in said
    assert f"Allow {file}".encode() in said
    assert (done.returncode, b"ACTION" in done.stdout) == ((0, True) if answer == b"y\n" else (2, False))
