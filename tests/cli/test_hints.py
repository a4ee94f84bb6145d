"""A command that names its store shows commands for that store, and nobody drops the work of
another volume that has the same name."""

from __future__ import annotations

import ast
import io
import json
import logging
import pickle
import re
import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import click
import pytest

from cowfs.api import hints, stores
from cowfs.api.located import names_locator
from cowfs.api.twins.volume_fields import VolumeField
from cowfs.base import config, log
from cowfs.base import hints as words
from cowfs.base.errors import from_record, to_message, to_record
from cowfs.base.hints import Command
from cowfs.blocking import Store, Volume
from cowfs.cli import commands, main
from cowfs.errors import InvalidInputError, InvalidStateError, NotFoundError
from cowfs.store import load_record, open_store, require_writable
from cowfs.store.credentials import unlocking
from tests.base import layout
from tests.cli.conftest import Run

ELSEWHERE = "s3://bucket/a b"


def commands_with(option: str) -> set[str]:
    group = main.cowfs
    assert isinstance(group, main.LazyGroup)
    found = set()
    for name in commands.COMMANDS:
        command = group.get_command(click.Context(group), name)
        assert command is not None
        if any(option in each.opts for each in command.params):
            found.add(name)
    return found


@pytest.mark.quick
def test_every_command_but_those_of_files_takes_a_store() -> None:
    without = set(commands.COMMANDS) - commands_with("--store")
    assert without == words.ABOUT_NO_STORE - {"status"}  # it only narrows the list


@pytest.mark.quick
def test_the_hint_about_an_unsafe_store_names_the_commands_that_accept_it(run: Run) -> None:
    run("create", "data")
    with closing(open_store(stores.canonical_url(None))) as store:
        record = load_record(store)
    unsafe = replace(record, probe=replace(record.probe, put_if_absent=False))
    with pytest.raises(InvalidInputError) as caught:
        require_writable(unsafe)
    said = re.search("the commands ([a-z, ]+) take --accept-unsafe-store", caught.value.hint)
    assert said is not None
    assert set(re.split(", | and ", said[1])) == commands_with("--accept-unsafe-store")


OPTION = " --store 's3://bucket/a b'"


@pytest.mark.quick
@pytest.mark.parametrize(
    ("command", "shown", "option"),
    [
        (Command("gc"), "`cowfs gc`", OPTION),
        (Command("commit", "data"), "`cowfs commit data`", OPTION),
        (Command("mount", "data", "/mnt/a b"), "`cowfs mount data '/mnt/a b'`", OPTION),
        (Command("unmount", "data", "--discard"), "`cowfs unmount data --discard`", OPTION),
        (Command("store", "accept"), "`cowfs store accept`", OPTION),
        (Command("store", "ls"), "`cowfs store ls`", ""),
        (Command("store", "--full"), "`cowfs store --full`", OPTION),
        (Command("create", "NAME", "--store", "URL"), "`cowfs create NAME --store URL`", ""),
        (Command("ls", "cowfs+file:///s/-/a@0"), "`cowfs ls cowfs+file:///s/-/a@0`", ""),
        (Command("log", "--help"), "`cowfs log --help`", ""),
        (Command("--help"), "`cowfs --help`", ""),
        (Command("unmount", "--force", "/a b"), "`cowfs unmount --force '/a b'`", ""),
        (Command("push", "…", "--as", "NAME"), "`cowfs push … --as NAME`", ""),
        (Command("up", "FILE"), "`cowfs up FILE`", ""),
        (Command("status"), "`cowfs status`", ""),
    ],
)
def test_commands_name_the_store(command: Command, shown: str, option: str) -> None:
    assert hints.about(ELSEWHERE, f"do {command}, or not") == f"do {shown[:-1]}{option}`, or not"
    assert hints.about(stores.canonical_url(), command) == shown
    assert hints.about(None, command) == shown
    redirected = Command("verify", "--json", into="a b")
    assert hints.about(ELSEWHERE, redirected) == f"`cowfs verify --json{OPTION} > 'a b'`"


def _texts(tree: ast.AST) -> Iterator[ast.Constant]:
    """The strings of a program but docstrings and help texts."""
    if isinstance(tree, ast.Expr) or (isinstance(tree, ast.keyword) and tree.arg == "help"):
        return
    if isinstance(tree, ast.Constant) and isinstance(tree.value, str):
        yield tree
    for child in ast.iter_child_nodes(tree):
        yield from _texts(child)


