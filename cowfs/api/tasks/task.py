"""The decorator `cowfs.task`. It stands beneath the decorators of task systems:

@flyte_env.task
@cowfs.task(volumes=["base:/data", "results::fork"])
async def train(...): ...
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Coroutine, Sequence
from functools import wraps
from typing import Any, ParamSpec, TypeVar, get_args, overload

import anyio

from cowfs.api import arguments
from cowfs.api.mounts import process_binding
from cowfs.api.tasks import stopping
from cowfs.api.tasks.arguments import look_up
from cowfs.api.tasks.call import Call, Plan, Policy, Returns
from cowfs.api.tasks.scope import Scope, enter, get_running
from cowfs.api.tasks.stopping import Stop, is_or_has
from cowfs.api.tasks.task_volume import TaskVolume, parse_all
from cowfs.api.twins.threads import in_any_case, in_thread
from cowfs.api.twins.twin import as_async
from cowfs.base.errors import InvalidInputError, NotFoundError

P = ParamSpec("P")
R = TypeVar("R")


@overload
def task(function: Callable[P, R]) -> Callable[P, R]: ...
@overload
def task(
    function: None = None,
    *,
    volumes: Sequence[str | TaskVolume] = (),
    on_error: Policy = "keep",
    on_stop: Policy | None = None,
    returns: Returns = "version",
    wait: float | str | None = None,
) -> Callable[[Callable[P, R]], Callable[P, R]]: ...
def task(
    function: Callable[..., Any] | None = None,
    *,
    volumes: Sequence[str | TaskVolume] = (),
    on_error: Policy = "keep",
    on_stop: Policy | None = None,
    returns: Returns = "version",
    wait: float | str | None = None,
) -> Any:
    """Mounts volumes around each call of a function, and publishes what it writes.

    volumes: each as SOURCE[:PATH][:MODE] or a `TaskVolume`; `current(SOURCE)` is one in the body,
    the async object in an async function. Afterwards writers in the result, also in containers and
    records, are finalized, and the result has their versions instead; then the other listed
    volumes that can be written to are finalized; then everything that the list or the body has
    mounted is unmounted. Other writers that the body mounted are not published. A text that is
    given for a parameter annotated as a volume is looked up; a volume becomes the async object in
    an async function that is annotated so, and the blocking one in a blocking function.

    on_error: after an exception nothing is published. "keep" keeps uncommitted work on this
    machine; a note of the exception and the log say how to continue. "commit" publishes it, with
    the label `cowfs.error`. "discard" drops it, unless the volume had uncommitted work before. If
    the process is killed, its mounts are left by on_error, too. on_stop: the same after a
    cancellation, Ctrl-C and SIGTERM; None: as on_error.

    returns: "version", or "locator" for texts in place of volumes. wait: how long to wait for a
    volume that another writer has, in seconds or as "150s"; None: LeaseHeldError at once. A
    volume with mode rw is mounted for one call alone.

    Threads that the body starts by itself do not belong to the call. InvalidInputError, when the
    function is decorated: something in the list is not understood.
    """
    if function is not None and not callable(function):
        raise InvalidInputError(f"{function!r} is not a function", hint="Name the list: @cowfs.task(volumes=[...]).")
    listed = parse_all(volumes)
    on_stop = on_error if on_stop is None else on_stop
    arguments.one_of("on_error", on_error, get_args(Policy))
    arguments.one_of("on_stop", on_stop, get_args(Policy))
    arguments.one_of("returns", returns, get_args(Returns))
    arguments.wait_s(wait)

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise InvalidInputError(
                f"{function!r} cannot be a task", hint="Decorate a function that returns, or an async function."
            )
        name = getattr(function, "__name__", "task")
        plan = Plan(listed, name, on_error, on_stop, returns, wait)
        return (_async if inspect.iscoroutinefunction(function) else _blocking)(function, plan)

    return decorate if function is None else decorate(function)


def _blocking(function: Callable[..., Any], plan: Plan) -> Callable[..., Any]:
    @wraps(function)
    def call(*given: Any, **named: Any) -> Any:
        with (
            Stop(stopping.exit_now) as stop,
            enter(Scope(may_discard=plan.may_discard)) as scope,
            process_binding.bind(plan.on_error),
        ):
            volumes = Call(plan, scope)
            try:
                with stop.interrupts():
                    given, named = look_up(function, given, named)
                    volumes.open()
                    result = function(*given, **named)
                volumes.require_parent()
            except BaseException as error:
                if volumes.is_in_child:
                    raise
                is_stop = stop.was_received or is_or_has(error, KeyboardInterrupt)
                volumes.leave(error, plan.on_stop if is_stop else plan.on_error)
                raise
            result = volumes.finish(result)
            stop.require_none()
            return result

    return call


def _async(function: Callable[..., Coroutine[Any, Any, Any]], plan: Plan) -> Callable[..., Any]:
    @wraps(function)
    async def call(*given: Any, **named: Any) -> Any:
        with (
            anyio.CancelScope() as cancel,
            Stop(stopping.make_canceller(cancel)) as stop,
            enter(Scope(is_async=True, may_discard=plan.may_discard)) as scope,
            process_binding.bind(plan.on_error),
        ):
            volumes = Call(plan, scope)
            try:
                with stop.interrupts():
                    given, named = await in_thread(look_up, function, given, named)
                    await in_thread(volumes.open)
                    result = await function(*given, **named)
                volumes.require_parent()
            except BaseException as error:
                if volumes.is_in_child:
                    raise
                is_stop = stop.was_received or is_or_has(error, (anyio.get_cancelled_exc_class(), KeyboardInterrupt))
                await in_any_case(volumes.leave, error, plan.on_stop if is_stop else plan.on_error)
                raise
            result = await in_any_case(volumes.finish, result)
        stop.require_none()
        return result

    return call


def current(source_or_path: str | os.PathLike[str]) -> Any:
    """A volume of the running task's list, by its source, name or path: an RWVolume for rw, fork
    and shared, an ROVolume for ro and scratch; in an async function the async object.

    NotFoundError: the task has none such, or no task is running here. InvalidInputError: several
    fit.
    """
    scope = get_running()
    if scope is None:
        raise NotFoundError(
            "no task is running here",
            hint="Call it in a function below @cowfs.task. A thread that the function started by itself does not belong to "
            "it, unless it runs in a copy of its context (contextvars.copy_context().run).",
        )
    volume = scope.find(source_or_path)
    return as_async(volume) if scope.is_async else volume
