"""The rules that all commands keep, over the click commands themselves: options of the same name
everywhere, and arguments in one order."""

from __future__ import annotations

import importlib
import inspect
from pathlib import Path

import click
import pytest

from cowfs.base.hints import ABOUT_NO_STORE
from cowfs.cli import commands
from cowfs.cli.main import cowfs
from tests.cli.conftest import Run

pytestmark = pytest.mark.quick

MAKES_A_VERSION = [
    "commit",
    "unmount",
    "exec",
    "upload",
    "import",
    "cp",
    "merge",
    "restore",
    "rollback",
    "rm",
    "mv",
    "mkdir",
]  # fork starts from one
HAS_ITS_OWN_LABEL = {"key": "of a key", "log": "which versions are shown"}
PRINTS_A_SCRIPT = {"completion"}


OF_A_STORE = {"push", "pull", "store"}
"""Commands whose object is a store; all others take it by --store."""


def command(name: str) -> click.Command:
    found = importlib.import_module(commands.module_of(name)).command
    assert isinstance(found, click.Command)
    return found


def options(name: str) -> dict[str, click.Option]:
    """By each of its names."""
    found = [each for each in command(name).params if isinstance(each, click.Option)]
    return {text: each for each in found for text in (*each.opts, *each.secondary_opts)}


def arguments(name: str) -> list[str]:
    """As the usage line shows them, without brackets, dots and words such as `add`."""
    every = [each for each in command(name).params if isinstance(each, click.Argument)]
    found = [each for each in every if not isinstance(each.type, click.Choice)]
    context = click.Context(command(name), info_name=name)
    return [each.make_metavar(context).strip("[].") for each in found]


@pytest.mark.parametrize("name", commands.COMMANDS)
def test_each_command_has_a_group_and_a_package(name: str) -> None:
    assert sum(name in group for group in commands.GROUPS.values()) == 1
    assert sum(name in room.split() for room in commands.ROOMS.values()) == 1


@pytest.mark.parametrize("name", commands.COMMANDS)
def test_options_of_a_name_are_the_same_everywhere(name: str) -> None:
    found = options(name)
    assert {"--json", "-q", "--quiet"} <= found.keys() or name in PRINTS_A_SCRIPT
    assert ("--store" in found) == (name not in ABOUT_NO_STORE - {"status"})
    assert ("-m" in found) == ("--author" in found) == (name in MAKES_A_VERSION)
    assert ("--label" in found) == (name in MAKES_A_VERSION or name in HAS_ITS_OWN_LABEL)
    assert ("--dry-run" in found) == ("--exit-code" in found) or name == "diff"
    asks = "output.confirm(" in inspect.getsource(importlib.import_module(commands.module_of(name)))
    assert not asks or {"-y", "--yes"} <= found.keys()
    assert all(each.help for each in found.values())


def test_an_option_has_one_short_form_and_one_meaning() -> None:
    short: dict[str, set[str]] = {}
    for name in commands.COMMANDS:
        for text, option in options(name).items():
            if not text.startswith("--"):
                short.setdefault(text, set()).add(next((each for each in option.opts if each.startswith("--")), text))
    several = {text: longs for text, longs in short.items() if len(longs) > 1}
    as_elsewhere = {"-v": {"--volume", "--verbose"}, "-f": {"--file", "--force"}, "-p": {"--patch", "--parents"}}
    assert several == as_elsewhere, "as of `docker run`, `kubectl apply`, `rm`, `git diff` and `mkdir`"


@pytest.mark.parametrize("name", commands.COMMANDS)
def test_sources_come_first_and_the_target_last(name: str) -> None:
    found = arguments(name)
    first = [each.startswith("SOURCE") for each in found]
    assert first == sorted(first, reverse=True), found
    assert not any("STORE" in each for each in found) or name in OF_A_STORE, found
    takes_many = [each.nargs == -1 for each in command(name).params if isinstance(each, click.Argument)]
    if len(takes_many) > 1 and takes_many[-1]:  # no target
        assert found[-1] in ("PATH", "[PATH"), found


