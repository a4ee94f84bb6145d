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
import logging
import os
import sys
from collections.abc import Sequence

import click
from click.shell_completion import CompletionItem

import cowfs as cowfs_package
from cowfs import errors
from cowfs.cli import output
from cowfs.cli.commands import COMMANDS, ELSEWHERE, GROUPS, module_of
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
LIKENESS = 0.75
"""From which on a wrong option is taken for a mistyped one."""
OF_A_VERSION = ("-m", "--message", "--label", "--author")
OF_EXEC = 125
"""What `exec` exits with when cowfs fails, since other codes are those of its program."""

ALSO = {
    1: "; with --exit-code: there are differences, or something would be done; of `verify` and `repair`: something is lost",
}
"""Further meanings of exit codes."""


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
        width = max(map(len, COMMANDS))
        for title, commands in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), summary) for name, summary in commands.items()])

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
    if word == "rename":
        return (
            f"A volume cannot be renamed: fork it under the new name ({Command('fork', 'NAME', 'NEW')}), and then delete the "
            f"old one ({Command('delete', 'NAME')}). {Command('mv')} renames files of a volume."
        )
    if near is None:
        return f"{Command('--help')} lists the commands, {Command('COMMAND', '--help')} explains one."
    near = ELSEWHERE.get(near, near)
    return f"Did you mean {Command(near)}? {COMMANDS[near]} {Command('--help')} lists all commands."


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the command line and exits."""
    show_log(is_command=True, store=output.given_store)
    given = list(sys.argv[1:] if arguments is None else arguments)
    sys.exit(_run(given, as_json="--json" in _own_words(given)))


def _expand_help(arguments: list[str]) -> list[str]:
    """The arguments, where `cowfs help COMMAND` becomes `cowfs COMMAND --help`."""
    if arguments[:1] != ["help"]:
        return arguments
    return [*(each for each in arguments[1:2] if not each.startswith("-")), "--help"]


def _own_words(arguments: list[str]) -> list[str]:
    """Those before the program that `exec` runs."""
    at = 1
    while arguments[:1] == ["exec"] and at < len(arguments):
        word = arguments[at]
        if word == "--" or not word.startswith("-"):
            return arguments[:at]
        is_flag = word in ("--json", "--help", "--quiet", "-q", "-h")
        takes_next = not is_flag and (word in ("-v", "-m") or (word.startswith("--") and "=" not in word))
        at += 2 if takes_next else 1
    return arguments


def _run(arguments: list[str], *, as_json: bool) -> int:
    """The exit code."""
    output.forget_options()
    try:
        color = False if os.environ.get("NO_COLOR") else None  # None: on a terminal
        result = cowfs.main(_expand_help(arguments), prog_name="cowfs", standalone_mode=False, color=color)
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
    near, message = "", error.format_message()
    if isinstance(error, click.NoSuchOption):
        near, message = _near_option(error), f"{command} has no option {error.option_name}"
        if context is not None and context.parent is None:
            near = near or f"Options come after the command: {Command('ls', error.option_name)}, for example. "
    return InvalidInputError(message, hint=f"{near}`{command} --help` shows how it is used.")


def _near_option(error: click.NoSuchOption) -> str:
    """The beginning of a hint; "" where no option is near. click also offers words that have some
    letters in common."""
    from difflib import SequenceMatcher

    if error.option_name in OF_A_VERSION:
        return f"It is for commands that make a version, as {Command('commit')} does. "
    word = error.option_name.lstrip("-")
    for option in error.possibilities or ():
        likeness = SequenceMatcher(None, word, option.lstrip("-")).ratio()
        if option != "--help" and (likeness >= LIKENESS or option.lstrip("-").startswith(word)):
            return f"Did you mean {option}? "
    return ""


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
