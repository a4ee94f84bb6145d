"""Pruning as users see it: a plan that is looked at, then carried out."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from cowfs.api import stores
from cowfs.errors import AccessDeniedError, InvalidInputError
from cowfs.ids import VersionId
from cowfs.machine import registry
from cowfs.maintain import pruning
from cowfs.store.holder import current_holder
from cowfs.version import head_line, near_names, saved_rules, volumes
from cowfs.version.retention import KeepRules, Rules, parse_age


@dataclass(frozen=True)
class PlannedVersion:
    """One version of a volume. why: what keeps it, in words; empty: it goes. created_ns: when it
    became the volume's last one."""

    version: str
    locator: str
    created_ns: int
    keep: bool
    why: list[str]


def collectable(store: stores.OpenStore, volume: str, versions: Iterable[str], tagged: Iterable[str]) -> set[str]:
    """Ids of those versions that the volume has pruned, and that are in none of its tags; for
    showing it beside them. What may not be listed shows none."""
    asked = {VersionId.from_hex(each) for each in {*versions} - {*tagged}}
    try:
        return {each.hex() for each in head_line.given_up(store.objects, volume, asked)}
    except (InvalidInputError, AccessDeniedError):
        return set()


@dataclass(frozen=True)
class PrunePlan:
    """What becomes of the versions of a volume that are not pruned yet, newest first. Nothing is
    done before `Volume.prune` gets it. rules: by which it was made, `within` as `within_s`."""

    volume: str
    store_url: str
    versions: list[PlannedVersion]
    rules: Mapping[str, int]

    @property
    def pruned(self) -> list[PlannedVersion]:
        return [each for each in self.versions if not each.keep]


def plan(name: str, named: stores.Named, rules: Rules | None) -> PrunePlan:
    """`Volume.plan_prune`. rules None: those that the volume has saved."""
    store = stores.open_store(named)
    near_names.read_head(store.objects, name)
    if rules is None and (rules := saved_rules.read(store.objects, name)) is None:
        raise InvalidInputError(
            f"no rule says what to keep of volume {name!r}, and it has none saved",
            hint="Give at least one: last, within, hourly, daily, weekly, monthly, yearly "
            f"(`cowfs prune {name} --keep-last 10`).",
        )
    return _plan(store, name, rules)


def plan_all(named: stores.Named) -> list[PrunePlan]:
    """`Volume.plan_maintain`."""
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
    """`Volume.retention`."""
    store = stores.open_store(named)
    near_names.read_head(store.objects, name)
    found = saved_rules.read(store.objects, name)
    told: dict[str, Any] = found.told() if found is not None else {}
    if (seconds := told.pop("within_s", None)) is not None:
        told["within"] = timedelta(seconds=seconds)
    return told


def save_rules(name: str, named: stores.Named, rules: Rules | None) -> None:
    """`Volume.set_retention`."""
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
        rules.told(),
    )


def prune(plan: PrunePlan, named: stores.Named) -> list[PlannedVersion]:
    """`Volume.prune`."""
    if not isinstance(plan, PrunePlan):
        raise InvalidInputError(f"{plan!r} is no plan", hint="Volume.plan_prune() makes one.")
    store = stores.open_store(named if named is not None else plan.store_url)
    if store.url != plan.store_url:
        raise InvalidInputError(f"the plan is of {plan.store_url}, not of {store.url}", hint="Plan again.")
    wanted = {VersionId.from_hex(each.version) for each in plan.pruned}
    holder = current_holder(f"process {os.getpid()}, which prunes")
    gone = pruning.prune(store.objects, plan.volume, wanted, holder, versions_mounted_here(store))
    ids = {step.version.hex() for step in gone}
    return [each for each in plan.pruned if each.version in ids]


def versions_mounted_here(store: stores.OpenStore) -> dict[VersionId, list[str]]:
    """Versions that this user has mounted to be read, or for a scratch, as far as it is known in
    this container: no pin tells of them."""
    found: dict[VersionId, list[str]] = {}
    for entry in registry.list_mounts():
        if entry.store_id == store.record.store_id.hex() and entry.version_id is not None:
            found.setdefault(VersionId.from_hex(entry.version_id), []).append(f"mounted at {entry.mount_path}")
    return found


def age(given: str | timedelta | None) -> timedelta | None:
    """InvalidInputError: it is no time."""
    return given if given is None or isinstance(given, timedelta) else parse_age(given)
