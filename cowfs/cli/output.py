"""How commands speak: results on stdout, as text or as one JSON document; everything else on
stderr.

Also the options every command has, and how times and tables are shown to people.
"""

from __future__ import annotations

import dataclasses
import errno
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar

import click

from cowfs import clock, errors, sizes
from cowfs.cli import completing
from cowfs.cli.start import Terminated, tidy_up_when_terminated
from cowfs.errors import CowfsError, InvalidInputError

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress

    from cowfs.api.declared.mounting import Outcome
    from cowfs.blocking import Progress, TransferReport

RATE_AFTER_S = 1.0
INTERVAL_S = 0.2
BAR_AFTER_S = 0.3
BAR_WIDTH = 24
JSON_FORMAT = 1

F = TypeVar("F", bound=Callable[..., Any])

_named_store: str | None = None  # by --store


def common_options(function: F) -> F:
    """--store and --json."""
    return store_option(json_option(function))


def store_option(function: F) -> F:
    return click.option(
        "--store",
        metavar="URL",
        callback=_named,
        shell_complete=completing.directories,
        help="The store; default: COWFS_STORE, or a directory of yours.",
    )(function)


def json_option(function: F) -> F:
    return click.option("--json", "as_json", is_flag=True, help="Print one JSON document on stdout.")(function)


def _named(context: click.Context, parameter: click.Parameter, url: str | None) -> str | None:
    """A store that the user names is the user's own (`store.trust`); one that ends with the command
    is of no use."""
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
        from cowfs.api import stores

        stores.name(url)
        _named_store = url
    return url


def emit(as_json: bool, record: dict[str, Any], text: str) -> None:
    """The result of a command: `record` with --json, else `text` (nothing when it is empty)."""
    with to_stdout():
        if as_json:
            click.echo(document(record))
        elif text:
            write(f"{text}\n")


def write(text: str) -> None:
    """To stdout. A program that reads it gets every byte of it: click would take colours out."""
    click.echo(text if sys.stdout.isatty() else os.fsencode(text), nl=False)


