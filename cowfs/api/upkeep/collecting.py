"""Garbage collection for users: a plan that shows the deletions, and its application.

    prepare ─▶ writers acknowledge an empty collection ─▶ GcPlan.report ─▶ GcPlan.apply

The second step is left out for a dry run, and if no writer holds data back that is old enough to be
deleted. Mounts of this machine are asked (`local_writers`), other writers are waited for.

A dry run, and asking why something is kept, write nothing and need no write permission.

`cowfs.maintain` deletes; docs/guide/collecting.md describes which data is kept.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from cowfs import store as store_layer
from cowfs.api import sources, stores
from cowfs.api.upkeep.collect_report import GcReport, Reason, Restorable, Waiting, WhyReport
from cowfs.api.upkeep.local_writers import LocalWriters
from cowfs.api.upkeep.parts import Workers
from cowfs.api.upkeep.pruning import PrunePlan, versions_mounted_here
from cowfs.base import cards, config
from cowfs.base.errors import InvalidInputError, LeaseHeldError
from cowfs.base.ids import VersionId
from cowfs.format import keys
from cowfs.format.records import Holder
from cowfs.store.refs.holder import current_holder

if TYPE_CHECKING:
    from cowfs.maintain.collect.planning import Plan, Survey

SETTLE_S = 60.0
"""Three heartbeats."""

Say = Callable[[str], None]


class GcPlan:
    """A plan to collect garbage, and the data gathered for it, as `Store.plan_gc` makes it. report:
    the deletions that it would make."""

    def __init__(self, survey: Survey, plan: Plan, writers: LocalWriters) -> None:
        self._survey = survey
        self._plan = plan
        self._writers = writers
        self.report = _report(survey.store.url, plan, plan.sparse.written_bytes, is_done=False)

    def __repr__(self) -> str:
        return f"GcPlan({self.report!r})"

    def _repr_html_(self) -> str:
        return cards.render(replace(cards.describe(self.report), title="GcPlan"))

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to do."""
        return not (self._plan.objects or self._plan.lapsed)

    def is_allowed(self, accept_loss: str = "") -> bool:
        """Whether `apply` would be accepted."""
        return self._plan.id == accept_loss

    def apply(self, *, only: GcReport | None = None, accept_loss: str = "", say: Say | None = None) -> GcReport:
        """Carries the plan out. only: delete nothing outside of this report. accept_loss: `plan_id`
        of a report whose alarms are accepted. say: called with a sentence when writers are waited
        for. LeaseHeldError: a process of this machine is collecting.
        InvalidStateError: there are alarms, and these were not accepted."""
        from cowfs.maintain.collect.collecting import Collection, require_accepted

        plan = self._plan
        require_accepted(self._survey.store.url, plan, accept_loss)
        if only is not None:
            plan = replace(
                plan,
                objects={key: size for key, size in plan.objects.items() if key in only.objects},
                lapsed={volume: number for volume, number in plan.lapsed.items() if volume in only.gone},
                sparse=plan.sparse.only(lambda pack: keys.pack(pack) in only.objects),
            )
        if not (plan.objects or plan.lapsed):
            with suppress(LeaseHeldError):
                Collection(self._survey, _holder()).look_only()
            return _report(self._survey.store.url, plan, plan.sparse.written_bytes, is_done=True)
        collection = Collection(self._survey, _holder(), ask=self._writers.ask, progress=say or _say_nothing)
        outcome = collection.apply(plan, accept_loss=plan.id)
        is_done = outcome.is_ended
        lapsed = {volume: plan.lapsed[volume] for volume in outcome.closed}
        plan = replace(plan, objects=outcome.deleted, lapsed=lapsed, waits_for=outcome.waits_for)
        return _report(self._survey.store.url, plan, outcome.written_bytes, is_done=is_done)


