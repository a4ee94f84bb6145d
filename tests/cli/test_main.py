"""Every failure is a message with a hint and an exit code from the table; results are on stdout
alone."""

from __future__ import annotations

import errno
import fcntl
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import click
import pytest

from cowfs import mounts
from cowfs.cli import commands, main
from cowfs.errors import BY_KIND, CowfsError
from tests.cli.conftest import Run

pytestmark = pytest.mark.quick


def test_help_names_every_command_and_exit_code(run: Run) -> None:
    said = run("--help")
    assert said.code == 0
    for name in commands.COMMANDS:
        assert name in said.out
    for kind in BY_KIND.values():
        assert f"{kind.exit_code} " in said.out


def test_help_shows_commands_in_groups(run: Run) -> None:
    said = run("--help").out
    titles = [said.index(f"\n{title}:\n") for title in commands.GROUPS]
    assert titles == sorted(titles)
    assert [*commands.COMMANDS] == [name for group in commands.GROUPS.values() for name in group]
    for title, group in commands.GROUPS.items():
        part = said.split(f"\n{title}:\n")[1].split("\n\n")[0]
        assert [line.split()[0] for line in part.splitlines()] == [*group]


def test_help_of_a_command_is_asked_for_in_two_ways(run: Run) -> None:
    assert run("help", "mount").out == run("mount", "--help").out
    assert run("help").out == run("--help").out
    assert "Did you mean `cowfs unmount`?" in run("help", "umount").err


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("new", "create"),
        ("umount", "unmount"),
        ("list", "ls"),
        ("creat", "create"),
        ("brnch", "fork"),
        ("fetch", "pull"),
        ("forget", "prune"),
        ("reset", "rollback"),
        ("switch", "mount"),
        ("sync", "upload"),
    ],
)
def test_an_unknown_command_is_answered_by_the_one_that_was_meant(run: Run, word: str, meant: str) -> None:
    said = run(word, "x")
    assert said.code == 2
    assert f"Did you mean `cowfs {meant}`?" in said.err


OF_A_VERSION = "It is for commands that make a version, as `cowfs commit` does. "


@pytest.mark.parametrize(
    ("arguments", "near"),
    [
        (("ls", "--label", "a=b"), OF_A_VERSION),
        (("log", "--author", "me"), OF_A_VERSION),
        (("fork", "a", "b", "--message", "x"), OF_A_VERSION),
        (("commit", "a", "--mesage", "x"), "Did you mean --message? "),
        (("gc", "--dryrun"), "Did you mean --dry-run? "),
        (("download", "a", "--over", "always"), "Did you mean --overwrite? "),
    ],
)
def test_an_unknown_option_is_answered_only_by_a_near_one(run: Run, arguments: tuple[str, ...], near: str) -> None:
    said = run(*arguments)
    option = next(each for each in arguments if each.startswith("--"))
    assert (
        said.err
        == f"cowfs: cowfs {arguments[0]} has no option {option}\nhint: {near}`cowfs {arguments[0]} --help` shows how it is used.\n"
    )


def test_an_option_before_the_command_is_told_its_place(run: Run) -> None:
    assert "Options come after the command: `cowfs ls --store`, for example." in run("--store", "x", "ls").err


def test_words_of_other_programs_lead_to_commands(run: Run) -> None:
    assert set(commands.ELSEWHERE.values()) <= set(commands.COMMANDS)
    assert not set(commands.ELSEWHERE) & set(commands.COMMANDS)
    assert "lists the commands" in run("zzzzzz").err
    assert "cowfs --version" in run("version").err
    assert run("umount", "--json").json["error"]["kind"] == "invalid_input"


@pytest.mark.parametrize("name", commands.COMMANDS)
def test_every_command_takes_store_and_json(name: str) -> None:
    group = main.cowfs
    assert isinstance(group, click.Group)
    command = group.get_command(click.Context(group), name)
    assert command is not None
    options = {option for parameter in command.params for option in parameter.opts}
    assert "--json" in options or name == "completion"  # a script
    assert "--store" in options or name in (
        "bench",
        "allow",
        "apply",
        "up",
        "down",
        "lock",
        "restart",
        "clean",
        "completion",
        "k8s",
    )  # of directories, or of what a file says
    assert all(parameter.help for parameter in command.params if isinstance(parameter, click.Option))