@contextmanager
def to_stdout() -> Iterator[None]:
    """For what writes to standard output: what fails there is no failure of cowfs. A broken pipe
    stays one: whoever read has seen enough."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise of_stdout(error) from error


def of_stdout(error: OSError) -> CowfsError:
    """The error for standard output that cannot be written."""
    if error.errno == errno.EBADF:
        hint = "The caller has closed it. Give it a file, or /dev/null."
    else:
        hint = "Look at where the output of this command goes: a full disk, or a device?"
    message = f"standard output cannot be written: {error.strerror}"
    return CowfsError(message, hint=hint, details={"stream": "stdout"})


def document(record: dict[str, Any]) -> str:
    """The one JSON document of a command (docs/reference/json.md). A record with a format of its
    own stays as it is."""
    whole = record if "format" in record else {"format": JSON_FORMAT, **_with_text_times(record)}
    return json.dumps(whole, default=str)


def _with_text_times(value: Any) -> Any:
    """Nanoseconds become strings of digits: most readers of JSON round integers of that size."""
    if isinstance(value, Mapping):
        is_time = {name: name.endswith("_ns") and isinstance(each, int) for name, each in value.items()}
        return {name: str(each) if is_time[name] else _with_text_times(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_with_text_times(each) for each in value]
    return value


def say(as_json: bool, text: str) -> None:
    """A word to a person, on stderr; programs that asked for JSON need none."""
    if not as_json:
        talk(about_store(text))


def talk(text: str) -> None:
    """To stderr. Nothing fails because nobody can be told."""
    with suppress(OSError):
        click.echo(text, err=True)


def about_store(text: str) -> str:
    """With --store in the commands that it shows, if this one was given it."""
    if _named_store is None:
        return text
    from cowfs.api import hints

    return hints.about(_named_store, text)


def forget_store() -> None:
    """Another command begins."""
    global _named_store
    _named_store = None


def confirm(question: str) -> None:
    """Ends the command with 1 if the answer is no."""
    if not click.confirm(question, err=True):
        talk("Not done.")
        click.get_current_context().exit(1)


def new_passphrase() -> str:
    """Asked for twice on a terminal; else standard input to its end, one line. InvalidInputError:
    it has others."""
    if sys.stdin.isatty():
        text = click.prompt("New passphrase", hide_input=True, confirmation_prompt=True, err=True)
        assert isinstance(text, str)
    else:
        text = sys.stdin.read().rstrip("\r\n")
        if "\n" in text:
            raise InvalidInputError(
                f"standard input has {text.count(chr(10)) + 1} lines, and a passphrase is one",
                hint="Write the passphrase alone to standard input. A key of several lines is given as a file: "
                "COWFS_ENCRYPTION_KEY_FILE, `cowfs key add --key-file`, storage.KeyFile(path).",
            )
    if not text:
        raise InvalidInputError(
            "there is no passphrase",
            hint="Write it to standard input, or set COWFS_ENCRYPTION_PASSPHRASE, COWFS_ENCRYPTION_KEY_FILE or "
            "COWFS_ENCRYPTION_KEY_COMMAND.",
        )
    return text


def progress_option(function: F) -> F:
    """--progress, for commands that may take long; its value is for `ProgressLine`."""
    return click.option(
        "--progress",
        "progress_style",
        type=click.Choice(["auto", "json", "none"]),
        default="auto",
        help="On stderr: a bar on a terminal (auto), a JSON document a line, or nothing.",
    )(function)


@contextmanager
def if_interrupted(hint: str) -> Iterator[None]:
    """What becomes of the work of a block that a signal ends, for who has sent it. The block must
    not look into a mount: in one whose daemon hangs, a signal that has a handler ends nothing."""
    tidy_up_when_terminated()
    try:
        yield
    except (KeyboardInterrupt, Terminated) as error:
        error.add_note(hint)
        raise


RESUMES = "What was done is kept: the same command goes on where this one has ended."


@contextmanager
def progress(style: str) -> Iterator[ProgressLine | None]:
    """What hears of a block's progress; None: nobody looks."""
    line = ProgressLine(style)
    try:
        yield line if line.is_shown else None
    finally:
        line.close()


class ProgressLine:
    """Shows how far a commit or a mount is, on stderr. Called from any one thread.

    auto    a bar on a terminal, once it has taken BAR_AFTER_S; nothing anywhere else
    json    {"format": 1, "progress": {…}} a line, where a stage begins and ends and every INTERVAL_S in between
    """

    def __init__(self, style: str = "auto") -> None:
        self._is_json = style == "json"
        self.is_shown = self._is_json or (style == "auto" and sys.stderr.isatty())
        self._bar: RichProgress | None = None
        self._since_s = clock.monotonic_s()
        self._said_s = float("-inf")
        self._last: Progress | None = None
        self._is_last_said = True

    def __call__(self, progress: Progress) -> None:
        if self._is_json:
            self._say(progress)
        elif self.is_shown and (elapsed_s := clock.monotonic_s() - self._since_s) >= BAR_AFTER_S:
            if self._bar is None:
                self._bar = _started_bar()
            done, total = progress.done_bytes, progress.total_bytes
            if not total:
                done, total = progress.done, progress.total
            said = described(progress, elapsed_s)
            self._bar.update(self._bar.task_ids[0], completed=done, total=total or None, said=said, refresh=True)

    def close(self) -> None:
        self._say_last()
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def _say(self, progress: Progress) -> None:
        now_s = clock.monotonic_s()
        is_new_stage = self._last is None or self._last.stage != progress.stage
        if is_new_stage:
            self._say_last()
        self._last, self._is_last_said = progress, False
        if is_new_stage or now_s - self._said_s >= INTERVAL_S:
            self._said_s = now_s
            self._say_last()

    def _say_last(self) -> None:
        if self._last is not None and not self._is_last_said:
            talk(document({"progress": dataclasses.asdict(self._last)}))
            self._is_last_said = True