def test_quiet_leaves_results_and_errors(run: Run, tmp_path: Path) -> None:
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "file").write_text("x")
    for words in (
        ("create", "data"),
        ("upload", str(tmp_path / "tree"), "data"),
        ("cp", str(tmp_path / "tree"), "data:sub"),
        ("restore", "data@{1}"),
        ("tag", "data", "v1"),
        ("fork", "data", "other"),
        ("ls", "--deleted"),
        ("prune", "data", "--keep-last", "1", "--dry-run"),
        ("gc", "-y"),
        ("delete", "other", "-y"),
        ("status",),
    ):
        said = run(*words, "-q")
        assert (said.code, said.err) == (0, ""), words
        assert said.out or words[0] in ("delete", "gc", "ls")
    assert "has no volume 'missing'\nhint: " in run("log", "missing", "--quiet").err
    assert "Tag v2" in run("tag", "data", "v2").err, "not of a later command"


def test_author_and_labels_go_into_every_version(run: Run, tmp_path: Path) -> None:
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "file").write_text("x")
    said = ("-m", "why", "--author", "ada", "--label", "lr=3", "--label", "host=a=b")
    run("create", "data")
    run("upload", str(tmp_path / "tree"), "base")
    run("fork", "base", "branch")
    run("cp", str(tmp_path / "tree"), "branch:more")
    for number, words in enumerate(
        (
            ("upload", str(tmp_path / "tree"), "data"),
            ("import", str(tmp_path / "tree"), "data", "--exclude", "none"),
            ("cp", str(tmp_path / "tree"), "data:sub"),
            ("restore", "data@{1}"),
            ("rollback", "data@{1}"),
            ("merge", "branch", "--into", "base"),
            ("mkdir", "data:new"),
            ("mv", "data:new", "data:old"),
            ("rm", "-r", "data:old"),
        )
    ):
        done = run(*words, *said[:-1], f"host=a={number}", "--json")
        assert done.code == 0, done
        shown = run("show", done.json["locator"], "--json").json
        assert (shown["message"], shown["author"]) == ("why", "ada")
        assert shown["labels"] == {"lr": "3", "host": f"a={number}"}, words
    wrong = run("upload", str(tmp_path / "tree"), "data", "--label", "colour")
    assert (wrong.code, wrong.err.splitlines()[1]) == (2, "hint: Write --label KEY=VALUE.")


def test_a_plan_exits_with_one_only_on_request(run: Run, tmp_path: Path) -> None:
    (tmp_path / "tree").mkdir()
    for text in "xab":
        (tmp_path / "tree" / "file").write_text(text)
        run("upload", str(tmp_path / "tree"), "data")
    run("fork", "data@{1}", "one")
    (tmp_path / "tree" / "file").write_text("c")
    run("upload", str(tmp_path / "tree"), "one")
    plans = (
        ("restore", "data@{1}:file"),
        ("rollback", "data@{1}"),
        ("merge", "one", "--into", "data"),
        ("rm", "data:file"),
        ("mv", "data:file", "data:other"),
        ("prune", "data", "--keep-last", "1"),
        ("purge", "data:file"),
    )
    nothing = (
        ("restore", "data@{0}"),
        ("merge", "data", "--into", "data"),
        ("prune", "data", "--keep-last", "5"),
        ("gc",),
        ("repair",),
        ("maintain",),
    )
    elsewhere = {"apply", "clean", "lock"}  # tests of declared volumes
    planning = {name for name in commands.COMMANDS if "--dry-run" in options(name)}
    assert {words[0] for words in (*plans, *nothing)} == planning - elsewhere
    for words in (*plans, *nothing):
        assert run(*words, "--dry-run").code == 0, words
        assert run(*words, "--dry-run", "--exit-code").code == (words in plans), words
    assert "Give --dry-run" in run("gc", "--exit-code", "-y").err


def test_an_option_about_versions_leads_to_the_commands_that_make_them(run: Run) -> None:
    for words in (
        ("fork", "a", "b", "--label", "lr=3"),
        ("tag", "a", "v1", "-m", "why"),
        ("create", "a", "--author", "x"),
    ):
        said = run(*words)
        assert (said.code, "make a version, as `cowfs commit` does" in said.err) == (2, True), words


def test_groups_stand_in_the_order_of_work() -> None:
    groups = ["Work", "History", "Files", "Transfer", "Share and merge", "Declared", "Upkeep", "Stores and system"]
    assert list(commands.GROUPS) == groups


def test_the_group_is_what_is_tested() -> None:
    assert isinstance(cowfs, click.Group)
    assert cowfs.list_commands(click.Context(cowfs)) == [*commands.COMMANDS]
