"""What a person sees of a store that was replaced, or put back, and how it is accepted."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from cowfs.api import stores
from cowfs.api.access import file_session
from cowfs.blocking import Store, Volume
from cowfs.errors import InvalidStateError
from cowfs.store.credentials import unlocking
from tests.cli.conftest import Run
from tests.cli.test_json import check

SECRET = b"a line of mine, which nobody else reads"


@pytest.fixture(autouse=True)
def key_file(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for variable in (*unlocking.VARIABLES, unlocking.REQUIRED):
        monkeypatch.delenv(variable, raising=False)
    file = home / "key"
    file.write_bytes(bytes(range(200, 240)))
    file.chmod(0o600)
    return file


@pytest.fixture
def notes(home: Path) -> Path:
    notes = home / "notes"
    notes.mkdir()
    (notes / "today").write_bytes(SECRET)
    return notes


def forget() -> None:
    """As in another process."""
    file_session._end_all()
    for opened in stores._open.values():
        opened.objects.close()
    stores._open.clear()
    stores._warned.clear()


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Of a process of its own."""
    program = [sys.executable, "-m", "cowfs.cli", *arguments]
    return subprocess.run(program, capture_output=True, text=True, check=False, timeout=120)


def test_nothing_is_put_into_a_plain_store_in_the_place_of_an_encrypted_one(
    run: Run, home: Path, key_file: Path, notes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setenv(unlocking.KEY_FILE, str(key_file))
        assert run("create", "diary", "--encrypt").code == 0
        assert run("upload", str(notes), "diary").code == 0
    plain = (home / "plain").as_uri()
    assert run("create", "diary", "--store", plain).code == 0
    forget()
    (home / "store").rename(home / "ours")
    shutil.copytree(home / "plain", home / "store")
    monkeypatch.setenv(unlocking.KEY_FILE, str(key_file))
    before = sorted(home.joinpath("store").rglob("*"))
    for arguments in (["upload", str(notes), "diary"], ["cat", "diary:/today"], ["ls"], ["create", "other"]):
        said = run(*arguments)
        assert said.code == 14, said
        assert "is not encrypted, and was when this machine used it last" in said.err
        assert "cowfs store accept" in said.err
        forget()
    assert sorted(home.joinpath("store").rglob("*")) == before
    said = run("store", "accept", "--json")
    check("store accept", said.json)
    (accepted,) = said.json["accepted"]
    assert accepted["subject"] == "store"
    assert "encrypted with key" in accepted["known"]
    assert accepted["now"].endswith(", not encrypted")
    assert run("ls").code == 0


def test_a_machine_that_knows_neither_is_warned_once(
    run: Run, key_file: Path, notes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run("create", "diary").code == 0
    assert "though there is a passphrase or key" not in command("ls").stderr
    monkeypatch.setenv(unlocking.KEY_FILE, str(key_file))
    said = command("upload", str(notes), "diary")
    assert said.returncode == 0, said
    assert said.stderr.count("is not encrypted, though there is a passphrase or key") == 1
    monkeypatch.setenv(unlocking.REQUIRED, "required")
    said = command("ls")
    assert said.returncode == 2
    assert "is not encrypted, and COWFS_ENCRYPTION=required" in said.stderr


@pytest.mark.parametrize("is_encrypted", [False, True])
def test_an_older_state_is_told_by_every_command(
    run: Run, home: Path, key_file: Path, notes: Path, is_encrypted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if is_encrypted:
        monkeypatch.setenv(unlocking.KEY_FILE, str(key_file))
    assert run("upload", str(notes), "diary").code == 0
    assert run("tag", "diary", "t").code == 0
    shutil.copytree(home / "store", home / "older")
    (notes / "today").write_bytes(b"later")
    assert run("upload", str(notes), "diary").code == 0
    assert run("tag", "diary", "t", "--move").code == 0
    locator = Volume.version("diary").locator
    forget()
    shutil.copytree(home / "store", home / "newer")
    for gone in {*home.joinpath("newer/volumes/diary").rglob("*")} - {
        home / "newer" / path.relative_to(home / "older") for path in home.joinpath("older").rglob("*")
    }:
        if gone.is_file():
            home.joinpath("store", gone.relative_to(home / "newer")).unlink()
    for arguments in (
        ["ls"],
        ["ls", "diary"],
        ["log", "diary"],
        ["cat", "diary:/today"],
        ["cat", "diary@t:/today"],
        ["upload", str(notes), "diary"],
        ["fork", "diary", "copy"],
        ["commit", "diary"],
        ["push", "diary", str(home / "mirror")],
        ["delete", "diary", "--yes"],
        ["prune", "diary", "--keep-last", "1", "--dry-run"],
        ["gc", "--dry-run"],
        ["verify"],
        ["mount", "diary", str(home / "mnt")],
        ["create", "diary"],
    ):
        said = run(*arguments)
        assert said.code != 0, arguments
        if arguments[0] not in ("commit", "create"):
            assert "was put back to an earlier state" in said.err + said.out, (arguments, said)
        forget()
    assert run("cat", f"{locator}:/today").out == "later", "a locator means the same bytes for ever"
    with pytest.raises(InvalidStateError, match="was put back to an earlier state"):
        Store().tags("diary")
    found = run("store", "accept", "--json").json["accepted"]
    assert sorted(each["subject"] for each in found) == ["tag t of volume diary", "volume diary"]
    forget()
    assert run("cat", "diary:/today").out == SECRET.decode()
    assert run("cat", "diary@t:/today").out == SECRET.decode()
    assert run("upload", str(notes), "diary").code == 0
    assert run("store", "accept").out == ""


def test_a_store_that_is_gone_is_forgotten_by_who_accepts_it(run: Run, home: Path) -> None:
    assert run("create", "v").code == 0
    forget()
    shutil.rmtree(home / "store")
    assert run("create", "v").code == 14
    said = run("store", "accept")
    assert said.code == 0
    assert said.out.split()[-1] == "none"
    assert run("create", "v").code == 0
    assert run("store", "accept", "--store", str(home / "elsewhere")).code == 2


def test_a_new_store_takes_the_place_of_what_was_known(run: Run, home: Path) -> None:
    assert run("create", "v").code == 0
    forget()
    shutil.rmtree(home / "store")
    assert run("create", "w", "--new-store").code == 0
    forget()
    assert run("ls", "-q").out == run("ls", "-q").out
    assert run("cat", "v:/x").code == 3
    assert os.listdir(home / "store/volumes") == ["w"]