def test_every_mount_option_has_its_flag() -> None:
    from dataclasses import fields

    from cowfs.cli.mounts.mount import command
    from cowfs.control import MountOptions

    flags = {parameter.name for parameter in command.params}
    assert {field.name for field in fields(MountOptions)} <= flags


@pytest.mark.parametrize(
    "arguments",
    [
        ("nothing",),
        ("create",),
        ("create", "a", "b"),
        ("create", "a/b"),
        ("mount", "a"),
        ("mount", "a", "b", "--max-uploads", "many"),
        ("mount", "a", "b", "--max-uploads", "0"),
        ("mount", "a", "b", "--cache-size", "much"),
        ("mount", "a", "b", "--cache-size", "10"),
        ("mount", "@a", "b"),
        ("mount", "cowfs+file:///x/-/a@12", "b"),
        ("log", "cowfs+nothing"),
        ("commit", "a", "--label", "colour"),
        ("commit", "a", "--label", "=red"),
        ("unmount", "a", "--commit", "--discard"),
        ("unmount", "a", "-m", "message"),
        ("ls", "--store", "nothing://x"),
        ("--no-such-option",),
    ],
)
def test_bad_arguments_are_invalid_input_with_a_hint(run: Run, arguments: tuple[str, ...]) -> None:
    said = run(*arguments)
    assert said.code == 2, said
    assert said.out == ""
    assert said.err.startswith("cowfs: ")
    assert "\nhint: " in said.err
    error = run(*arguments, "--json").json["error"]
    assert error["kind"] == "invalid_input"
    assert error["message"]
    assert error["hint"]