def prepare(
    store: stores.Named,
    *,
    dry_run: bool = False,
    settle_s: float = SETTLE_S,
    say: Say | None = None,
    executor: Executor | None = None,
) -> GcPlan:
    """`Store.plan_gc`."""
    from cowfs.maintain.collect.collecting import Collection
    from cowfs.maintain.collect.planning import Survey

    opened = stores.open_store(store)
    store_layer.require_writable(opened.record)
    in_parts = partial(Workers(executor).mark, opened) if executor is not None else None
    survey = Survey(
        opened.objects, config.cache_dir(), in_parts=in_parts, in_use=partial(versions_mounted_here, opened)
    )
    plan = survey.plan(is_question=dry_run)
    writers = LocalWriters(opened)
    if not dry_run and plan.held_bytes and not plan.alarms:
        Collection(survey, _holder(), wait_s=settle_s, ask=writers.ask, progress=say or _say_nothing).settle()
        plan = survey.plan()
    return GcPlan(survey, plan, writers)


def foresee(store: stores.Named, plans: Iterable[PrunePlan]) -> GcReport:
    """The deletions if these plans were applied first. Nothing is deleted."""
    from cowfs.maintain.collect.planning import Survey

    opened = stores.open_store(store)
    store_layer.require_writable(opened.record)
    foreseen: dict[str, set[VersionId]] = {}
    for each in plans:
        if each.store_url != opened.url:
            raise InvalidInputError(f"a plan is of {each.store_url}, not of {opened.url}", hint="Plan again.")
        foreseen.setdefault(each.volume, set()).update(VersionId.from_hex(gone.version) for gone in each.pruned)
    survey = Survey(opened.objects, config.cache_dir(), in_use=partial(versions_mounted_here, opened))
    plan = survey.plan(foreseen=foreseen, is_question=True)
    return _report(opened.objects.url, plan, plan.sparse.written_bytes, is_done=False)


def gc(
    store: stores.Named,
    *,
    dry_run: bool,
    plan: GcReport | None,
    pruned: Sequence[PrunePlan] | None = None,
    accept_loss: str = "",
    executor: Executor | None = None,
) -> GcReport:
    """`Store.gc`."""
    if pruned is not None:
        if not dry_run:
            raise InvalidInputError(
                "plans to prune were given to a collection", hint="Store.prune carries them out; or add dry_run=True."
            )
        if plan is None:
            return foresee(store, pruned)
    if plan is not None and dry_run:
        raise InvalidInputError("a plan was given for a dry run", hint="Leave plan or dry_run out.")
    prepared = prepare(store, dry_run=dry_run, executor=executor)
    if dry_run:
        return prepared.report
    if plan is not None and plan.store_url != prepared.report.store_url:
        raise InvalidInputError(
            f"the plan is one for {plan.store_url}", hint="Make one for this store, with dry_run=True."
        )
    return prepared.apply(only=plan, accept_loss=accept_loss)


def why(text: str, store: stores.Named) -> WhyReport:
    """`Store.why`."""
    from cowfs.maintain.collect import why as reasons

    if "@" in text:
        source = sources.find(text, store)
        assert source.version is not None
        opened, text = source.store, source.version.hex()
    else:
        opened = stores.open_store(store)
    found = reasons.why(opened.objects, config.cache_dir(), text, in_use=partial(versions_mounted_here, opened))
    kept = [Reason(each.version.hex() if each.version else "", list(each.protectors)) for each in found.reasons]
    return WhyReport(found.key, found.size, kept)


def _say_nothing(text: str) -> None:
    pass


def _holder() -> Holder:
    return current_holder(f"process {os.getpid()}, which collects")


def _report(url: str, plan: Plan, written_bytes: int, *, is_done: bool) -> GcReport:
    return GcReport(
        store_url=url,
        freed_bytes=sum(plan.objects.values()) - written_bytes,
        freed_versions=sum(keys.parse_version(key) is not None for key in plan.objects),
        freed_packs=sum(keys.parse_pack(key) is not None for key in plan.objects),
        kept_versions=plan.versions,
        kept_bytes=plan.live_bytes,
        young_bytes=plan.young_bytes,
        repacked_packs=len(plan.sparse.packs),
        written_bytes=written_bytes,
        sparse_packs=len(plan.sparse.left),
        sparse_bytes=sum(plan.sparse.left.values()),
        gone=list(plan.lapsed),
        deleted_volumes=[Restorable(volume, until_ns) for volume, until_ns in plan.deleted.items()],
        waits_for=[Waiting(pin.record.volume, pin.record.owner) for pin in plan.waits_for],
        is_done=is_done,
        plan_id=plan.id,
        alarms=list(plan.alarms),
        strange=list(plan.strange),
        objects=dict(plan.objects),
    )
