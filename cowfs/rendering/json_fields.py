"""The names that the fields of reports have in JSON documents (docs/reference/json.md)."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

JSON_NAMES = {
    "Change": {"size": "bytes", "old_size": "old_bytes"},
    "Entry": {"size": "bytes"},
    "KeySummary": {"id": "key_id"},
    "LinkValue": {"id": "link_id", "url": "link", "store": "store_name"},
    "LockedVersion": {"what": "state", "name": "volume", "store": "store_name", "before": "old_locator"},
    "Stats": {"stored_bytes_added": "uploaded_bytes"},
    "StoreValue": {"name": "store_name", "url": "store_url"},
    "Tag": {"name": "tag"},
    "VolumeSummary": {"name": "volume"},
}
"""By class: fields that say in Python, beside their class, enough, and more in JSON, without it."""


def json_names(kind: type[DataclassInstance]) -> dict[str, str]:
    """By field of a report's class: its name in JSON, where a name has one meaning."""
    names = JSON_NAMES.get(kind.__name__, {})
    return {each.name: names.get(each.name, each.name) for each in dataclasses.fields(kind)}


def fields_of(report: DataclassInstance) -> dict[str, Any]:
    """The fields of a report under their names in JSON."""
    return {name: getattr(report, field) for field, name in json_names(type(report)).items()}