@pytest.mark.quick
def test_hints_have_commands_as_values() -> None:
    """A text would be shown for any store. Comments in emitted files are no hints."""
    found = [
        f"{module}:{text.lineno}"
        for module, path in layout.modules().items()
        for text in _texts(ast.parse(path.read_text()))
        if any("`cowfs " in line and not line.startswith("#") for line in str(text.value).splitlines())
    ]
    assert found == [], "write {Command('verb', 'argument')}"


@pytest.mark.quick
def test_commands_in_hints_exist() -> None:
    group = main.cowfs
    assert isinstance(group, main.LazyGroup)
    context = click.Context(group)
    wrong, count = [], 0
    for module, path in layout.modules().items():
        for call in ast.walk(ast.parse(path.read_text())):
            if not (isinstance(call, ast.Call) and ast.unparse(call.func).split(".")[-1] == "Command"):
                continue
            count += 1
            verb, *arguments = (each.value if isinstance(each, ast.Constant) else None for each in call.args)
            if verb == "COMMAND" or (module == "cowfs.cli.main" and verb is None):  # of the list of commands
                continue
            named = [verb, *arguments] if str(verb).startswith("-") else arguments
            command = group if named != arguments else group.get_command(context, str(verb))
            known = {option for each in command.get_params(context) for option in each.opts} if command else set()
            options = {str(each) for each in named if str(each).startswith("-")}
            if command is None or not options <= known | {"--help"}:
                wrong.append(f"{module}:{call.lineno}: {ast.unparse(call)}")
    assert wrong == []
    assert count > 150