def test_unexpected_failures_show_no_traceback(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cowfs.store.open_store", lambda *_, **__: 1 / 0)
    said = run("ls")
    assert said.code == 1
    assert "ZeroDivisionError" in said.err


def test_errors_keep_their_codes(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    for cls in BY_KIND.values():

        def fail(*_: object, cls: type[CowfsError] = cls, **__: object) -> None:
            raise cls("it is so", hint="do this")

        monkeypatch.setattr("cowfs.store.open_store", fail)
        said = run("ls")
        assert (said.code, said.err) == (cls.exit_code, "cowfs: it is so\nhint: do this\n")


def test_a_reader_that_has_seen_enough_is_no_error(home: Path) -> None:
    command = f"{sys.executable} -m cowfs.cli --help | true; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_command_knows_how_programs_end_where_its_caller_does_not() -> None:
    """SIGCHLD is ignored by who starts it."""
    done = subprocess.run(
        [sys.executable, "-c", "from cowfs.cli.start import main; main()", "create", "name"],
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(sys.path),
            "COWFS_ENCRYPTION_KEY_COMMAND": "sh -c 'echo 0123456789012345678901234567890123456789; exit 3'",
        },
        preexec_fn=lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert "ended with exit status 3" in done.stderr


def shell(line: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    """What bash says to a line in which COWFS is the program, outside of this process."""
    path = os.pathsep.join(map(os.path.abspath, sys.path))
    line = line.replace("COWFS", f"{shlex.quote(sys.executable)} -P -m cowfs.cli")
    command = ["bash", "-c", line, "bash", *map(str, arguments)]
    return subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, timeout=120)


def test_an_error_document_that_nobody_reads_leaves_the_exit_code_of_its_error(run: Run) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-P", "-m", "cowfs.cli", "log", "absent", "--json"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))}
    done = subprocess.run(
        command, env=environment, stdout=writing, stderr=subprocess.PIPE, text=True, check=False, timeout=120
    )
    os.close(writing)
    assert (done.returncode, done.stderr) == (3, "")


def test_an_error_document_that_cannot_be_written_is_told_on_standard_error(run: Run) -> None:
    done = shell("COWFS log absent --json >/dev/full")
    assert done.returncode == 3
    message, hint = done.stderr.splitlines()
    assert message.startswith("cowfs: there is no store")
    assert hint.startswith("hint: ")


@pytest.mark.parametrize(("arguments", "code"), [("create new", 0), ("log absent", 3), ("", 2)])
def test_nothing_fails_because_standard_error_cannot_be_written(run: Run, arguments: str, code: int) -> None:
    assert shell(f"COWFS {arguments} 2>/dev/full").returncode == code


def test_progress_that_nobody_reads_ends_nothing(run: Run, tmp_path: Path) -> None:
    run("create", "data")
    source = tmp_path / "source"
    source.mkdir()
    (source / "file").write_bytes(b"content")
    assert shell("COWFS upload $1 data: --progress json 2>/dev/full", source).returncode == 0
    assert run("cat", "data:/file").out == "content"


@pytest.mark.parametrize("arguments", ["ls", "ls --json", "completion bash", "--help", "--version"])
def test_a_closed_standard_output_is_an_error_of_two_lines(run: Run, arguments: str) -> None:
    run("create", "data")
    done = shell(f"COWFS {arguments} >&-")
    assert done.returncode == 1
    message, hint = done.stderr.splitlines()
    assert message == "cowfs: standard output cannot be written: Bad file descriptor"
    assert hint.startswith("hint: ")


def test_a_command_that_says_nothing_may_have_its_streams_closed(run: Run) -> None:
    assert shell("COWFS create data <&- >/dev/null 2>&-").returncode == 0
    assert run("ls", "--json").json["volumes"][0]["volume"] == "data"
    assert shell("COWFS show nothing <&- >&- 2>&-").returncode == 3


@pytest.mark.parametrize("arguments", ["mount data here", "unmount here", "upload . more", "up", "download data"])
def test_a_working_directory_that_is_gone_is_named(run: Run, home: Path, arguments: str) -> None:
    run("create", "data")
    run("commit", "data")
    done = shell(f'mkdir "$1" && cd "$1" && rmdir "$1" && COWFS {arguments}', home / "gone")
    assert done.returncode == 3
    message, hint = done.stderr.splitlines()
    assert message == "cowfs: the working directory does not exist any more"
    assert [each["volume"] for each in run("ls", "--json").json["volumes"]] == ["data"], "nothing was made"
    assert hint.startswith("hint: ")


def test_help_is_quick_to_load() -> None:
    code = "from cowfs.cli.main import main\nimport sys\ntry: main(['--help'])\nexcept SystemExit: pass\n"
    code += "print([name for name in ('anyio', 'blake3', 'apsw', 'fsspec', 'trio') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_an_interrupted_commit_says_that_the_mount_goes_on_with_it(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    entry: Any = SimpleNamespace(kind="fuse", written="data", volume="data", store_url=None)

    class Interrupted(mounts.Mounted):
        def __init__(self) -> None:
            super().__init__(entry)

        def commit(self, *arguments: object, **named: object) -> NoReturn:
            raise KeyboardInterrupt

    monkeypatch.setattr(mounts, "find", lambda *arguments, **named: Interrupted())
    said = run("commit", "data")
    assert said.code == 130
    assert "goes on with the commit" in said.err
    assert "cowfs log data" in said.err
    entry.kind = "scratch"
    assert "cowfs log made" in run("commit", "data", "--name", "made").err
    assert "cowfs log" not in run("commit", "data").err


@pytest.mark.parametrize("flags", [(), ("--commit",), ("--discard",)])
def test_an_interrupted_unmount_says_that_the_mount_goes_on(
    flags: tuple[str, ...], run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*arguments: object, **named: object) -> NoReturn:
        raise KeyboardInterrupt

    entry: Any = SimpleNamespace(
        kind="fuse", mount_path="/where", written="data", volume="data", working_copy=None, id="0"
    )

    class Interrupted(mounts.Mounted):
        commit_and_unmount = unmount = discard = interrupted

        def __init__(self) -> None:
            super().__init__(entry)

    monkeypatch.setattr(mounts, "find", lambda *arguments, **named: Interrupted())
    said = run("unmount", "data", *flags)
    assert said.code == 130
    assert "goes on with what it was told; `cowfs status`" in said.err
    entry.kind = "folder"
    assert "goes on" not in run("unmount", "data", *flags).err  # it is this process that does it


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        *((number, "no_space") for number in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)),
        *((number, "unavailable") for number in (errno.EMFILE, errno.ENFILE, errno.ENOMEM)),
        *((number, "access_denied") for number in (errno.EACCES, errno.EPERM)),
        *((number, "invalid_input") for number in (errno.EOPNOTSUPP, errno.ENOSYS, errno.EILSEQ, errno.ENAMETOOLONG)),
        (errno.EROFS, "read_only"),
    ],
)
def test_what_the_machine_refuses_is_no_fault_of_cowfs(
    run: Run, monkeypatch: pytest.MonkeyPatch, number: int, kind: str
) -> None:
    def refused(*_: object, **__: object) -> NoReturn:
        raise OSError(number, os.strerror(number), "/place")

    monkeypatch.setattr("cowfs.api.stores.open_store", refused)
    said = run("ls", "--json")
    assert said.json["error"]["kind"] == kind
    assert os.strerror(number) in said.json["error"]["message"]
    assert "report" not in said.json["error"]["hint"]


