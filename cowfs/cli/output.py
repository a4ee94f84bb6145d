"""The output of commands: results on stdout, as text or as one JSON document; everything else on
stderr.

This module also has the options common to all commands, and formats tables and results for people;
`cowfs.rendering` has what other front ends show alike.
"""

from __future__ import annotations

import dataclasses
import errno
import functools
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar

import click

from cowfs import errors, rendering
from cowfs.cli import completing
from cowfs.cli.start import Terminated, tidy_up_when_terminated
from cowfs.cli.tables import table as table
from cowfs.errors import Command, CowfsError, InvalidInputError
from cowfs.rendering import ProgressText, count, format_size, printable
from cowfs.rendering import fields_of as fields_of

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress

    from cowfs.api.declared.mounting import Outcome
    from cowfs.blocking import Progress, TransferReport

BAR_AFTER_S = 0.3
BAR_WIDTH = 24
JSON_FORMAT = 1
_EXIT_CODE = "cowfs.exit_code"

F = TypeVar("F", bound=Callable[..., Any])

_named_store: str | None = None  # by --store
_is_quiet = False  # by --quiet


class Described(TypedDict):
    """What a command says about the version that it makes."""

    message: str
    author: str | None
    labels: dict[str, str]


def common_options(function: F) -> F:
    """--store, --json and --quiet."""
    return store_option(json_option(function))


def store_option(function: F) -> F:
    return click.option(
        "--store",
        metavar="STORE",
        callback=_resolve_name,
        shell_complete=completing.stores,
        help="The store: a URL, a directory or a name (`cowfs store`); default: COWFS_STORE, or a directory of yours.",
    )(function)


def json_option(function: F) -> F:
    """--json and --quiet."""
    quiet = click.option(
        "-q",
        "--quiet",
        is_flag=True,
        expose_value=False,
        callback=_be_quiet,
        help="On stderr only errors and warnings: neither progress nor messages.",
    )
    return click.option("--json", "as_json", is_flag=True, help="Print one JSON document on stdout.")(quiet(function))


def _be_quiet(context: click.Context, parameter: click.Parameter, is_wanted: bool) -> None:
    global _is_quiet
    _is_quiet = is_wanted


def version_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """--message, --author and --label, for commands that make a version; passed as one
    `described`."""

    @click.option("-m", "--message", default="", help="What this version is.")
    @click.option("--author", help="Who made it. [COWFS_AUTHOR, git's user, or user@host]")
    @click.option("--label", "labels", multiple=True, metavar="KEY=VALUE", help="Recorded with it. Repeatable.")
    @functools.wraps(function)
    def describe(*arguments: Any, message: str, author: str | None, labels: tuple[str, ...], **options: Any) -> Any:
        said = Described(message=message, author=author, labels=_parse_labels(labels))
        return function(*arguments, described=said, **options)

    return describe


def _parse_labels(labels: tuple[str, ...]) -> dict[str, str]:
    for label in labels:
        key, equals, _ = label.partition("=")
        if not (key and equals):
            missing = "key" if equals else "'='"
            raise InvalidInputError(f"label {label!r} has no {missing}", hint="Write --label KEY=VALUE.")
    return dict(label.split("=", 1) for label in labels)


def dry_run_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """--dry-run, and --exit-code with it. The command returns `plan_code` for a plan."""

    @click.option("--dry-run", is_flag=True, help="Only show what would be done.")
    @click.option("--exit-code", is_flag=True, help="With --dry-run: exit with 1 if anything would be done.")
    @functools.wraps(function)
    def plan(*arguments: Any, exit_code: bool, **options: Any) -> Any:
        if exit_code and not options["dry_run"]:
            raise InvalidInputError("--exit-code is about a plan", hint="Give --dry-run, too.")
        click.get_current_context().meta[_EXIT_CODE] = exit_code
        return function(*arguments, **options)

    return plan


def plan_code(has_work: bool) -> int:
    """The exit code of a dry run. has_work: something would be done, or cannot be."""
    return 1 if has_work and click.get_current_context().meta[_EXIT_CODE] else 0


def manifest_option(function: F) -> F:
    """--manifest, for commands about volumes that a file declares."""
    return click.option(
        "--manifest",
        type=click.Path(),
        metavar="FILE",
        help="The volumes that another program's file lists as main.volumes.",
    )(function)


def _resolve_name(context: click.Context, parameter: click.Parameter, url: str | None) -> str | None:
    """Trusts a store that the user names (`store.credentials.trust`). A store that ends with the
    command is useless and refused."""
    global _named_store
    if context.resilient_parsing:  # a shell completes the line
        return url
    chosen = os.environ.get("COWFS_STORE", "") if url is None else url
    if chosen.lower().startswith("memory:"):
        raise InvalidInputError(
            f"{chosen} lives in one process: nothing would be left of it when this command ends",
            hint="Use a directory (file:///…) or an object store.",
        )
    if url is not None:
        from cowfs.blocking import Store

        Store(url)  # names it
        _named_store = url
    return url


