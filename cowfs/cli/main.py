"""The `cowfs` command: finds the subcommand and turns every failure into a message and an exit
code.

    stdout    data; with --json exactly one JSON document, on failure {"error": {kind, message, hint, details}}; docs/reference/json.md
    stderr    progress and messages; failures as `cowfs: MESSAGE` and `hint: …`; never a traceback
    exit      0, or the code of the error's kind (the table in cowfs.errors; `cowfs --help` shows it); 130 after Ctrl-C,
              143 after SIGTERM, 129 after SIGHUP; a command without cleanup is ended by the signal itself

Each command loads only its own modules, so that `cowfs --help` and completion stay quick.
"""

from __future__ import annotations

import errno
import importlib
import keyword
import logging
import os
import sys
from collections.abc import Sequence

import click
from click.shell_completion import CompletionItem

import cowfs as cowfs_package
from cowfs import errors
from cowfs.cli import output
from cowfs.cli.start import INTERRUPTED, Terminated, interrupted
from cowfs.errors import Command, CowfsError, InvalidInputError, NotFoundError
from cowfs.rendering import show_log

OF_THIS_MACHINE = (
    *(errno.ENOTDIR, errno.ELOOP, errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS),
    *(errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN),
    *(errno.EOPNOTSUPP, errno.ENOSYS, errno.EILSEQ, errno.ENAMETOOLONG),
    *errors.FAILING,
    *errors.DIED,
)
COMMANDS = {
    "create": "Make a volume.",
    "mount": "Mount a volume to write, or a version to read.",
    "commit": "Publish what was written as a version.",
    "unmount": "Unmount; uncommitted work is kept.",
    "exec": "Run a program with volumes, and publish what it changes.",
    "fork": "Make a volume that starts from a version.",
    "log": "Show a volume's versions.",
    "show": "Show what is recorded of a version.",
    "tag": "Name versions of a volume, or list their names.",
    "diff": "Show what differs between two versions.",
    "merge": "Merge versions of forks into a volume.",
    "restore": "Bring back what an older version has.",
    "rollback": "Make a volume what an older version was.",
    "quota": "Show or set how much a volume may have.",
    "prune": "Mark versions that no retention rule keeps as deletable.",
    "ls": "List volumes, or the files of one.",
    "get": "Show what is known of one volume.",
    "find": "Print the paths of a version's files.",
    "tree": "Show a version's files as a tree.",
    "stat": "Show what is at a path of a version.",
    "du": "Show how much lies in the directories of a version.",
    "cat": "Print a file of a volume or version.",
    "cp": "Copy files into or out of a volume.",
    "upload": "Publish a directory as a volume's next version.",
    "download": "Copy a version's files into a directory.",
    "import": "Copy a bucket, or files at another URL, into a volume.",
    "export": "Write a version's files as objects of a bucket.",
    "apply": "Make volumes and mounts as a file declares them.",
    "up": "Mount the volumes that a file declares.",
    "down": "Unmount what `up` or `apply` has mounted.",
    "allow": "Allow what a file declares that is found and not named.",
    "warm": "Fetch a version's contents into this machine's cache.",
    "verify": "Read a version or a store again, and say what is damaged.",
    "repair": "Look for what damaged packs have lost, and put it back.",
    "push": "Copy versions to another store, under the same ids.",
    "pull": "Copy versions from another store, under the same ids.",
    "delete": "Delete a volume.",
    "undelete": "Bring a deleted volume back.",
    "gc": "Delete data that no version references.",
    "maintain": "Prune volumes by their saved rules, and collect garbage.",
    "status": "List mounts and working copies on this machine.",
    "k8s": "Change Kubernetes manifests so that their pods can mount.",
    "completion": "Print the completion script for a shell.",
    "bench": "Measure a directory beside the local disk.",
    "key": "Show and change what opens an encrypted store.",
    "store": "Name stores, or accept one that has changed.",
    "doctor": "Check the requirements of mounts, and suggest repairs.",
}


OF_EXEC = 125
"""What `exec` exits with when cowfs fails, since other codes are those of its program."""

