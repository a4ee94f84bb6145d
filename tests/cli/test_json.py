"""docs/reference/json.md has every field that a command prints with --json, and no other; and one
name for a thing in all documents."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest

from cowfs.cli import main
from cowfs.cli.commands import COMMANDS
from tests.api.conftest import place
from tests.cli.conftest import Run, Said
from tests.docs import json_page
from tests.docs.json_page import DOCUMENTS, WITHOUT_DOCUMENT

__all__ = ["place"]

FIELDS = [
    (name, field) for records in DOCUMENTS.values() for fields in records.values() for name, field in fields.items()
]
VOLUMES = ("first-line", "second-line", "third-line")
THINGS = {
    r"cowfs\+.*/-/.*": r"(\w+_)?locators?",
    r"[0-9a-f]{64}": r"version|(\w+_)?version_ids|parents|overtaken_by|content|group",
    r"file:///.*|s3://.*": r"(\w+_)?store_url|group",
    "|".join(VOLUMES): r"volume|volume_names|made_in|group",
}
"""What a text is → the fields that may have it. `group` says by `by` what it is."""
AS_GIVEN = {"source", "message", "emitted", "manifests", "subject", "strange", "hint"}


def check(document_name: str, document: dict[str, Any]) -> None:
    """Whether the document has the fields of the page, each of its type, and no other."""
    assert document["format"] == 1
    _check_record(document_name, "", {name: value for name, value in document.items() if name != "format"})


def _check_record(document: str, record: str, value: dict[str, Any]) -> None:
    fields = DOCUMENTS[document][record]
    where = f"{document}: {record}"
    if value.get("is_pruned"):
        assert value.keys() <= fields.keys(), where
    else:
        assert value.keys() == fields.keys(), where
    for name, each in value.items():
        assert fields[name].allows(each), f"{where}: {name} = {each!r}"
        inner = json_page.record_of(document, name, fields[name])
        for entry in each if isinstance(each, list) else [each]:
            if inner is not None and entry is not None:
                _check_record(*inner, entry)


def check_things(value: Any, name: str = "") -> None:
    """Whether every text that is a locator, a store's URL and so on has a name for that."""
    if isinstance(value, dict):
        for inner, each in value.items():
            check_things(each, name if inner in VOLUMES or len(inner) == 64 else inner)
    elif isinstance(value, list):
        for each in value:
            check_things(each, name)
    elif isinstance(value, str) and name not in AS_GIVEN:
        for kind, names in THINGS.items():
            if re.fullmatch(kind, value):
                assert re.fullmatch(names, name), f"{name} = {value}"
                return


@pytest.mark.quick
def test_a_name_has_one_type() -> None:
    types: dict[str, set[str]] = {}
    for name, field in FIELDS:
        types.setdefault(name, set()).add(field.type)
    assert {name: found for name, found in types.items() if len(found) > 1} == {}
    assert {each for found in types.values() for each in found} == json_page.TYPES.keys()


@pytest.mark.quick
def test_a_name_tells_what_kind_of_value_it_has() -> None:
    for name, field in FIELDS:
        assert bool(re.match(r"(is|has|was)_", name)) == (field.type == "boolean"), name
        assert name.endswith("_ns") == (field.type == "digits"), name
        if re.search(r"(^|_)(bytes|count|pid|depth)$|_s$", name):
            assert field.type == "number", name
        if re.search(r"_(names|ids|paths|locators)$", name):
            assert field.type == "list of texts", name
        assert not re.search(r"(^|_)(size|url|time|name)$", name) or name in (
            *("store_url", "made_store_url", "store_name"),
            "name",  # of a directory's entry
        ), name


@pytest.mark.quick
def test_every_command_has_a_section() -> None:
    assert {*COMMANDS} - WITHOUT_DOCUMENT.keys() == {each.split()[0] for each in DOCUMENTS} - {"Errors"}


@pytest.fixture
def run(place: Path, capfd: pytest.CaptureFixture[str]) -> Run:
    """The command line in this process; its program's output is caught, too."""

    def runner(*arguments: str | Path) -> Said:
        capfd.readouterr()
        words = [str(each) for each in arguments]
        code = main._run(words, as_json="--json" in words)
        done = capfd.readouterr()
        return Said(code, done.out, done.err)

    return runner