def emit(as_json: bool, record: Any, text: str) -> None:
    """The result of a command: `record` with --json, else `text` (nothing when it is empty).
    record: fields by name, or a report of the library."""
    with to_stdout():
        if as_json:
            click.echo(document(record))
        elif text:
            write(f"{text}\n")


def write(text: str) -> None:
    """Writes to stdout. A program that reads the output gets every byte: click would remove
    colours."""
    click.echo(text if sys.stdout.isatty() else os.fsencode(text), nl=False)


@contextmanager
def to_stdout() -> Iterator[None]:
    """For code that writes to standard output: a failure there is not a failure of cowfs. A broken
    pipe stays a broken pipe: the reader has closed it."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise of_stdout(error) from error


def of_stdout(error: OSError) -> CowfsError:
    """The error for a standard output that cannot be written."""
    if error.errno == errno.EBADF:
        hint = "The caller has closed it. Give it a file, or /dev/null."
    else:
        hint = "Look at where the output of this command goes: a full disk, or a device?"
    message = f"standard output cannot be written: {error.strerror}"
    return CowfsError(message, hint=hint, details={"stream": "stdout"})


def document(record: Any) -> str:
    """The one JSON document of a command (docs/reference/json.md). A record with a format of its
    own stays as it is."""
    has_format = isinstance(record, Mapping) and "format" in record
    return json.dumps(record if has_format else {"format": JSON_FORMAT, **_rename_for_json(record)}, default=str)


def _rename_for_json(value: Any) -> Any:
    """Reports become objects. Nanoseconds become strings of digits: most readers of JSON round
    integers of that size."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = fields_of(value)
    if isinstance(value, Mapping):
        is_time = {name: name.endswith("_ns") and isinstance(each, int) for name, each in value.items()}
        return {name: str(each) if is_time[name] else _rename_for_json(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_rename_for_json(each) for each in value]
    return value


def say(as_json: bool, text: str) -> None:
    """Prints a message for a person on stderr; nothing with --quiet, and nothing for programs that
    asked for JSON."""
    if not (as_json or _is_quiet):
        talk(text)


def talk(text: str) -> None:
    """Writes to stderr. Commands in the text get the store that this command got. A failure to
    write is ignored."""
    with suppress(OSError):
        click.echo(errors.insert_store(text, given_store()), err=True)


def given_store() -> str:
    """What --store of this command says, as hints show it; "" without it."""
    return "" if _named_store is None else rendering.store_option(_named_store)


def forget_options() -> None:
    """Called when another command begins."""
    global _named_store, _is_quiet
    _named_store, _is_quiet = None, False


def confirm(question: str) -> None:
    """Exits with 1 if the answer is no."""
    if not click.confirm(question, err=True):
        talk("Not done.")
        click.get_current_context().exit(1)


def ask(question: str) -> str:
    """The line that is typed."""
    text = click.prompt(question, err=True, default="", show_default=False)
    assert isinstance(text, str)
    return text.strip()


def new_passphrase() -> str:
    """Asks for the passphrase twice on a terminal; otherwise reads standard input, which must be
    one line. InvalidInputError: it has further lines."""
    if sys.stdin.isatty():
        text = click.prompt("New passphrase", hide_input=True, confirmation_prompt=True, err=True)
        assert isinstance(text, str)
    else:
        text = sys.stdin.read().rstrip("\r\n")
        if "\n" in text:
            raise InvalidInputError(
                f"standard input has {text.count(chr(10)) + 1} lines, and a passphrase is one",
                hint="Write the passphrase alone to standard input. A key of several lines is given as a file: "
                f"COWFS_ENCRYPTION_KEY_FILE, {Command('key', 'add', '--key-file')}, storage.KeyFile(path).",
            )
    if not text:
        raise InvalidInputError(
            "there is no passphrase",
            hint="Write it to standard input, or set COWFS_ENCRYPTION_PASSPHRASE, COWFS_ENCRYPTION_KEY_FILE or "
            "COWFS_ENCRYPTION_KEY_COMMAND.",
        )
    return text


def progress_option(function: F) -> F:
    """--progress, for commands that may take long; its value is passed to `ProgressLine`."""
    return click.option(
        "--progress",
        "progress_style",
        type=click.Choice(["auto", "json", "none"]),
        default="auto",
        help="On stderr: a bar on a terminal (auto), a JSON document a line, or nothing.",
    )(function)


@contextmanager
def if_interrupted(hint: str) -> Iterator[None]:
    """Tells the user what happens to the work of a block that a signal ends. The block must not
    access a mount: if its daemon hangs, a signal with a handler cannot end the wait."""
    tidy_up_when_terminated()
    try:
        yield
    except (KeyboardInterrupt, Terminated) as error:
        error.add_note(errors.insert_store(hint, given_store()))
        raise


RESUMES = "What was done is kept: the same command goes on where this one has ended."


@contextmanager
def progress(style: str) -> Iterator[ProgressLine | None]:
    """The listener of a block's progress; None: progress is not shown."""
    line = ProgressLine(style)
    try:
        yield line if line.is_shown else None
    finally:
        line.close()


class ProgressLine:
    """Shows how far a commit or a mount is, on stderr. Called from any one thread.

    auto    a bar on a terminal, once it has taken BAR_AFTER_S; nothing anywhere else
    json    {"format": 1, "progress": {…}} a line, where a stage begins and ends and, in between, where it is due
    """

    def __init__(self, style: str = "auto") -> None:
        style = "none" if _is_quiet else style
        self._is_json = style == "json"
        self.is_shown = self._is_json or (style == "auto" and sys.stderr.isatty())
        self._bar: RichProgress | None = None
        self._text = ProgressText()
        self._last: Progress | None = None
        self._is_last_said = True

    def __call__(self, progress: Progress) -> None:
        if self._is_json:
            self._say(progress)
        elif self.is_shown and self._text.elapsed_s >= BAR_AFTER_S:
            if self._bar is None:
                self._bar = _start_bar()
            done, total = progress.done_bytes, progress.total_bytes
            if not total:
                done, total = progress.done, progress.total
            said = self._text.describe(progress)
            self._bar.update(self._bar.task_ids[0], completed=done, total=total or None, said=said, refresh=True)

    def close(self) -> None:
        self._say_last()
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def _say(self, progress: Progress) -> None:
        if self._last is not None and self._last.stage != progress.stage:
            self._say_last()
        self._last, self._is_last_said = progress, False
        if self._text.is_due(progress):
            self._say_last()

    def _say_last(self) -> None:
        if self._last is not None and not self._is_last_said:
            talk(document({"progress": self._last}))
            self._is_last_said = True


def _start_bar() -> RichProgress:
    """The bar is removed from the terminal when it is stopped. rich takes time to load, so short
    commands avoid it."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    columns = BarColumn(bar_width=BAR_WIDTH), TextColumn("{task.fields[said]}", markup=False)
    console = Console(file=sys.stderr)
    bar = Progress(
        *columns, console=console, transient=True, auto_refresh=False, redirect_stdout=False, redirect_stderr=False
    )
    bar.add_task("", total=None, said="")
    bar.start()
    console.show_cursor(True)  # a killed process leaves the terminal in its last state
    return bar


def into_mount(path: str) -> str:
    """The message about a transfer to a volume that is mounted here."""
    return f"; into the mount {printable(path)}, whose commit publishes it: {Command('commit', printable(path))}"


def in_mount(path: str) -> str:
    """The message about changes of a volume that is mounted here."""
    return f", in the mount {printable(path)}, whose commit publishes that: {Command('commit', printable(path))}"


def transferred(verb: str, report: TransferReport, *, removed: str = "removed") -> str:
    """The result of an upload, a download, an import or an export."""
    files = f"{report.files - report.unchanged} of {count(report.files, 'file')}"
    said = f"{verb} {files}, {format_size(report.bytes)} in all"
    if report.removed:
        said += f"; {removed} {report.removed}"
    if report.made_store_url is not None:
        said += f", into a new store at {printable(report.made_store_url)}"
    return said + left_out(report.skipped, report.skipped_paths)


def left_out(count: int, first: Sequence[str]) -> str:
    """The message about special files; first: the first of their paths."""
    if not count:
        return ""
    more = ", …" if count > len(first) else ""
    return f"; left out what is no file, directory or link: {count} ({printable(', '.join(first))}{more})"


def name(text: str) -> str:
    """A name or path in a result: byte for byte for a program, printable on a terminal."""
    return printable(text) if sys.stdout.isatty() else text


def outcome(mount: Outcome) -> dict[str, Any]:
    """The result for a declared mount, for JSON."""
    error = errors.to_record(mount.error) if mount.error is not None else None
    return {
        "state": mount.state,
        "volume": mount.volume,
        "mount_path": mount.mount_path,
        "has_uncommitted": mount.has_uncommitted,
        "error": error,
    }


def outcome_line(mount: Outcome) -> str:
    """The same for people."""
    said = {
        "mounted": "Mounted {} at {}",
        "found": "{} is mounted at {} already",
        "skipped": "Skipped {} at {}",
        "unmounted": "Unmounted {} from {}",
        "gone": "{} was not mounted at {} any more",
        "failed": "Could not unmount {} from {}",
        "forgotten": "Forgot {} ({}): another volume has its name in the store now, which was not touched",
    }[mount.state].format(mount.volume, printable(mount.mount_path))
    if mount.error is not None:
        return f"{said}: {printable(mount.error.message)}"
    return f"{said}; uncommitted work is kept" if mount.has_uncommitted else said
