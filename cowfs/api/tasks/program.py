"""Runs a program with volumes around it: `cowfs exec`.

    1  signals have handlers        a stop from here on is noticed: the program does not start any more
    2  volumes are mounted          as for `cowfs.task`
    3  the program runs             `supervising`: signals are forwarded, orphans reaped, the terminal is the program's
    4  volumes are published        after success; SIGTERM does not interrupt that, Ctrl-C does, and keeps the work
       or left                      by on_failure and on_stop

The program's own failures are no errors: they are in the result. Errors are those of cowfs.
"""

from __future__ import annotations

import json
import os
import stat
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypedDict, get_args

from cowfs.api.tasks.signals import NOT_STARTED, STOPS, Signals, Stopped
from cowfs.api.versions.labels import Labels
from cowfs.base.errors import AccessDeniedError, InvalidInputError, from_local_disk
from cowfs.base.short_repr import has_card, short_repr

if TYPE_CHECKING:
    from cowfs.api.tasks.call import Call, Policy
    from cowfs.api.tasks.scope import Scope
    from cowfs.api.tasks.supervising import Ended
    from cowfs.api.tasks.task_volume import TaskVolume

OWN_FAILURE = 125
"""The exit code of a program that succeeded, if publishing failed."""
Outcome = Literal["committed", "kept", "discarded", "not started"]
_OUTCOMES: dict[str, Outcome] = {"commit": "committed", "keep": "kept", "discard": "discarded"}


@has_card
@dataclass(frozen=True)
class ProgramVolume:
    """A volume that a program had. mount_path: where it was mounted. locator: of the version that
    was published or read; None: the work was not published. is_new: the program has changed it."""

    source: str
    mount_path: str
    volume_mode: str
    locator: str | None
    is_new: bool


@short_repr
@dataclass(frozen=True)
class ProgramRun:
    """The end of a program. exit_code: as a shell counts it: 128 + N after signal N, 126 and 127 if
    it could not be started. is_stopped: it was asked to end. problem: why it was not started, or
    was killed; else empty. outcome: the fate of its changes."""

    exit_code: int
    is_stopped: bool
    problem: str
    outcome: Outcome
    volumes: tuple[ProgramVolume, ...]


class ProgramFailed(Exception):
    """The program ended with another exit code than 0. Names the reason in a version's label."""


class ProgramStopped(Exception):
    """The program was asked to end."""


class Said(TypedDict):
    """What the caller says about the versions."""

    message: str
    author: str | None
    labels: Labels | None


class _Options(NamedTuple):
    """Those of `run_program`, checked."""

    on_success: Policy
    on_failure: Policy
    on_stop: Policy
    stop_timeout_s: float
    locators: Path | None
    stdout: int | None


def run_program(
    words: Sequence[str],
    volumes: Sequence[str | TaskVolume] = (),
    *,
    on_success: Literal["commit", "keep"] = "commit",
    on_failure: Policy = "keep",
    on_stop: Policy | None = None,
    stop_timeout: float | str = "10s",
    wait: float | str | None = None,
    locators: str | os.PathLike[str] | None = None,
    message: str = "",
    author: str | None = None,
    labels: Labels | None = None,
    stdout: int | None = None,
    started: Callable[[dict[str, str]], None] | None = None,
) -> ProgramRun:
    """Mounts volumes, runs a program, publishes its changes and unmounts. It blocks, and needs the
    main thread, since it handles this process's signals meanwhile.

    words: the program and its arguments. volumes and wait: as for `task`. It is a failure if the
    program ends with another exit code than 0, and a stop if it gets SIGTERM by way of this process
    or ends because of SIGINT, SIGTERM, SIGHUP or SIGQUIT. on_success, on_failure, on_stop: "keep"
    keeps uncommitted work on this machine, and the log says how to continue; "commit" publishes it;
    "discard" drops it. on_stop None: as on_failure. stop_timeout: the time from SIGTERM until the
    program is killed. locators: a file that gets {path or source: locator} as JSON after success.
    message, author, labels: of the versions that are published; a volume that has not changed gets
    none. stdout: a descriptor for the program's output. started: called before the program starts
    with {source: path} of the volumes for which no path was given.

    Children that this process has not started through cowfs are reaped, so call it in a process
    that is there for the program.
    """
    with Signals() as signals:  # before modules are loaded that take time
        from cowfs.api import arguments
        from cowfs.api.mounts import process_binding
        from cowfs.api.tasks.call import Call, Plan, Policy
        from cowfs.api.tasks.scope import Scope, enter
        from cowfs.api.tasks.task_volume import parse_all

        on_stop = on_failure if on_stop is None else on_stop
        arguments.one_of("on_success", on_success, ("commit", "keep"))
        arguments.one_of("on_failure", on_failure, get_args(Policy))
        arguments.one_of("on_stop", on_stop, get_args(Policy))
        if not words:
            raise InvalidInputError("there is no program to run", hint="Name one, with its arguments.")
        listed = parse_all(volumes)
        file = _require_writable(locators, listed) if locators is not None else None
        arguments.wait_s(wait)
        stop_timeout_s = arguments.seconds("stop_timeout", stop_timeout)
        options = _Options(on_success, on_failure, on_stop, stop_timeout_s, file, stdout)
        may_discard = "discard" in (on_failure, on_stop)
        said = Said(message=message, author=author, labels=labels)
        with enter(Scope(may_discard=may_discard)) as scope, process_binding.bind(on_failure, **said):
            call = Call(Plan(listed, os.path.basename(words[0]), wait=wait, **said), scope)
            try:
                paths = _open(call, signals, started)
            except Stopped as error:
                return ProgramRun(error.exit_code, True, NOT_STARTED, "not started", ())
            return _run(words, options, call, scope, paths, signals)


