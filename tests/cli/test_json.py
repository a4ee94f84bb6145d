"""docs/reference/json.md has every field that a command prints with --json, and no other."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from cowfs.cli.main import COMMANDS
from tests.api.conftest import place
from tests.cli.test_live import Command, mounted, run

__all__ = ["mounted", "place", "run"]

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "json.md").read_text()


def tables() -> dict[str, dict[str, set[str]]]:
    """Section → record ("" for the document) → fields."""
    found: dict[str, dict[str, set[str]]] = {}
    section, record = "", ""
    for line in PAGE.splitlines():
        if line.startswith("## "):
            section, record = line[3:].removeprefix("cowfs "), ""
        elif line.startswith("### "):
            record = line[4:].strip("`")
        elif row := re.match(r"\| `(\w+)` \| ", line):
            found.setdefault(section, {}).setdefault(record, set()).add(row[1])
    return found


TABLES = tables()
SECTIONS = ("Errors", "ls SOURCE", "gc --why", "du --stored", "store accept", "store list", "store add")
"""Documents that are not those of a whole command."""


@pytest.mark.quick
def test_a_type_has_one_name() -> None:
    types = {
        found[1].removesuffix(" or null") for found in re.finditer(r"^\| `\w+` \| ([^|]+?) \|", PAGE, re.MULTILINE)
    }
    assert types == {"boolean", "digits", "list of objects", "list of texts", "number", "object", "text"}


def check(section: str, document: dict[str, Any]) -> None:
    assert document["format"] == 1
    records = TABLES[section]
    assert document.keys() == records[""] | {"format"}, section
    for name, fields in records.items():
        values = document[name] if name and isinstance(document[name], list) else [document[name]] if name else []
        for value in values:
            assert value.keys() == fields, f"{section}: {name}"
    check_times(document)


def check_times(value: Any) -> None:
    """Nanoseconds are strings: programs that read them as numbers would round."""
    if isinstance(value, dict):
        for name, each in value.items():
            if name.endswith("_ns") and each is not None:
                assert isinstance(each, str), name
                assert int(each) > 10**18
            check_times(each)
    elif isinstance(value, list):
        for each in value:
            check_times(each)


@pytest.mark.quick
def test_every_command_has_a_section() -> None:
    assert {*SECTIONS, *COMMANDS} - {"bench", "completion", "store"} == TABLES.keys()


@pytest.mark.mount
def test_commands_print_what_the_page_says(run: Command, place: Path, mounted: Path) -> None:
    check("create", run("create", "other", "--json").json)
    check("Errors", run("create", "other", "--json").json)
    committed = run("commit", mounted, "-m", "one", "--json").json
    check("commit", committed)
    check("fork", run("fork", "data", "copy", "--json").json)
    log = run("log", "data", "--json").json
    check("log", log)
    check("show", {"format": 1, **log["versions"][0]})
    check("show", run("show", "data", "--json").json)
    check("ls", run("ls", "--json").json)
    check("doctor", run("doctor", "--json").json)
    check("ls SOURCE", run("ls", "data", "--json").json)
    check("cat", run("cat", "data:file", "--json").json)
    check("cp", run("cp", "data:file", place, "--json").json)
    (place / "files").mkdir()
    check("upload", run("upload", place / "files", "sent", "--json").json)
    check("import", run("import", place / "files", "imported", "--json").json)
    check("export", run("export", "data", "memory://exported", "--json").json)
    check("warm", run("warm", "data", "--json").json)
    check("download", run("download", "data", "--download-dir", place / "got", "--json").json)
    (mounted / "file").write_text("two")
    check("get", run("get", "data", "--json").json)
    check("quota", run("quota", "data", "--json").json)
    check("status", run("status", "--json").json)
    declared = place / "cowfs.toml"
    declared.write_text(f'volumes = [{{name = "other", path = "{place}/mnt/other", read_only = false}}]')
    check("apply", run("apply", "--dry-run", "--json").json)
    check("apply", run("apply", "-y", "--json").json)
    check("get", run("get", "other", "--json").json)
    check("down", run("down", "--json").json)
    check("up", run("up", declared, "--json").json)
    run("down")
    check("unmount", run("unmount", mounted, "--json").json)
    check("status", run("status", "--json").json)
    check("mount", run("mount", "data", mounted, "--json").json)
    ended = run("unmount", mounted, "--commit", "--json").json
    assert ended.keys() == TABLES["commit"][""] | {"format", "mount_path", "is_detached", "trouble"}
    check_times(ended)