ELSEWHERE = {
    "add": "cp",
    "branch": "fork",
    "check": "verify",
    "checkout": "mount",
    "clone": "fork",
    "compare": "diff",
    "copy": "cp",
    "destroy": "delete",
    "fsck": "verify",
    "history": "log",
    "init": "create",
    "list": "ls",
    "make": "create",
    "new": "create",
    "open": "mount",
    "passwd": "key",
    "password": "key",
    "ps": "status",
    "publish": "commit",
    "put": "cp",
    "read": "cat",
    "remove": "delete",
    "rm": "delete",
    "revert": "rollback",
    "run": "exec",
    "save": "commit",
    "info": "get",
    "inspect": "get",
    "describe": "get",
    "snapshot": "commit",
    "umount": "unmount",
    "versions": "log",
    "volumes": "ls",
}
"""Commands of other programs, with the equivalent or nearest command here."""


ALSO = {
    1: "; of `diff --exit-code`: there are differences; of `verify` and `repair`: something is lost",
    2: "; of `apply --dry-run`: something is to be done",
}
"""Further meanings of exit codes."""


ROOMS = {
    "volumes": "create fork log show tag diff merge restore rollback ls get delete undelete",
    "files": "find tree stat du cat cp upload download import export warm",
    "mounts": "mount commit unmount exec apply up down",
    "stores": "quota prune verify repair push pull gc maintain key store",
    "machine": "allow status k8s completion bench doctor",
}
"""The package below `cowfs.cli` that contains a command's module."""
_ROOM_OF = {command: room for room, commands in ROOMS.items() for command in commands.split()}


def module_of(command: str) -> str:
    """The module of a command. A name that is a Python keyword gets an underscore."""
    name = f"{command}_" if keyword.iskeyword(command) else command
    return f"cowfs.cli.{_ROOM_OF[command]}.{name}"


class LazyGroup(click.Group):
    """A group whose commands are in modules of their names, which are imported when the commands
    run."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command = importlib.import_module(module_of(cmd_name)).command
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS and not args[0].startswith("-") and not ctx.resilient_parsing:
            raise InvalidInputError(f"there is no command {args[0]!r}", hint=_meant(args[0]))
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Does not import every command, as click would to read its help."""
        found = [CompletionItem(name, help=said) for name, said in COMMANDS.items() if name.startswith(incomplete)]
        return found or click.Command.shell_complete(self, ctx, incomplete)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Exit codes"):
            rows = sorted({(kind.exit_code, kind.kind) for kind in errors.BY_KIND.values()})
            codes = [(str(code), name.replace("_", " ") + ALSO.get(code, "")) for code, name in rows]
            formatter.write_dl(
                [("0", "success"), *codes, (str(INTERRUPTED), "interrupted; 143 by SIGTERM, 129 by SIGHUP")]
            )


def _show_version(context: click.Context, _: click.Parameter, is_wanted: bool) -> None:
    """Reads the package's metadata only on request, because that is slow."""
    if is_wanted:
        click.echo(f"cowfs, version {cowfs_package.__version__}")
        context.exit()


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option(
    "--version",
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=_show_version,
    help="Show the version and exit.",
)
def cowfs() -> None:
    """A versioned copy-on-write file system on object storage."""


