"""Purges for users: a plan that shows what is taken from which versions, and its application, for
which the volume's name has to be typed. `maintain.purge` does the work."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from cowfs import store as store_layer
from cowfs.api import sources, stores
from cowfs.api.upkeep.collect_report import Waiting
from cowfs.api.upkeep.local_writers import LocalWriters
from cowfs.api.upkeep.pruning import versions_mounted_here
from cowfs.api.upkeep.purge_report import BEYOND, PurgedVersion, PurgeReport
from cowfs.base import cards, config
from cowfs.base.errors import InvalidInputError
from cowfs.base.hints import Command
from cowfs.format import keys
from cowfs.format.locator import Locator
from cowfs.store.refs.holder import current_holder
from cowfs.version.commit import ProgressListener
from cowfs.version.names import source_names

if TYPE_CHECKING:
    from cowfs.maintain.purge.planning import Planner
    from cowfs.maintain.purge.planning import PurgePlan as Plan
    from cowfs.maintain.purge.purging import PurgeOutcome
    from cowfs.maintain.purge.target import Target

Say = Callable[[str], None]


class PurgePlan:
    """A plan to purge, as `Store.plan_purge` makes it. report: what it would take."""

    def __init__(self, store: stores.OpenStore, source: str, plan: Plan) -> None:
        self._store = store
        self._plan = plan
        self.report = _report(store, source, plan)

    def __repr__(self) -> str:
        return f"PurgePlan({self.report!r})"

    def _repr_html_(self) -> str:
        return cards.render(replace(cards.describe(self.report), title="PurgePlan"))

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to do: the target holds no bytes, or was purged before."""
        return self._plan.is_empty

    def apply(self, name: str, *, lose_work: bool = False, say: Say | None = None) -> PurgeReport:
        """Carries the plan out; errors and lose_work as for `Store.purge`. name: the volume's, as a
        person has typed it. say: called with a sentence when writers are waited for."""
        from cowfs.maintain.purge.purging import Purge

        if name != self.report.volume:
            raise InvalidInputError(
                f"{name!r} is not {self.report.volume!r}, the name of the volume that is purged",
                hint="Nothing was purged. Nothing brings purged bytes back, so its name has to be given in full.",
            )
        purge = Purge(
            self._store.objects,
            config.cache_dir(),
            current_holder(f"process {os.getpid()}, which purges"),
            in_use=partial(versions_mounted_here, self._store),
            ask=LocalWriters(self._store).ask,
            progress=say or (lambda text: None),
        )
        outcome = purge.apply(self._plan, lose_work=lose_work)
        late = _planner(self._store).find_late(self._plan, outcome.touched)
        plan = replace(self._plan, losses=(*self._plan.losses, *late))
        return _report(self._store, self.report.source, plan, outcome, is_done=outcome.is_done)


def prepare(source: str, named: stores.Named, *, progress: ProgressListener | None = None) -> PurgePlan:
    """`Store.plan_purge`."""
    store, target = _find_target(source, named)
    store_layer.require_writable(store.record)
    return PurgePlan(store, source, _planner(store).plan(target, progress or (lambda _: None)))


def _planner(store: stores.OpenStore) -> Planner:
    from cowfs.maintain.purge.planning import Planner

    return Planner(store.objects, config.cache_dir(), in_use=partial(versions_mounted_here, store))


def purge(source: str, named: stores.Named, *, name: str, dry_run: bool, lose_work: bool) -> PurgeReport:
    """`Store.purge`."""
    if dry_run == bool(name):
        raise InvalidInputError(
            "a purge needs the volume's name, and a dry run does not",
            hint="Nothing brings purged bytes back: give name=, in full; or dry_run=True.",
        )
    plan = prepare(source, named)
    return plan.report if dry_run else plan.apply(name, lose_work=lose_work)


def _find_target(text: str, named: stores.Named) -> tuple[stores.OpenStore, Target]:
    """A deleted volume is found by its name alone."""
    from cowfs.maintain.purge.target import Target

    place = sources.place(text)
    if place.path == b"" and not text.strip().endswith(place.source.rpartition("@")[2].strip()):
        raise InvalidInputError(f"{text!r} has an empty path", hint=f"All of it is {Command('purge', place.source)}.")
    rest, named = sources.in_named_store(place.source, named)
    parsed = source_names.parse_source(rest)
    if isinstance(parsed, Locator) or parsed[1] is not None:
        found = sources.find(place.source, named)
        return found.store, Target(found.volume, found.version, place.path or None)
    return stores.open_store(named), Target(parsed[0], None, place.path or None)


def _report(
    store: stores.OpenStore, source: str, plan: Plan, outcome: PurgeOutcome | None = None, *, is_done: bool = False
) -> PurgeReport:
    holdings = plan.holdings.values()
    written_bytes = sum(each.size - each.stored_bytes for each in holdings if each.has_rest)
    return PurgeReport(
        store_url=store.url,
        source=source,
        volume=plan.target.volume,
        chunks=len(plan.found.chunks),
        freed_bytes=sum(each.stored_bytes for each in holdings),
        freed_packs=sum(each.size > 0 for each in holdings)
        if outcome is None
        else sum(keys.parse_pack(key) is not None for key in outcome.deleted),
        written_bytes=written_bytes if outcome is None else outcome.written_bytes,
        versions=[
            PurgedVersion(
                loss.version.hex(),
                loss.volume,
                list(loss.kept_by),
                loss.files,
                ["/" + os.fsdecode(path) for path in loss.paths],
                loss.is_whole,
            )
            for loss in plan.losses
        ],
        beyond=list(BEYOND),
        waits_for=[Waiting(pin.record.volume, pin.record.owner) for pin in (outcome.waits_for if outcome else ())],
        stored_again=outcome.stored_again if outcome is not None else 0,
        is_done=is_done,
    )
