"""Retention rules (`retention`) that are saved in a volume's record, for maintenance of the store.

    settings of the record     keep.last, keep.hourly, keep.daily, keep.weekly, keep.monthly, keep.yearly    how many
                               keep.within_s                                                                 seconds

Without these settings the volume has no rules, and is pruned only by explicit rules. An unknown
`keep.` setting might keep more than the others, so no plan is made from a part of the rules:
UnsupportedFormatError. Other settings stay unchanged.

Not here: the effect of the rules (`retention`), and pruning (`maintain.pruning`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta

from cowfs.base.errors import CorruptError, UnsupportedFormatError
from cowfs.format.records import MetaRecord, Setting
from cowfs.store import ObjectStore
from cowfs.version.names import described
from cowfs.version.retention.retention import Rules

PREFIX = "keep."
_COUNTS = ("last", "hourly", "daily", "weekly", "monthly", "yearly")
_WITHIN = "within_s"


def read(store: ObjectStore, volume: str) -> Rules | None:
    """None: the volume has no rules. Three requests."""
    found = described.read(store, volume)
    return None if found is None else _rules(volume, found.settings)


def save(store: ObjectStore, volume: str, rules: Rules | None) -> None:
    """rules None: removes them. NotFoundError: no such volume."""
    settings = {} if rules is None else _settings(rules)

    def apply_rules(meta: MetaRecord) -> MetaRecord:
        others = {name: value for name, value in meta.settings.items() if not name.startswith(PREFIX)}
        return replace(meta, settings={**others, **settings})

    described.change(store, volume, apply_rules)


def _settings(rules: Rules) -> dict[str, Setting]:
    return {PREFIX + name: number for name, number in rules.to_dict().items()}


def _rules(volume: str, settings: Mapping[str, Setting]) -> Rules | None:
    given = {name.removeprefix(PREFIX): value for name, value in settings.items() if name.startswith(PREFIX)}
    if not given:
        return None
    if unknown := given.keys() - {*_COUNTS, _WITHIN}:
        raise UnsupportedFormatError(
            f"volume {volume!r} is pruned by rules that this cowfs does not know: {', '.join(sorted(unknown))}",
            hint="Use a newer cowfs.",
        )
    numbers: dict[str, int] = {}
    for name, value in given.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise CorruptError(
                f"the record of volume {volume!r} has {PREFIX + name} = {value!r}", hint="Save rules anew."
            )
        numbers[name] = value
    seconds = numbers.pop(_WITHIN, None)
    within = timedelta(seconds=seconds) if seconds is not None else None
    return Rules(within=within, **{name: number or None for name, number in numbers.items()})