def _meant(word: str) -> str:
    import difflib

    near = ELSEWHERE.get(word) or next(iter(difflib.get_close_matches(word, [*COMMANDS, *ELSEWHERE], 1)), None)
    if word == "version":
        return f"{Command('--version')} is cowfs' own; {Command('log', 'NAME')} shows the versions of a volume."
    if near is None:
        return f"{Command('--help')} lists the commands, {Command('COMMAND', '--help')} explains one."
    near = ELSEWHERE.get(near, near)
    return f"Did you mean {Command(near)}? {COMMANDS[near]} {Command('--help')} lists all commands."


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the command line and exits."""
    show_log(is_command=True, store=output.given_store)
    given = list(sys.argv[1:] if arguments is None else arguments)
    sys.exit(_run(given, as_json="--json" in _own_words(given)))


def _own_words(arguments: list[str]) -> list[str]:
    """Those before the program that `exec` runs."""
    at = 1
    while arguments[:1] == ["exec"] and at < len(arguments):
        word = arguments[at]
        if word == "--" or not word.startswith("-"):
            return arguments[:at]
        takes_next = word == "-v" or (word.startswith("--") and "=" not in word and word not in ("--json", "--help"))
        at += 2 if takes_next else 1
    return arguments


def _run(arguments: list[str], *, as_json: bool) -> int:
    """The exit code."""
    output.forget_store()
    try:
        result = cowfs.main(arguments, prog_name="cowfs", standalone_mode=False)
        sys.stdout.flush()
    except CowfsError as error:
        if not as_json and (_is_trusted_now(error) or _is_unlocked_now(error) or _is_allowed_now(error)):
            return _run(arguments, as_json=as_json)
        return _fail(error, arguments, as_json=as_json)
    except click.exceptions.NoArgsIsHelpError as error:
        output.talk(error.format_message())
        return InvalidInputError.exit_code
    except click.ClickException as error:
        return _fail(_usage(error), arguments, as_json=as_json)
    except (click.Abort, KeyboardInterrupt, Terminated) as error:
        return interrupted(error, as_json=as_json)
    except (BrokenPipeError, SystemExit):  # click exits for a broken pipe and for nothing else in this mode
        _leave_stdout()  # the reader of our output has closed it
        return 0
    except Exception as error:  # noqa: BLE001 - the last resort of the process: reported, never swallowed
        return _fail(_of_this_machine(error) or _wrap_unexpected(error), arguments, as_json=as_json)
    return result if isinstance(result, int) else 0


def _fail(error: CowfsError, arguments: list[str], *, as_json: bool) -> int:
    code = _report(error, as_json=as_json)
    return OF_EXEC if arguments[:1] == ["exec"] else code


def _of_this_machine(error: Exception) -> CowfsError | None:
    """A cowfs error for a refusal of the operating system that no other code has described; None
    for other errors."""
    if isinstance(error, OSError):
        try:
            sys.stdout.flush()
        except OSError as refusal:  # again: output that could not be written is still buffered
            return output.of_stdout(refusal)
    if isinstance(error, PermissionError) or (isinstance(error, OSError) and error.errno in OF_THIS_MACHINE):
        return errors.from_local_disk(error, "this machine refuses")
    if isinstance(error, FileNotFoundError):
        try:
            os.getcwd()
        except FileNotFoundError:
            hint = "Go to one that does: `cd` alone changes to your home directory."
            return NotFoundError("the working directory does not exist any more", hint=hint)
    return None


def _wrap_unexpected(error: Exception) -> CowfsError:
    logging.getLogger("cowfs.cli").debug("unexpected failure", exc_info=error)
    hint = "Please report this; COWFS_LOG=debug shows where it happened."
    return errors.unexpected("unexpected failure", error, hint=hint)


def _leave_stdout() -> None:
    """Drops buffered output of stdout, which would fail when Python ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def _is_trusted_now(error: CowfsError) -> bool:
    """Asks a person whether the server, which only a locator names and which refused anonymous
    access, may see credentials."""
    server = error.details.get("untrusted_server")
    if server is None or not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    output.talk(f"cowfs: {error.message}")
    if not click.confirm(f"Send your credentials to {server}, now and from now on?", default=False, err=True):
        return False
    from cowfs import storage

    storage.trust_server(str(server))
    return True


_passphrases_left = 3


def _is_unlocked_now(error: CowfsError) -> bool:
    """Asks a person for the passphrase of an encrypted store, until it is right."""
    global _passphrases_left
    store = error.details.get("encrypted_store")
    if store is None or not (sys.stdin.isatty() and sys.stderr.isatty()) or _passphrases_left == 0:
        return False
    _passphrases_left -= 1
    output.talk(f"cowfs: {error.message}")
    from cowfs import storage

    storage.use_passphrase(click.prompt("Passphrase", hide_input=True, err=True))
    return True


def _is_allowed_now(error: CowfsError) -> bool:
    """Asks a person whether a discovered declaring file may do the action it asks for."""
    file, content = error.details.get("unallowed_file"), error.details.get("content")
    if file is None or not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    output.talk(f"cowfs: {error.message}")
    if not click.confirm(f"Allow {file}, as long as it does not change?", default=False, err=True):
        return False
    from cowfs.blocking import Declared

    Declared.allow_content(str(file), str(content))
    return True


def _usage(error: click.ClickException) -> CowfsError:
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "cowfs"
    return InvalidInputError(error.format_message(), hint=f"`{command} --help` shows how it is used.")


def _report(error: CowfsError, *, as_json: bool) -> int:
    error.set_store(output.given_store())
    if error.details.get("stream") == "stdout":
        _leave_stdout()
    elif as_json and _is_taken(output.document({"error": errors.to_record(error)})):
        return error.exit_code
    output.talk(f"cowfs: {error.message}")
    if error.hint:
        output.talk(f"hint: {error.hint}")
    return error.exit_code


def _is_taken(document: str) -> bool:
    """Whether stdout accepts the output; False if the reader has closed it."""
    try:
        click.echo(document)
    except OSError as error:
        _leave_stdout()
        return isinstance(error, BrokenPipeError)
    return True


if __name__ == "__main__":
    main()
