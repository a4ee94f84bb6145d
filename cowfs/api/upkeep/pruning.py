"""Pruning for users: makes a plan, which is reviewed and then applied."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from cowfs.api import stores
from cowfs.base import clock
from cowfs.base.errors import AccessDeniedError, InvalidInputError
from cowfs.base.hints import Command
from cowfs.base.ids import VersionId
from cowfs.base.short_repr import short_repr
from cowfs.machine import registry
from cowfs.maintain import pruning
from cowfs.store.refs.holder import current_holder
from cowfs.version.names import head_line, near_names, volumes
from cowfs.version.retention import saved_rules
from cowfs.version.retention.retention import KeepRules, Rules, parse_age

if TYPE_CHECKING:
    from datetime import datetime


@short_repr
@dataclass(frozen=True)
class PlannedVersion:
    """One version of a volume. kept_by: the reason for keeping it, in words; empty: it is pruned.
    published_ns: when it became the volume's last version."""

    version: str
    locator: str
    published_ns: int
    is_kept: bool
    kept_by: list[str]

    @property
    def published(self) -> datetime:
        """`published_ns` as a time in UTC."""
        return clock.as_datetime(self.published_ns)


def collectable(store: stores.OpenStore, volume: str, versions: Iterable[str], tagged: Iterable[str]) -> set[str]:
    """Ids of those versions that the volume has pruned and that have no tag; for display. Contains
    none if the listing is denied."""
    asked = {VersionId.from_hex(each) for each in {*versions} - {*tagged}}
    try:
        return {each.hex() for each in head_line.find_given_up(store.objects, volume, asked)}
    except (InvalidInputError, AccessDeniedError):
        return set()


@short_repr
@dataclass(frozen=True)
class PrunePlan:
    """The decisions about the versions of a volume that are not pruned yet, newest first. Nothing
    is done until the plan is passed to `Store.prune`. rules: the rules it was made by, `within` as
    `within_s`."""

    volume: str
    store_url: str
    versions: list[PlannedVersion]
    rules: Mapping[str, int]

    @property
    def pruned(self) -> list[PlannedVersion]:
        return [each for each in self.versions if not each.is_kept]


def plan(name: str, named: stores.Named, rules: Rules | None) -> PrunePlan:
    """`Store.plan_prune`. rules None: the rules saved in the volume."""
    store = stores.open_store(named)
    near_names.read_head(store.objects, name)
    if rules is None and (rules := saved_rules.read(store.objects, name)) is None:
        raise InvalidInputError(
            f"no rule says what to keep of volume {name!r}, and it has none saved",
            hint="Give at least one: last, within, hourly, daily, weekly, monthly, yearly "
            f"({Command('prune', name, '--keep-last', '10')}).",
        )
    return _plan(store, name, rules)


def plan_all(named: stores.Named) -> list[PrunePlan]:
    """`Store.plan_maintain`."""
    store = stores.open_store(named)
    plans = []
    for name in volumes.volume_names(store.objects):
        head = volumes.find_head(store.objects, name)
        if head is None or head.is_void or head.is_deleted:
            continue
        if (rules := saved_rules.read(store.objects, name)) is not None:
            plans.append(_plan(store, name, rules))
    return plans


def rules(name: str, named: stores.Named) -> dict[str, Any]:
    """`Store.retention`."""
    store = stores.open_store(named)
    near_names.read_head(store.objects, name)
    found = saved_rules.read(store.objects, name)
    told: dict[str, Any] = found.to_dict() if found is not None else {}
    if (seconds := told.pop("within_s", None)) is not None:
        told["within"] = timedelta(seconds=seconds)
    return told


def save_rules(name: str, named: stores.Named, rules: Rules | None) -> None:
    """`Store.set_retention`."""
    saved_rules.save(stores.open_store(named).objects, name, rules)


def given(rules: KeepRules) -> Rules | None:
    """None: no rule is given."""
    chosen: dict[str, Any] = {**rules, "within": age(rules.get("within"))}
    if all(rule is None for rule in chosen.values()):
        return None
    return Rules(**chosen)


def _plan(store: stores.OpenStore, name: str, rules: Rules) -> PrunePlan:
    found = pruning.plan(store.objects, name, rules, versions_mounted_here(store))
    return PrunePlan(
        name,
        store.url,
        [
            PlannedVersion(
                each.step.version.hex(),
                str(volumes.locator(store.objects, name, each.step.version)),
                each.step.created_ns,
                each.is_kept,
                list(each.why),
            )
            for each in found
        ],
        rules.to_dict(),
    )


def prune(plan: PrunePlan, named: stores.Named) -> list[PlannedVersion]:
    """`Store.prune`."""
    if not isinstance(plan, PrunePlan):
        raise InvalidInputError(f"{plan!r} is no plan", hint="Store().plan_prune() makes one.")
    store = stores.open_store(named)
    if store.url != plan.store_url:
        raise InvalidInputError(f"the plan is of {plan.store_url}, not of {store.url}", hint="Plan again.")
    wanted = {VersionId.from_hex(each.version) for each in plan.pruned}
    holder = current_holder(f"process {os.getpid()}, which prunes")
    gone = pruning.prune(store.objects, plan.volume, wanted, holder, versions_mounted_here(store))
    ids = {step.version.hex() for step in gone}
    return [each for each in plan.pruned if each.version in ids]


def versions_mounted_here(store: stores.OpenStore) -> dict[VersionId, list[str]]:
    """Versions that this user has mounted read-only or as a scratch, as far as this container
    shows; no pin records them."""
    found: dict[VersionId, list[str]] = {}
    for entry in registry.list_mounts():
        if entry.store_id == store.record.store_id.hex() and entry.version_id is not None:
            found.setdefault(VersionId.from_hex(entry.version_id), []).append(f"mounted at {entry.mount_path}")
    return found


def age(given: str | timedelta | None) -> timedelta | None:
    """InvalidInputError: it is not a duration."""
    return given if given is None or isinstance(given, timedelta) else parse_age(given)