OF_THE_DIRECTORIES = {
    **dict.fromkeys((errno.ENOTCONN, errno.ECONNABORTED), "invalid_state"),
    **dict.fromkeys((errno.EIO, errno.ESTALE, errno.EUCLEAN), "unavailable"),
    **dict.fromkeys((errno.ENOTDIR, errno.ELOOP), "invalid_input"),
    **dict.fromkeys((errno.EACCES, errno.EPERM), "access_denied"),
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT), "no_space"),
    errno.EROFS: "read_only",
}
CALLS = {
    "replace": (os, "replace"),
    "unlink": (os, "unlink"),
    "fsync": (os, "fsync"),
    "flock": (fcntl, "flock"),
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("number", OF_THE_DIRECTORIES, ids=errno.errorcode.get)
def test_a_directory_of_this_machine_that_fails_is_no_fault_of_cowfs(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, call: str
) -> None:
    """Of state, cache and runtime, once they were found."""
    source = tmp_path / "source"
    source.mkdir()
    (source / "f").write_text("uploaded")
    (tmp_path / "run").mkdir(mode=0o700)
    assert run("upload", str(source), "data").code == 0
    module, name = CALLS[call]
    real, met = getattr(module, name), []

    def failing(what: object, *arguments: object, **named: object) -> object:
        path = os.readlink(f"/proc/self/fd/{what}") if isinstance(what, int) else os.fsdecode(what)  # type: ignore[arg-type]
        if not Path(path).is_relative_to(tmp_path / "c") and not Path(path).is_relative_to(tmp_path / "run"):
            return real(what, *arguments, **named)
        met.append(path)
        raise OSError(number, os.strerror(number), *(() if isinstance(what, int) else (path,)))

    monkeypatch.setattr(module, name, failing)
    for command in (
        ("cp", str(source / "f"), "data:/g"),
        ("upload", str(source), "other"),
        ("unmount", "data", "--discard"),
        ("restore", "data"),
        ("status",),
    ):
        said = run(*command, "--json")
        if said.code != 0:
            error = said.json["error"]
            assert error["kind"] != "internal", (command, error)
            assert "report" not in error["hint"], (command, error)
    assert met


@pytest.mark.parametrize("number", OF_THE_DIRECTORIES, ids=errno.errorcode.get)
@pytest.mark.parametrize("path", [(), ("/place",)], ids=["open", "path"])
def test_what_a_disk_says_has_its_kind(
    run: Run, monkeypatch: pytest.MonkeyPatch, number: int, path: tuple[str, ...]
) -> None:
    def refused(*_: object, **__: object) -> NoReturn:
        raise OSError(number, os.strerror(number), *path)

    monkeypatch.setattr("cowfs.api.stores.open_store", refused)
    error = run("ls", "--json").json["error"]
    assert error["kind"] == OF_THE_DIRECTORIES[number]
    assert "report" not in error["hint"]


def test_a_dead_mount_of_another_file_system_is_not_said_to_be_one_of_cowfs(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dead, stat = tmp_path / "dead", os.stat

    def asked(path: object, *arguments: object, **named: object) -> object:
        if isinstance(path, str | os.PathLike) and Path(path).is_relative_to(dead):
            raise OSError(errno.ENOTCONN, os.strerror(errno.ENOTCONN), str(path))
        return stat(path, *arguments, **named)  # type: ignore[arg-type]

    run("create", "data")
    monkeypatch.setattr(os, "stat", asked)
    for arguments in (("mount", "data", dead / "inside"), ("upload", dead, "data")):
        error = run(*map(str, arguments), "--json").json["error"]
        assert error["kind"] == "invalid_state"
        assert f"{dead} lies in a mount whose daemon has died" in error["message"]
        assert error["hint"].startswith("If it is a mount of cowfs")
