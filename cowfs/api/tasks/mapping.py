"""`cowfs.map`: a function for each shard, each in a fork of its own, and one merge.

    driver     submits run_shard for each shard, waits for all
    worker     run_shard: a task (`cowfs.task`) with a new fork of the version; the answer is a locator
    driver     merges the versions answered; deletes every fork of this map, by the prefix of the names

A shard that is run again (its worker was killed, or the worker with its answer) gets a new fork, so
no attempt sees what another one wrote. Only the fork that was answered is merged. The killed
process's mount ends with it and drops its work (`mounts.process_binding`).
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol, cast, get_args

from cowfs.api import arguments, hints, names, ro_volume, stores
from cowfs.api.mounts import abandoned
from cowfs.api.ro_volume import ROVolume
from cowfs.api.rw_volume import RWVolume
from cowfs.api.tasks.call import Policy
from cowfs.api.tasks.task import current, task
from cowfs.api.tasks.task_volume import TaskVolume
from cowfs.api.twins.one_type import unwrap
from cowfs.api.twins.twin import as_async
from cowfs.api.versions import deleting
from cowfs.api.volume import Volume
from cowfs.base import clock, log
from cowfs.base.errors import CowfsError, InvalidInputError, NotFoundError
from cowfs.base.hints import Command
from cowfs.version.names import volumes

if TYPE_CHECKING:
    from cowfs.api.versions.merge_report import Strategy

_NUMBER_LENGTH = 24
"""Of what follows the base's and the function's name: the run, the shard and a suffix if taken."""
_PAGE = 256
_log = log.get("task")


class Executor(Protocol):
    """`concurrent.futures.Executor`, a client of Dask, or `cowfs.integrations.ray.Tasks`."""

    def submit(self, function: Callable[..., Any], /, *given: Any) -> Any: ...


def map(  # this module does not use the builtin
    function: Callable[[RWVolume, Any], object],
    version: ROVolume | str,
    shards: Iterable[Any],
    *,
    executor: Executor | None = None,
    into: str | None = None,
    strategy: Strategy = None,
    message: str = "",
    on_error: Policy = "discard",
) -> ROVolume:
    """Calls `function(volume, shard)` for each shard, each time with a new fork of the version,
    mounted and blocking, and merges all forks in one version, which is returned.

        version = cowfs.map(resize, "photos", range(8), executor=dask_client)

    version: an ROVolume, also the async one, or what `Volume.version` takes. executor: has
    `submit`, as those of `concurrent.futures` and a Dask client have; None: threads of this
    process. Workers in other processes get a pickled function, and find the store by a locator.
    into: the volume that the forks are merged into, made from the version if it is missing; None:
    the version's own. strategy: for conflicts, as for `RWVolume.merge`. message: of the merge.

    A shard that is run again starts from the version in a new fork. on_error: what becomes of the
    work of an attempt that fails or is killed, as for `task`.

    If a shard fails, its error is raised after all shards have ended, and nothing is merged. A note
    names the forks that have the work of the others. They stay, also after a conflict of the merge.
    After the merge the forks are deleted.
    """
    called: object = function
    if not callable(called) or inspect.iscoroutinefunction(called):
        raise InvalidInputError(f"{function!r} cannot be mapped", hint="Give a function(volume, shard), not async.")
    arguments.one_of("on_error", on_error, get_args(Policy))
    base = Volume.version(version) if isinstance(version, str) else cast("ROVolume", unwrap(version))
    merged = _Map(function, base, into, on_error).run(shards, executor, strategy, message)
    return merged if version is base or isinstance(version, str) else cast("ROVolume", as_async(merged))


def run_shard(function: Callable[..., object], base: str, fork: str, on_error: Policy, shard: Any) -> str:
    """In the worker. Returns the locator of what the fork was committed as."""

    @task(volumes=[TaskVolume(base, mode="fork", fork_name=fork)], on_error=on_error, returns="locator")
    def call() -> Any:
        volume = current(base)
        function(volume, shard)
        return volume

    return cast("str", call())


class _Map:
    def __init__(self, function: Callable[..., object], base: ROVolume, into: str | None, on_error: Policy) -> None:
        self._function = function
        self._base = base
        self._into = into or base.name
        self._on_error = on_error
        called = re.sub(r"[^A-Za-z0-9]+", "-", getattr(function, "__name__", "map")).strip("-")
        start = f"{base.name}-{called}"[: names.LONGEST - _NUMBER_LENGTH].rstrip("-")
        self._prefix = f"{start}-{clock.random_bytes(4).hex()}-"
        """Of the names of the forks, and of no other volume."""

    def run(self, shards: Iterable[Any], executor: Executor | None, strategy: Strategy, message: str) -> ROVolume:
        versions: list[ROVolume] = []
        try:
            with nullcontext(executor) if executor is not None else ThreadPoolExecutor() as chosen:
                self._wait(chosen, shards, versions)
            if not versions:
                return self._base
            merged = self._merge(versions, strategy, message)
        except BaseException as error:
            abandoned.tell(error, [self._describe(versions)])
            raise
        self._delete_forks()
        return merged

    def _wait(self, executor: Executor, shards: Iterable[Any], versions: list[ROVolume]) -> None:
        """Adds the version of each shard that succeeds. Raises the first error after all have
        ended. Also that of `shards`, or of an executor that takes no more: its other shards run."""
        submitted = (self._function, self._base.locator)
        futures: list[Any] = []
        failure: Exception | None = None
        try:
            try:
                for number, shard in enumerate(shards):
                    name = f"{self._prefix}{number}"
                    futures.append(executor.submit(run_shard, *submitted, name, self._on_error, shard))
            except Exception as error:  # noqa: BLE001 # raised below
                failure = error
            for future in futures:
                try:
                    versions.append(Volume.from_locator(future.result(), store=self._storage()))
                except Exception as error:  # noqa: BLE001 # raised below
                    failure = failure or error
        except BaseException:
            for future in futures:
                future.cancel()
            raise
        if failure is not None:
            raise failure

    def _merge(self, versions: list[ROVolume], strategy: Strategy, message: str) -> ROVolume:
        target = Volume.open(self._into, store=self._store())
        try:
            target.resolve()
        except NotFoundError:
            target = self._base.fork(self._into, strict=True)
        report = target.merge(versions, strategy=strategy, message=message)
        merged = Volume.from_locator(report.locator, store=self._storage())
        return ro_volume.make_version(replace(ro_volume.locate(merged), is_new=report.is_new))

    def _describe(self, versions: list[ROVolume]) -> str:
        forks = [each.name for each in versions if each.name.startswith(self._prefix)]
        if not forks:
            return "No shard was merged."
        return hints.about(
            self._base.store_url,
            f"No shard was merged. Forks with the work of shards that ended: {', '.join(forks)}. "
            f"Merge them: {Command('merge', *forks, '--into', self._into)}, or merge(). "
            f"Or delete them: {Command('delete', *forks)}.",
        )

    def _delete_forks(self) -> None:
        """Also those of attempts that were not answered. One that cannot be deleted stays: it is no
        failure of the map."""
        store, after = self._store(), self._prefix
        try:
            objects = stores.open_store(store).objects
            while found := volumes.volume_names(objects, start=after, limit=_PAGE):
                for name in found:
                    if not name.startswith(self._prefix):
                        return
                    try:
                        deleting.delete(name, store, force=False)
                    except CowfsError as error:
                        _log.info("the fork %s stays: %s", name, error)
                after = found[-1] + "0"  # the character after "/", which ends a volume's name in a key
        except CowfsError as error:
            _log.info("forks %s… stay: %s", self._prefix, error)

    def _store(self) -> stores.Named:
        return self._storage() or self._base.store_url

    def _storage(self) -> Any:
        return ro_volume.locate(self._base).storage