def _open(call: Call, signals: Signals, started: Callable[[dict[str, str]], None] | None) -> list[str]:
    """The paths of the listed volumes. After an error none is mounted."""
    try:
        with signals.raising(STOPS):
            call.open()
        listed = call.scope.listed
        if started is not None:
            started({spec.source: str(volume.path) for spec, volume in listed if spec.path is None})
        return [str(volume.path) for _, volume in listed]
    except BaseException as error:
        call.leave(error, "keep")
        raise


def _run(
    words: Sequence[str], options: _Options, call: Call, scope: Scope, paths: list[str], signals: Signals
) -> ProgramRun:
    from cowfs.api.tasks import supervising

    try:
        ended = supervising.run(words, signals, stop_timeout_s=options.stop_timeout_s, stdout=options.stdout)
    except BaseException as error:
        call.leave(error, "keep")
        raise
    if ended.exit_code == 0 and not ended.is_stop and options.on_success == "commit":
        return _publish(ended, options, call, scope, paths, signals)
    policy = options.on_stop if ended.is_stop else options.on_failure if ended.exit_code else options.on_success
    outcome = _OUTCOMES[policy]
    if not ended.is_started:
        policy, outcome = "keep", "not started"
    kind = ProgramStopped if ended.is_stop else ProgramFailed
    call.leave(kind(f"exit code {ended.exit_code}"), policy)
    code, problem = ended.exit_code, ended.problem
    if policy == "commit" and not all(volume.is_over for _, volume in scope.listed if _is_writer(volume)):
        code, outcome = code or OWN_FAILURE, "kept"
        problem = f"{problem}; " * bool(problem) + "its changes could not be published, and are kept"
    left = [call.version_after(volume) for _, volume in scope.listed]
    return ProgramRun(code, ended.is_stop, problem, outcome, _describe(scope, paths, left))


def _publish(
    ended: Ended, options: _Options, call: Call, scope: Scope, paths: list[str], signals: Signals
) -> ProgramRun:
    try:
        with signals.raising(STOPS[:1]):
            versions = call.finish([volume for _, volume in scope.listed])
    except Stopped as error:
        return ProgramRun(error.exit_code, True, "interrupted while it was published", "kept", ())
    found = [(version.locator, version.is_new) for version in versions]
    described = _describe(scope, paths, found)
    if options.locators is not None:
        pairs = zip(scope.listed, found, strict=True)
        _write(options.locators, {spec.path or spec.source: locator for (spec, _), (locator, _) in pairs})
    return ProgramRun(0, False, ended.problem, "committed", described)


def _is_writer(volume: Any) -> bool:
    """This module does not know the classes (tests/base/test_layout.py)."""
    return hasattr(volume, "finalize")


def _describe(scope: Scope, paths: list[str], found: list[tuple[str | None, bool]]) -> tuple[ProgramVolume, ...]:
    return tuple(
        ProgramVolume(spec.source, path, spec.mode, locator, is_new and spec.mode not in ("ro", "scratch"))
        for (spec, _), path, (locator, is_new) in zip(scope.listed, paths, found, strict=True)
    )


# -- the file of locators


def _require_writable(file: str | os.PathLike[str], listed: Sequence[TaskVolume]) -> Path:
    """Refused before the program runs, which may take long."""
    keys = [spec.path or spec.source for spec in listed]
    if twice := next((key for key in keys if keys.count(key) > 1), None):
        raise InvalidInputError(
            f"the file of locators would have {twice!r} twice", hint="Give these volumes paths: SOURCE:PATH[:MODE]."
        )
    path = Path(os.path.abspath(file))
    if os.path.lexists(path) and (not stat.S_ISREG(os.lstat(path).st_mode) or os.path.ismount(path)):
        raise InvalidInputError(
            f"the file of locators {path} is no plain file, and would be replaced by one",
            hint="Name a new file, or a plain one.",
        )
    if not os.access(path.parent, os.W_OK | os.X_OK) or path.is_dir():
        raise AccessDeniedError(
            f"the file of locators {path} cannot be written", hint="Name a file in a directory that you may write to."
        )
    return path


def _write(path: Path, locators: dict[str, str | None]) -> None:
    try:
        descriptor, written = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
        try:
            with open(descriptor, "w", encoding="utf-8") as file:
                json.dump(locators, file, indent=2)
                file.write("\n")
                file.flush()
                os.fchmod(descriptor, 0o644)
                os.fsync(descriptor)
            os.replace(written, path)
        except BaseException:
            with suppress(OSError):
                os.unlink(written)
            raise
    except OSError as error:
        raise from_local_disk(error, f"the locators {json.dumps(locators)} cannot be written to {path}") from error