def _started_bar() -> RichProgress:
    """It is taken off the terminal when it is stopped. rich takes time to load, so short commands
    do without."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    columns = BarColumn(bar_width=BAR_WIDTH), TextColumn("{task.fields[said]}", markup=False)
    console = Console(file=sys.stderr)
    bar = Progress(
        *columns, console=console, transient=True, auto_refresh=False, redirect_stdout=False, redirect_stderr=False
    )
    bar.add_task("", total=None, said="")
    bar.start()
    console.show_cursor(True)  # a process that is killed leaves the terminal as it was
    return bar


def described(progress: Progress, elapsed_s: float) -> str:
    """files 1,200 of 5,000, 1.2 GiB of 4.0 GiB, 61.0 MiB/s, 47 s left"""
    parts = [progress.stage + (f" {progress.done:,} of {progress.total:,}" if progress.total else "")]
    if progress.total_bytes:
        parts.append(f"{sizes.shown(progress.done_bytes)} of {sizes.shown(progress.total_bytes)}")
    if progress.done_bytes and elapsed_s >= RATE_AFTER_S:
        rate = progress.done_bytes / elapsed_s
        left_s = (progress.total_bytes - progress.done_bytes) / rate
        parts += [
            f"{sizes.shown(int(rate))}/s",
            f"{left_s:,.0f} s left" if left_s < 120 else f"{left_s / 60:,.0f} min left",
        ]
    return ", ".join(parts)


def time(time_ns: int, *, to_the_second: bool = False) -> str:
    """Local time, to the minute."""
    form = "%Y-%m-%d %H:%M:%S" if to_the_second else "%Y-%m-%d %H:%M"
    return datetime.fromtimestamp(time_ns / 1e9, UTC).astimezone().strftime(form)


def count(number: int, what: str) -> str:
    """As people write it: 1 file, 2 files, 3 directories."""
    several = f"{what[:-1]}ies" if what.endswith("y") else f"{what}s"
    return f"{number} {what if number == 1 else several}"


def into_mount(path: str) -> str:
    """Of a transfer to a volume that is mounted here."""
    return f"; into the mount {printable(path)}, whose commit publishes it: `cowfs commit {printable(path)}`"


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns under a header; the last one is not padded."""
    widths = [max(len(row[column]) for row in [header, *rows]) for column in range(len(header))]
    lines = []
    for row in [header, *rows]:
        cells = [cell.ljust(width) for cell, width in zip(row[:-1], widths, strict=False)]
        line = "  ".join([*cells, row[-1]])
        lines.append(line if row[-1] else line.rstrip())  # a name may end with a space
    return "\n".join(lines)


def transferred(verb: str, report: TransferReport, *, removed: str = "removed") -> str:
    """What an upload, a download, an import or an export has done."""
    files = f"{report.files - report.unchanged} of {count(report.files, 'file')}"
    said = f"{verb} {files}, {sizes.shown(report.bytes)} in all"
    if report.removed:
        said += f"; {removed} {report.removed}"
    return said + left_out(report.skipped, report.skipped_paths)


def left_out(count: int, first: Sequence[str]) -> str:
    """What is said of special files; first: of their paths."""
    if not count:
        return ""
    more = ", …" if count > len(first) else ""
    return f"; left out what is no file, directory or link: {count} ({printable(', '.join(first))}{more})"


def printable(text: str) -> str:
    """Text from a store without control characters: a message must not drive the terminal."""
    return "".join(character if character.isprintable() else " " for character in text)


def name(text: str) -> str:
    """A name or path in a result: byte for byte for a program, printable on a terminal."""
    return printable(text) if sys.stdout.isatty() else text


def outcome(mount: Outcome) -> dict[str, Any]:
    """What became of a declared mount, for JSON."""
    error = errors.to_record(mount.error) if mount.error is not None else None
    return {
        "what": mount.what,
        "volume": mount.volume,
        "mount_path": mount.mount_path,
        "uncommitted": mount.uncommitted,
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
    }[mount.what].format(mount.volume, printable(mount.mount_path))
    if mount.error is not None:
        return f"{said}: {printable(mount.error.message)}"
    return f"{said}; uncommitted work is kept" if mount.uncommitted else said