@pytest.mark.mount
def test_every_command_prints_what_the_page_says(run: Run, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)
    seen = set()

    def ask(document: str, verb: str, *words: str | Path, code: int = 0) -> Any:
        said = run(verb, "--json", *words)
        assert said.code == code, (verb, words, said)
        check(document, said.json)
        check_things(said.json)
        seen.add(document)
        return said.json

    data, other, third = VOLUMES
    mirror, path = str(place / "mirror"), place / "mnt" / "data"
    (place / "tree" / "sub").mkdir(parents=True)
    (place / "tree" / "sub" / "file").write_bytes(os.urandom(100_000))
    ask("create", "create", data)
    ask("Errors", "create", data, code=4)
    ask("show NAME", "show", data)
    ask("mount", "mount", data, path)
    (path / "file").write_text("one")
    ask("commit", "commit", path, "-m", "why", "--label", "lr=3")
    (path / "file").write_text("two")
    (path / "more").write_text("two")
    ask("diff", "diff", data)
    ask("status", "status")
    ask("show NAME", "show", data)
    ask("unmount --commit", "unmount", path, "--commit")
    ask("mount", "mount", data, path, "--supervise")
    ask("restart", "restart", path)
    ask("unmount", "unmount", path)
    ask("exec", "exec", "-v", f"{data}:{path}:rw", "--", "sh", "-c", f"echo said; echo more > {path}/by-a-program")
    ask("tag", "tag", data, "v1")
    ask("tag", "tag", data)
    for source in (data, f"{data}@v1"):
        ask("log", "log", source)
        ask("ls SOURCE", "ls", source)
        ask("tree", "tree", source)
        ask("find", "find", source)
    ask("log", "log", f"{data}:file")
    ask("show", "show", f"{data}@v1")
    ask("diff", "diff", f"{data}@{{1}}", data)
    ask("ls", "ls")
    ask("stat", "stat", f"{data}:file")
    ask("du", "du", data)
    for by in ("version", "volume", "owner", "store"):
        ask("du --stored", "du", "--stored", "--by", by)
    ask("cat", "cat", f"{data}:file")
    ask("index", "index", "export", data, "index-file")
    ask("cp", "cp", "tree", f"{data}:copy")
    ask("cp", "cp", f"{data}:copy", "got")
    ask("mv", "mv", f"{data}:copy", f"{data}:moved")
    ask("mkdir", "mkdir", f"{data}:made")
    ask("rm", "rm", "-r", f"{data}:moved")
    ask("upload", "upload", "tree", data)
    ask("import", "import", "tree", third)
    ask("download", "download", data, "downloaded")
    ask("export", "export", data, "memory://exported")
    ask("warm", "warm", data)
    ask("fork", "fork", f"{data}@v1", other)
    run("cp", "tree", f"{other}:theirs")
    ask("merge", "merge", other, "--into", data)
    ask("restore", "restore", f"{data}@v1:file")
    ask("rollback", "rollback", f"{data}@v1")
    ask("quota", "quota", data, "1GiB")
    ask("push", "push", data, mirror, "--all-versions")
    ask("pull", "pull", data, mirror)
    (place / "cowfs.toml").write_text(
        f'volumes = [{{name = "{other}", path = "{place}/mnt/other", read_only = false}}]'
    )
    ask("allow", "allow", "cowfs.toml")
    ask("apply --emit", "apply", "--emit", "sh")
    ask("apply", "apply", "--dry-run")
    ask("apply", "apply", "-y")
    ask("clean", "clean", "--dry-run")
    ask("show NAME", "show", other)
    (place / "locked.toml").write_text(f'volumes = ["{data}"]')
    ask("lock --check", "lock", "--check", "-f", "locked.toml", code=1)
    ask("lock", "lock", "-f", "locked.toml")
    run("cp", "tree", f"{data}:later")
    run("lock", "--update-all", "-f", "locked.toml")
    ask("lock --release", "lock", "--release", "--older", "0", "-y", "-f", "locked.toml")
    (place / "manifest.toml").write_text(f'main = {{volumes = ["{data}"]}}')
    ask("warm --manifest", "warm", "--manifest", "manifest.toml")
    ask("down", "down")
    ask("up", "up")
    run("down")
    ask("purge", "purge", f"{third}:sub/file", "--dry-run")
    ask("delete", "delete", third, "-y")
    ask("ls", "ls", "--deleted")
    ask("store", "store", "--full")
    ask("undelete", "undelete", third)
    ask("prune", "prune", data, "--keep-last", "1", "--dry-run")
    ask("prune", "prune", data, "--keep-last", "1", "-y")
    ask("log", "log", data)
    ask("gc --why", "gc", "--why", f"{data}@{{0}}")
    ask("gc", "gc", "--dry-run")
    ask("maintain", "maintain", "--dry-run")
    next(place.glob("mirror/packs/*/*")).write_bytes(b"")
    ask("verify", "verify")
    ask("verify", "verify", "--store", mirror, code=1)
    ask("repair", "repair", "--store", mirror, "--dry-run")
    ask("store add", "store", "add", "named", mirror)
    ask("store ls", "store", "ls")
    ask("store accept", "store", "accept")
    ask("doctor", "doctor", code=run("doctor").code)
    pod = '{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [{"name": "c"}]}}'
    (place / "pod.json").write_text(pod)
    ask("k8s", "k8s", "patch", "-f", "pod.json")
    (place / "key").write_bytes(os.urandom(40))
    monkeypatch.setenv("COWFS_ENCRYPTION_KEY_FILE", str(place / "key"))
    run("create", data, "--encrypt", "--store", str(place / "sealed"))
    ask("key", "key", "list", "--store", str(place / "sealed"))
    assert seen == DOCUMENTS.keys() - {"web", "web users"}, "those are in tests/web"
