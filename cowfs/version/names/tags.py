"""Tags: names for versions of a volume, beside its head. A tag keeps its version from being
collected.

    volumes/<name>/tags/<tag>/<n>     create-only; the newest counts, and without a version it records that the tag was removed

Setting and removing a tag creates record n + 1, if the caller has seen n, so that of two concurrent
callers one gets a ConflictError. A tag may be set on a version that a head of the volume itself
names and that is not pruned. Such a version is protected when the tag is checked and, unless it was
pruned meanwhile, when the record exists: no collection can have deleted it in between. Versions
that a fork has from its origin are tagged there.

Cost: a tag is found with three requests; all of a volume with one list and two requests each.
"""

from __future__ import annotations

from cowfs.base import clock
from cowfs.base.errors import (
    ConflictError,
    CorruptError,
    CowfsError,
    InvalidStateError,
    NotFoundError,
    report_done,
)
from cowfs.base.fast_dataclass import dataclass
from cowfs.base.hints import Command
from cowfs.base.ids import VersionId, WriteId
from cowfs.base.thread_pool import Helpers
from cowfs.format import keys
from cowfs.format.record import Holder
from cowfs.format.records import TagRecord
from cowfs.store import ObjectStore, remembering
from cowfs.store.refs import refs
from cowfs.version.history import open_version
from cowfs.version.names import head_line

AT_ONCE = 16


@dataclass(frozen=True)
class Tag:
    """An existing tag. number: of its record."""

    name: str
    version: VersionId
    number: int
    created_ns: int


def all_tags(store: ObjectStore, volume: str, *, tell: refs.Tell | None = None) -> list[Tag]:
    """Every tag of the volume, by name: they protect versions besides heads, pins and holds. An
    error for any of them is raised. tell: receives damage instead."""
    marks = remembering.read_marks(store, volume)
    listed = {series.removeprefix("tag@"): 0 for series in marks if series != "head"}
    for info in store.list(keys.tags_prefix(volume)):
        name, number = keys.parse_tag(info.key), keys.parse_number(info.key)
        if name is not None and number is not None:
            listed[name] = max(number, listed.get(name, 0))

    def newest(name: str) -> Tag | None:
        ref = refs.tag(volume, name)
        try:
            return _tag(name, refs.newest(store, ref, listed=listed[name] or None, marks=marks))
        except InvalidStateError as error:
            if tell is None:
                raise
            tell(remembering.as_damage(error, ref, marks.get(f"tag@{name}")))
            return None
        except CorruptError as error:
            if tell is None:
                raise
            tell(error)
            return None

    with Helpers(AT_ONCE, name="cowfs-tags") as pool:
        return [tag for tag in pool.map(newest, sorted(listed)) if tag is not None]


def find_tag(store: ObjectStore, volume: str, name: str) -> Tag | None:
    """None: there is no such tag. InvalidInputError: it is not a possible name of a tag."""
    return _tag(name, refs.newest(store, refs.tag(volume, name)))


