"""`cowfs create --encrypt`, `cowfs key`, and what a person at a terminal is asked."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from cowfs.api import stores
from cowfs.blocking import Volume
from cowfs.cli import main
from cowfs.store.credentials import unlocking
from tests.cli.conftest import Run
from tests.cli.test_json import check

SECRET = b"a content of mine"
PASSPHRASE = "correct horse battery staple"


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for variable in unlocking.VARIABLES:
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(main, "_passphrases_left", 3)
    yield
    unlocking.remember(None)


@pytest.fixture
def key_file(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Named by the environment: opens without Argon2."""
    file = home / "key"
    file.write_bytes(bytes(range(200, 240)))
    monkeypatch.setenv(unlocking.KEY_FILE, str(file))
    return file


def typed(monkeypatch: pytest.MonkeyPatch, *answers: str) -> list[str]:
    """A person at a terminal, who answers so. What was asked."""
    asked: list[str] = []
    left = iter(answers)

    def prompt(text: str, **options: object) -> str:
        assert options["hide_input"] is True
        asked.append(text)
        return next(left)

    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(click, "prompt", prompt)
    return asked


def forget() -> None:
    """As in another process."""
    stores._open.clear()
    unlocking.remember(None)


def test_a_person_is_asked_until_the_passphrase_is_right(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = typed(monkeypatch, PASSPHRASE, "wrong", PASSPHRASE)
    assert run("create", "v", "--encrypt").code == 0
    forget()
    said = run("ls")
    assert said.code == 0
    assert said.out.splitlines()[1].startswith("v")
    assert asked == ["New passphrase", "Passphrase", "Passphrase"]


def test_a_person_is_asked_three_times_at_most(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = typed(monkeypatch, PASSPHRASE, "wrong", "wronger", "wrongest")
    run("create", "v", "--encrypt")
    forget()
    said = run("ls")
    assert said.code == 9
    assert "does not open" in said.err
    assert len(asked) == 4


def test_a_program_is_not_asked(run: Run, key_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run("create", "v", "--encrypt").code == 0
    forget()
    monkeypatch.delenv(unlocking.KEY_FILE)
    said = run("ls", "--json")
    assert said.code == 9
    assert said.json["error"]["details"] == {"encrypted_store": stores.canonical_url()}
    assert unlocking.PASSPHRASE in said.json["error"]["hint"]


def test_create_refuses_a_store_that_is_not_encrypted(run: Run, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run("create", "plain")
    monkeypatch.setattr(sys, "stdin", io.StringIO(f"{PASSPHRASE}\n"))
    said = run("create", "v", "--encrypt")
    assert said.code == 2
    assert "is not encrypted, and cannot become so" in said.err
    assert "another prefix" in said.err


def test_create_without_a_passphrase_makes_nothing(run: Run, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    said = run("create", "v", "--encrypt")
    assert said.code == 2
    assert unlocking.KEY_FILE in said.err
    assert not (home / "store" / "cowfs.json").exists()


def test_a_passphrase_of_two_lines_is_refused(run: Run, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for given in (f"{PASSPHRASE}\nagain\n", f"\n{PASSPHRASE}\n", f"{PASSPHRASE}\r\n\r\nagain"):
        monkeypatch.setattr(sys, "stdin", io.StringIO(given))
        said = run("create", "v", "--encrypt")
        assert said.code == 2
        assert "lines, and a passphrase is one" in said.err
        assert PASSPHRASE not in said.err
        assert not (home / "store" / "cowfs.json").exists()
    monkeypatch.setattr(sys, "stdin", io.StringIO(f"{PASSPHRASE}\r\n\n"))
    assert run("create", "v", "--encrypt").code == 0
    monkeypatch.setenv(unlocking.PASSPHRASE, PASSPHRASE)
    assert run("ls").code == 0


def test_keys_are_listed_added_and_removed(run: Run, key_file: Path, home: Path) -> None:
    run("create", "v", "--encrypt")
    other = home / "other"
    other.write_bytes(bytes(range(100, 140)))
    added = run("key", "add", "--key-file", str(other), "--label", "backup job").out.strip()
    document = run("key", "list", "--json").json
    check("key", document)
    listed = document["keys"]
    assert [(each["kind"], each["label"]) for each in listed] == [("key", ""), ("key", "backup job")]
    assert listed[1]["key_id"] == added
    assert "backup job" in run("key", "list").out
    assert run("key", "remove", listed[0]["key_id"]).code == 0
    assert run("key", "remove", added).code == 2
    assert run("key", "remove", "00000000").code == 3
    forget()
    assert run("ls").code == 9
    for wrong in (("remove",), ("list", added), ("add", added), ("list", "--label", "x")):
        assert run("key", *wrong).code == 2
    assert "one key" in run("key", "add", "--key-file", "x", "--key-command", "y").err


def test_what_is_restored_is_sealed_as_the_rest_and_moves_no_content(run: Run, key_file: Path, home: Path) -> None:
    """By its key: chunks are named by it, and found by those names again."""
    assert run("create", "data", "--encrypt").code == 0
    vol = Volume.open("data")
    vol.files.mkdir("dir")
    vol.files.write("dir/a-name-of-mine", SECRET * 4000)
    vol.files.write("kept", b"kept")
    vol.commit("one").tag("v1")
    vol.files.write("dir/a-name-of-mine", b"two")
    vol.finalize("two")
    packs = set(_stored(home, "packs"))
    forget()
    planned = run("restore", "data@v1:dir", "--dry-run", "--json").json
    assert planned["changes"] == [{"path": "/dir/a-name-of-mine", "kind": "changed"}]
    assert set(_stored(home, "packs")) == packs, "a dry run writes nothing"
    done = run("restore", "data@v1:dir", "--json").json
    check("restore", done)
    restored = Volume.version("data")
    assert (done["is_new"], done["locator"]) == (True, restored.locator)
    assert restored.stats.added_bytes == 0
    assert restored.files.read("dir/a-name-of-mine") == SECRET * 4000
    beside = run("restore", "data@v1:dir", "data:/old", "--json").json
    assert [each["path"] for each in beside["changes"]] == ["/old", "/old/a-name-of-mine"]
    assert run("fork", "data", "other").code == 0
    assert run("restore", "data@v1:kept", "other:again").code == 0
    assert Volume.version("other").files.read("again") == b"kept"
    assert run("rollback", "data@v1").code == 0
    assert Volume.version("data").files.read("dir/a-name-of-mine") == SECRET * 4000
    sealed = [data for kind in ("packs", "versions") for data in _stored(home, kind).values()]
    assert not [data for data in sealed if SECRET in data or b"a-name-of-mine" in data]
    assert run("verify", "data", "--json").json["is_sound"]


def test_nothing_is_restored_without_the_key(run: Run, key_file: Path, home: Path) -> None:
    assert run("create", "data", "--encrypt").code == 0
    vol = Volume.open("data")
    vol.files.write("a", b"one")
    vol.commit("one").tag("v1")
    vol.files.write("a", b"two")
    last = vol.finalize("two")
    forget()
    key_file.write_bytes(bytes(range(100, 140)))
    before = _stored(home, "")
    assert run("restore", "data@v1", "--json").json["error"]["kind"] == "access_denied"
    assert _stored(home, "") == before
    key_file.write_bytes(bytes(range(200, 240)))
    forget()
    assert Volume.version("data") == last


def _stored(home: Path, kind: str) -> dict[str, bytes]:
    return {str(each): each.read_bytes() for each in (home / "store" / kind).rglob("*") if each.is_file()}


def test_doctor_says_that_a_store_is_encrypted(run: Run, key_file: Path) -> None:
    run("create", "v", "--encrypt")
    assert "an encrypted cowfs store" in run("doctor").out


def test_key_list_of_a_plain_store_says_so(run: Run) -> None:
    run("create", "v")
    said = run("key", "list")
    assert said.code == 2
    assert "is not encrypted" in said.err