def test_work_of_the_store_that_was_named_is_dropped(run: Run, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Found by running what was printed: the work of the default store's volume was dropped."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home / "config"))
    config.config_file().parent.mkdir(parents=True)
    config.config_file().write_text(f'store = "{stores.canonical_url()}"\n')
    monkeypatch.delenv("COWFS_STORE")  # which names a store
    mirror = str(home / "a mirror")
    for number, store in enumerate((None, mirror)):
        volume = Volume.open("data", create=True, store=store)
        volume.files.write("base", b"x")
        volume.commit()
        volume.files.write("work", str(number).encode())
        volume.unmount()
    (home / "new").mkdir()
    (home / "new" / "file").write_text("x")
    refused = run("upload", str(home / "new"), "data", "--store", mirror)
    assert refused.code != 0
    shown = re.findall(r"`(cowfs unmount [^`]*--discard[^`]*)`", refused.err)
    assert shown, refused.err
    ambiguous = run("unmount", "data", "--discard")
    assert ambiguous.code == 2
    offered = re.findall(r"--discard --store ([^`]*)`", ambiguous.err)
    assert [shlex.split(each)[0] for each in offered] == [stores.canonical_url(), (home / "a mirror").as_uri()]
    assert run(*shlex.split(shown[0])[1:]).code == 0
    assert Volume.open("data").files.read("work") == b"0"
    assert not Volume.open("data", store=mirror).has_changes()
    Volume.open("data").unmount()
    assert run("unmount", "data", "--discard").code == 0
    assert not Volume.open("data").has_changes()


@pytest.mark.quick
def test_errors_of_a_volume_name_its_store() -> None:
    class Somewhere(VolumeField):
        store_url, locator = ELSEWHERE, None

        def _has_own_mount(self) -> bool:
            return False

        @names_locator
        def fails(self) -> None:
            raise InvalidStateError("no", hint=f"Run {Command('log', 'data')}.")

    with pytest.raises(InvalidStateError) as caught:
        Somewhere().fails()
    assert caught.value.hint == "Run `cowfs log data --store 's3://bucket/a b'`."
    assert caught.value.__notes__ == [f"hint: {caught.value.hint}"]
    caught.value.set_store("another")
    caught.value.set_hint(f"Run {Command('ls')}.")
    assert caught.value.hint == "Run `cowfs ls --store 's3://bucket/a b'`."


@pytest.mark.quick
def test_errors_of_a_daemon_take_the_store_that_their_caller_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    error = InvalidStateError("no", hint=f"Run {Command('log', 'data')}.")
    assert error.hint == to_record(error)["hint"] == "Run `cowfs log data`."
    for copied in (from_record(json.loads(json.dumps(to_message(error)))), pickle.loads(pickle.dumps(error))):
        copied.set_store("near")
        assert copied.hint == to_record(copied)["hint"] == "Run `cowfs log data --store near`."
        assert pickle.loads(pickle.dumps(copied)).store == "near"
    monkeypatch.setattr(log, "_store", lambda: "near")
    logger = log.get("volume")
    record = logger.makeRecord(logger.name, logging.WARNING, "", 0, "%s shows it", (Command("log", "data"),), None)
    assert logger.filter(record)
    assert record.getMessage() == "`cowfs log data --store near` shows it"


def test_of_two_stores_the_one_that_an_error_is_about_is_named(run: Run, home: Path) -> None:
    """A hint about the mirror had the store that was given, and dropped what lay there."""
    mirror = str(home / "a mirror")
    for store in (None, mirror):
        volume = Volume.open("data", create=True, store=store)
        volume.files.write("base", b"x" if store else b"y")
        volume.commit()
        if store is None:
            Store().push("data", str(home / "third"))
        volume.files.write("work", b"uncommitted")
        volume.unmount()
    url = (home / "a mirror").as_uri()
    for given in ((), ("--store", stores.canonical_url())):
        refused = run("push", "data", mirror, *given)
        assert refused.code != 0
        assert f"`cowfs unmount data --discard --store {shlex.quote(url)}`" in refused.err
    with pytest.raises(InvalidStateError) as caught:
        Store().push("data", mirror)
    assert f"--discard --store {shlex.quote(url)}`" in caught.value.hint
    refused = run("pull", "data", str(home / "third"), "--store", mirror)
    assert refused.code != 0
    assert f"`cowfs unmount data --discard --store {shlex.quote(url)}`" in refused.err
    missing = run("pull", "none", str(home / "third"), "--store", mirror)
    assert f"--store {shlex.quote((home / 'third').as_uri())}`" in missing.err
    missing_one = Volume.open("none", store=mirror)
    calls: list[Callable[[], object]] = [
        lambda: Store(mirror).undelete("none"),
        lambda: missing_one.files.read("file"),
        lambda: missing_one.files.upload(home / "in"),
        missing_one.has_changes,
        missing_one.history,
        missing_one.resolve,
    ]
    (home / "in").mkdir()
    for call in calls:
        with pytest.raises(NotFoundError) as gone:
            call()
        shown = re.findall(r"`cowfs [^`]*`", gone.value.hint)
        assert shown
        assert all("--store" in each for each in shown), gone.value.hint


def test_each_command_of_a_copy_between_two_stores_names_its_own(
    run: Run, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both had the store that was given, so that files went back to where they came from."""
    plain, sealed, here = ((home / name).as_uri() for name in ("plain", "sealed", "here"))
    key = home / "key"
    key.write_bytes(bytes(range(200, 240)))
    mine = Volume.new("v", store=plain).commit()
    own = Volume.new("w", store=here)
    own.commit()

    def commands(hint: str) -> list[tuple[str, list[str]]]:
        return [(name, shlex.split(rest)) for name, rest in re.findall(r"`cowfs (download|upload) ?([^`]*)`", hint)]

    def shown(*command: str) -> list[tuple[str, list[str]]]:
        refused = run(*command)
        assert refused.code == 2, refused.err
        return commands(refused.err)

    calls: list[Callable[[], object]] = [
        lambda: Store(here).merge("w", [mine]),
        lambda: Store(here).restore("w", mine),
        lambda: own.diff(mine),
    ]
    for call in calls:
        with pytest.raises(InvalidInputError, match="lies in another store") as caught:
            call()
        assert commands(caught.value.hint) == [("download", [mine.locator]), ("upload", ["--store", here])]

    monkeypatch.setenv(unlocking.KEY_FILE, str(key))
    there = [("download", ["--store", plain]), ("upload", ["--store", sealed])]
    assert shown("push", "v", sealed, "--store", plain) == there, "it would be made"
    assert shown("pull", "v", plain, "--store", sealed) == there
    Volume.new("e", store=sealed).resolve()
    assert shown("push", "v", sealed, "--store", plain) == there
    assert shown("pull", "v", plain, "--store", sealed) == there
    monkeypatch.setattr(sys, "stdin", io.StringIO("a passphrase\n"))
    assert shown("create", "z", "--encrypt", "--store", plain) == [
        ("download", ["--store", plain]),
        ("upload", ["--store", "URL"]),
    ]