def set_tag(
    store: ObjectStore,
    volume: str,
    name: str,
    version: VersionId,
    *,
    holder: Holder | None = None,
    may_move: bool = False,
    expected: VersionId | None = None,
) -> Tag:
    """Sets the tag on `version` of the volume. A tag that is on this version already stays
    unchanged.

    may_move: from another version, too; expected: only from that one. ConflictError: it is on
    another version, or was set or removed meanwhile. NotFoundError: the volume has no such version,
    or it is pruned. The message of any other error says whether the tag is set.
    """
    open_version(store, version)
    _require_kept(store, volume, version)
    found = refs.newest(store, refs.tag(volume, name))
    now = _tag(name, found)
    if expected is not None and (now is None or now.version != expected):
        raise _error_of_move(volume, name, now)
    if now is not None and now.version == version:
        return now
    if now is not None and not may_move and expected is None:
        raise ConflictError(
            f"tag {name!r} of volume {volume!r} is on version {now.version.hex()[:12]} already",
            hint=f"Choose another name, or move it: {Command('tag', f'{volume}@{version.hex()[:12]}', name, '--move')}, tag(move=True).",
            details={"version": now.version.hex()},
        )
    tag = _append(store, volume, name, found[0] if found else 0, version, holder)
    assert tag is not None
    try:
        _require_kept(store, volume, version)
    except NotFoundError as error:
        _restore(store, volume, name, tag, now, holder)
        raise ConflictError(
            f"version {version.hex()[:12]} of volume {volume!r} was pruned while it was tagged",
            hint="The tag is unchanged, if its version is kept. Tag another version, or fork this one while it can be read.",
        ) from error
    except CowfsError as error:
        without = ", without --expect (expect=)" if expected is not None else ""
        raise report_done(
            error,
            f"tag {name!r} of volume {volume!r} is set on version {version.hex()[:12]}, and whether that one was pruned "
            "meanwhile is not known",
            hint=f"Run the same again{without}: that finds out.",
        ) from error
    return tag


def remove_tag(
    store: ObjectStore, volume: str, name: str, *, holder: Holder | None = None, expected: VersionId | None = None
) -> Tag:
    """Removes the tag and returns it. NotFoundError: there is no such tag. expected: as for
    set_tag."""
    now = find_tag(store, volume, name)
    if now is None:
        raise NotFoundError(
            f"volume {volume!r} has no tag {name!r}",
            hint=f"{Command('tag', volume)}, Store().tags({volume!r}), lists them.",
        )
    if expected is not None and now.version != expected:
        raise _error_of_move(volume, name, now)
    _append(store, volume, name, now.number, None, holder)
    return now


def _require_kept(store: ObjectStore, volume: str, version: VersionId) -> None:
    """NotFoundError unless a head of the volume names the version and keeps it."""
    named = head_line.find_named(store, volume, version)
    if named is None:
        origin = open_version(store, version).volume
        raise NotFoundError(
            f"no head of volume {volume!r} names version {version.hex()[:12]}",
            hint=f"It is a version of {origin}: tag it there, {origin}@{version.hex()[:12]}."
            if origin != volume
            else "It was never that volume's last one. Fork it, and tag it in the fork.",
        )
    if named.is_pruned:
        raise NotFoundError(
            f"version {version.hex()[:12]} of volume {volume!r} is pruned",
            hint="Fork it under a new name while it can still be read.",
        )


def _restore(store: ObjectStore, volume: str, name: str, tag: Tag, before: Tag | None, holder: Holder | None) -> None:
    version = before.version if before is not None else None
    if version is not None:
        try:
            _require_kept(store, volume, version)
        except NotFoundError:
            version = None
    _append(store, volume, name, tag.number, version, holder)


def _append(
    store: ObjectStore, volume: str, name: str, after: int, version: VersionId | None, holder: Holder | None
) -> Tag | None:
    record = TagRecord(
        version=version, created_ns=clock.now_ns(), write_id=WriteId(clock.random_bytes(WriteId.length)), holder=holder
    )
    try:
        refs.append(store, refs.tag(volume, name), after + 1, record)
    except ConflictError as error:
        raise _error_of_move(volume, name, find_tag(store, volume, name)) from error
    return _tag(name, (after + 1, record))


def _tag(name: str, found: tuple[int, TagRecord] | None) -> Tag | None:
    if found is None or found[1].version is None:
        return None
    return Tag(name, found[1].version, found[0], found[1].created_ns)


def _error_of_move(volume: str, name: str, now: Tag | None) -> ConflictError:
    stands = f"is on version {now.version.hex()[:12]}" if now is not None else "is not there"
    return ConflictError(
        f"tag {name!r} of volume {volume!r} {stands}",
        hint=f"Another process has changed it. Look at it ({Command('tag')}, Store().tags()), and try again.",
        details={"version": now.version.hex() if now is not None else None},
    )
