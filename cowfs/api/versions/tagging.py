"""Tags: set on a version, listed and removed by the name of its volume."""

from __future__ import annotations

import os
import string
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cowfs.api import sources, stores
from cowfs.base import clock
from cowfs.base.errors import AccessDeniedError, InvalidInputError, NotFoundError
from cowfs.base.hints import Command
from cowfs.base.ids import VersionId
from cowfs.base.short_repr import ShownList, has_card
from cowfs.format import keys
from cowfs.store.refs.holder import current_holder
from cowfs.version.names import near_names, source_names, tags, volumes

if TYPE_CHECKING:
    from datetime import datetime

    from cowfs.api.versions.located_version import LocatedVersion
    from cowfs.format.record import Holder


@has_card
@dataclass(frozen=True)
class Tag:
    """A name for a version of a volume. created_ns: the time at which it was set on this
    version."""

    name: str
    version: str
    locator: str
    created_ns: int

    @property
    def created(self) -> datetime:
        """`created_ns` as a time in UTC."""
        return clock.as_datetime(self.created_ns)


def list_tags(volume: str, named: stores.Named) -> list[Tag]:
    """`Store.tags`."""
    store = stores.open_store(named)
    near_names.read_head(store.objects, volume)
    return ShownList(_show(store, volume, tag) for tag in tags.all_tags(store.objects, volume))


def by_version(store: stores.OpenStore, volume: str) -> dict[str, list[str]]:
    """Version id → names of its tags, for display beside versions. Empty if the store cannot be
    listed."""
    found: dict[str, list[str]] = {}
    try:
        for tag in tags.all_tags(store.objects, volume):
            found.setdefault(tag.version.hex(), []).append(tag.name)
    except (InvalidInputError, AccessDeniedError):
        return {}
    return found


def set_tag(version: LocatedVersion, name: str, *, move: bool, expect: str | None) -> Tag:
    """`ROVolume.tag`."""
    _check_name(name)
    if version.folder:
        raise InvalidInputError(
            f"one folder of a version cannot be tagged: {version.locator}", hint="Tag the whole version."
        )
    store = version.open_store()
    head = near_names.read_head(store.objects, version.name)
    source_names.require_no_version(store.objects, head, name)
    tag = tags.set_tag(
        store.objects,
        version.name,
        name,
        version.version,
        holder=_holder(),
        may_move=move,
        expected=_resolve_expected(expect, version.name, version.storage or version.named.store_url),
    )
    return _show(store, version.name, tag)


def remove_tag(volume: str, name: str, named: stores.Named, *, expect: str | None) -> Tag:
    """`Store.untag`."""
    _check_name(name)
    store = stores.open_store(named)
    near_names.read_head(store.objects, volume)
    expected = _resolve_expected(expect, volume, named)
    return _show(store, volume, tags.remove_tag(store.objects, volume, name, holder=_holder(), expected=expected))


def _check_name(name: object) -> None:
    if not isinstance(name, str):
        raise InvalidInputError(f"a tag is text, not {name!r}", hint=f"Give {str(name)!r}, for example.")
    keys.check_tag_name(name)


def _resolve_expected(text: str | None, volume: str, named: stores.Named) -> VersionId | None:
    """The version that `expect` means: one of the volume, by digits of its id, or a source of its
    own."""
    if text is None:
        return None
    is_id = len(text) >= source_names.SHORTEST_PREFIX and not set(text) - set(string.hexdigits.lower())
    if is_id and len(text) == 2 * VersionId.length:
        return VersionId.from_hex(text)
    try:
        return sources.find(f"{volume}@{text}" if is_id else text, named).locator().version
    except NotFoundError as error:
        raise NotFoundError(
            f"{text} names no version: {error.message}",
            hint=f"Give 8 digits or more of its id, as {Command('log', volume)} (history()) shows it, {volume}@TAG or a locator.",
        ) from error


def _holder() -> Holder:
    return current_holder(f"process {os.getpid()}, which tags it")


def _show(store: stores.OpenStore, volume: str, tag: tags.Tag) -> Tag:
    locator = volumes.locator(store.objects, volume, tag.version)
    return Tag(tag.name, tag.version.hex(), str(locator), tag.created_ns)
