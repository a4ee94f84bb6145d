"""Resolves the names that people write for versions.

    NAME            the volume: its last version          NAME@VERSION          an id, or its first SHORTEST_PREFIX digits or more
    NAME@TAG        the tag's version                     NAME@{2026-11-20T12:00}   the last version at that time; NAME@{2026-11-20}: at
    NAME@{3}        the last version three before                                   its beginning. Local time unless it has an offset
                    it; NAME@{0} is the last one

A tag cannot be set if it could be taken for a version. If a name fits a tag that was set before and
another version, it is an error that names both. Times are those that writers' clocks gave the
heads. An error suggests similar names.

Cost, besides the head: a tag two requests; a shortened id one list and a look at each version of
the store that begins so; `{}` one request for each head on the way.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime
from itertools import islice

from cowfs.base.errors import AccessDeniedError, CowfsError, InvalidInputError, NotFoundError
from cowfs.base.hints import Command
from cowfs.base.ids import VersionId
from cowfs.base.quantities import format_time
from cowfs.format import keys
from cowfs.format.locator import Locator, is_locator
from cowfs.store import ObjectStore
from cowfs.store.contract import nanoseconds
from cowfs.version.history import history, open_named
from cowfs.version.names import head_line, near_names, tags
from cowfs.version.names.head_line import Step
from cowfs.version.names.volumes import Head

SHORTEST_PREFIX = 8
SHOWN_DIGITS = 12
MOST = 3
HEADS_LOOKED_AT = 1000
_PREFIXES_SHOWN = 5
_WITH_BRACES = re.compile(r"([^:/@{}]*@\{[^{}]*\})(.*)", re.DOTALL)


def parse_source(text: str) -> Locator | tuple[str, str | None]:
    """A locator, or (volume name, the text behind the @; None for NAME). InvalidInputError: NAME@,
    since an empty variable would otherwise select another version."""
    if is_locator(text):
        return Locator.parse(text)
    name, at, tail = text.partition("@")
    if "/" in name:
        raise InvalidInputError(
            f"{text!r} is a path, not a volume's name",
            hint=f"A file of a volume is NAME:PATH; {Command('status')} says which volume is mounted where.",
        )
    keys.check_volume_name(name)
    if at and not tail:
        raise InvalidInputError(
            f"{text!r}: nothing follows the @",
            hint=f"Give {name} for its last version, {name}@TAG or {name}@VERSION for another one. Was a variable empty?",
        )
    return name, tail if at else None


def split_place(text: str) -> tuple[str, str, str]:
    """SOURCE[:PATH], as str.partition does at the colon; one in braces is part of a time."""
    if (found := _WITH_BRACES.fullmatch(text)) is None:
        return text.partition(":")
    source, rest = found[1], found[2]
    return (source, ":", rest[1:]) if rest.startswith(":") else (source + rest, "", "")


def resolve_name(store: ObjectStore, volume: str, at: str | None) -> VersionId | None:
    """The version that NAME (at None) or NAME@… means; None: the volume has no version yet.
    NotFoundError, InvalidInputError."""
    head = near_names.read_head(store, volume)
    if at is None:
        return head.version
    if at.startswith("{") and at.endswith("}"):
        return _earlier(store, head, at[1:-1].strip()).version
    if _is_hex(at) and len(at) == 2 * VersionId.length:
        return VersionId.from_hex(at)
    tag = _tag(store, volume, at)
    may_be_an_id = _is_hex(at) and len(at) >= SHORTEST_PREFIX
    if tag is not None:
        if may_be_an_id and (others := _beginning_with(store, volume, head, at) - {tag.version}):
            raise _tag_or_version(volume, tag, min(others))
        return tag.version
    if may_be_an_id:
        found = sorted(_beginning_with(store, volume, head, at))
        if len(found) == 1:
            return found[0]
        if found:
            raise _ambiguous(at, found)
    raise NotFoundError(f"volume {volume!r} has no tag or version {at!r}", hint=_near(store, head, at))


def require_no_version(store: ObjectStore, head: Head, name: str) -> None:
    """InvalidInputError: as a tag, the name could be taken for a version. Lists print 12 digits of
    an id. A tag that an older cowfs has set may be set again."""
    if not _is_hex(name) or len(name) < SHORTEST_PREFIX or _tag(store, head.volume, name) is not None:
        return
    if len(name) == SHOWN_DIGITS and not name.isdigit():
        raise InvalidInputError(
            f"{name!r} looks like the version ids that lists show", hint=f"Choose another name, such as v-{name}."
        )
    if found := _beginning_with(store, head.volume, head, name):
        raise InvalidInputError(
            f"{name!r} is the beginning of version {min(found).hex()[: len(name) + 4]} of volume {head.volume!r}",
            hint=f"Choose another name, such as v-{name}.",
        )


# -- so many before, or at a time


def _earlier(store: ObjectStore, head: Head, text: str) -> Step:
    if text.isascii() and text.isdigit():
        return _find_before(store, head, int(text))
    try:
        then = datetime.fromisoformat(text).astimezone()
        then_ns = nanoseconds(then)
    except (ValueError, OverflowError) as error:
        raise InvalidInputError(
            f"{{{text}}} is neither a number nor a time of the years 1 to 9999 here and in UTC",
            hint=f"{head.volume}@{{2}} is the version two before the last one, {head.volume}@{{2026-11-20T12:00}} that of a time.",
        ) from error
    oldest = None
    for count, step in enumerate(head_line.steps(store, head.volume, head.number)):
        if step.created_ns <= then_ns:
            return step
        oldest = count, step
    hint = "It has no version yet." if oldest is None else f"Its first one is {_describe_step(head.volume, *oldest)}."
    raise NotFoundError(f"volume {head.volume!r} had no version at {then.isoformat(sep=' ')}", hint=hint)


def _find_before(store: ObjectStore, head: Head, number: int) -> Step:
    oldest = None
    for count, step in enumerate(head_line.steps(store, head.volume, head.number)):
        if count == number:
            return step
        oldest = count, step
    hint = "It has no version yet." if oldest is None else f"The first one is {_describe_step(head.volume, *oldest)}."
    raise NotFoundError(f"volume {head.volume!r} has no version {number} before its last one", hint=hint)


def _describe_step(volume: str, count: int, step: Step) -> str:
    return f"{volume}@{{{count}}}, {step.version.hex()[:12]} of {format_time(step.created_ns)}"


# -- tags and shortened ids


def _tag(store: ObjectStore, volume: str, name: str) -> tags.Tag | None:
    try:
        return tags.find_tag(store, volume, name)
    except InvalidInputError:  # not a possible name of a tag
        return None


def _beginning_with(store: ObjectStore, volume: str, head: Head, prefix: str) -> set[VersionId]:
    """The versions of the volume that begin so."""
    try:
        listed = store.list(keys.VERSIONS + f"{prefix[:2]}/{prefix}")
    except (InvalidInputError, AccessDeniedError):  # it has no lists, or they are not permitted
        found = {step.version for step in _steps(store, head)}
        if head.version is not None:
            found |= {past.version for past in islice(history(store, head.version), HEADS_LOOKED_AT)}
        return {version for version in found if version.hex().startswith(prefix)}
    versions = [version for info in listed if (version := keys.parse_version(info.key)) is not None]
    return {version for version in versions if _is_of(store, volume, version)}


def _is_of(store: ObjectStore, volume: str, version: VersionId) -> bool:
    try:
        open_named(store, volume, version)
    except NotFoundError:
        return False
    return True


def _tag_or_version(volume: str, tag: tags.Tag, version: VersionId) -> InvalidInputError:
    tagged = f"{volume}@{tag.version.hex()[: len(tag.name) + 4]}"
    return InvalidInputError(
        f"{tag.name!r} is a tag of {tagged}, and the beginning of version {version.hex()[: len(tag.name) + 4]}",
        hint=f"Give more digits of the version that you mean. Rename the tag: {Command('tag', tagged, f'v-{tag.name}')}, "
        f"then {Command('tag', '--delete', volume, tag.name)}.",
    )


def _ambiguous(prefix: str, found: list[VersionId]) -> InvalidInputError:
    shown = ", ".join(version.hex()[: len(prefix) + 8] for version in found[:_PREFIXES_SHOWN])
    more = f" and {len(found) - _PREFIXES_SHOWN} more" if len(found) > _PREFIXES_SHOWN else ""
    return InvalidInputError(
        f"{prefix!r} is the beginning of {len(found)} versions: {shown}{more}", hint="Give more digits."
    )


def _near(store: ObjectStore, head: Head, at: str) -> str:
    """A hint that suggests similar names; best effort."""
    lists = f"{Command('log', head.volume)} and history() list versions, {Command('tag', head.volume)} and Store().tags() tags"
    digits = f"an id can be shortened to {SHORTEST_PREFIX} digits."
    try:
        ids = [step.version.hex() for step in _steps(store, head)] if _is_hex(at) else []
        names = [tag.name for tag in tags.all_tags(store, head.volume)]
    except CowfsError:
        return f"{lists}; {digits}"
    if gone := [each for each in ids if len(at) >= SHORTEST_PREFIX and each.startswith(at)]:
        return f"Version {gone[0][:12]} was pruned, and is gone. {lists}."
    import difflib

    near = difflib.get_close_matches(at, names, MOST)
    near += [each[:12] for each in ids if len(at) > 3 and each.startswith(at[: max(4, len(at) - 2)])][:MOST]
    if near:
        return f"Did you mean {' or '.join(f'{head.volume}@{each}' for each in near)}? {lists}; {digits}"
    there = f"Its tags are {', '.join(names[:MOST])}{', …' if len(names) > MOST else ''}. " if names else ""
    return f"{there}{lists}; {digits}"


def _steps(store: ObjectStore, head: Head) -> Iterator[Step]:
    return islice(head_line.steps(store, head.volume, head.number), HEADS_LOOKED_AT)


def _is_hex(text: str) -> bool:
    return bool(text) and not set(text) - set("0123456789abcdef")
