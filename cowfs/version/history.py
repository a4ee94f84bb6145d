"""Opening versions and finding them: by id, by name, by tag, by locator; and the line of their
parents.

Manifests are read once, verified against their id, and never change. Parents are names that nothing
protects: one that is gone shows as pruned in `history`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from cowfs.errors import AccessDeniedError, InvalidInputError, NotFoundError
from cowfs.format import keys
from cowfs.format.locator import Locator, is_locator
from cowfs.format.manifest import Manifest
from cowfs.ids import VersionId
from cowfs.store import ObjectStore, refs
from cowfs.store.sealed import sealing_of
from cowfs.version import near_names
from cowfs.version.volumes import find_head

SHORTEST_PREFIX = 8
LINE_LIMIT = 1000


@dataclass(frozen=True)
class Past:
    """One step of a history. manifest None: pruned, only its name is known."""

    version: VersionId
    manifest: Manifest | None


def open_version(store: ObjectStore, version: VersionId) -> Manifest:
    """The verified manifest. NotFoundError, CorruptError, UnsupportedFormatError."""
    key = keys.version(version)
    try:
        data = store.get(key)
    except NotFoundError as error:
        raise NotFoundError(
            f"{store.url} has no version {version}",
            hint="It may have been deleted, or the locator names another store. `cowfs log` and history() list versions.",
        ) from error
    return Manifest.decode(data, version, what=f"{store.url}/{key}", sealing=sealing_of(store))


def open_named(store: ObjectStore, volume: str, version: VersionId) -> Manifest:
    """As open_version, for a version that is named as one of `volume`. NotFoundError when the
    volume's line does not have it.

    No further request where the volume itself made the version; where a fork has it from its
    origin, as many as `history` takes to find it, at most LINE_LIMIT.
    """
    manifest = open_version(store, version)
    if manifest.volume != volume and not _may_be_in_line(store, volume, version):
        raise NotFoundError(
            f"version {version.hex()[:12]} belongs to volume {manifest.volume!r}, not to {volume!r}",
            hint=f"Its name is {manifest.volume}@{version}. `cowfs log {volume}` and history() list the versions of a volume.",
            details={"volume": manifest.volume},
        )
    return manifest


def history(store: ObjectStore, version: VersionId) -> Iterator[Past]:
    """The version and its ancestors, children before parents, each once, first parents first."""
    seen: set[VersionId] = set()
    waiting = [version]
    while waiting:
        current = waiting.pop()
        if current in seen:
            continue
        seen.add(current)
        try:
            manifest = open_version(store, current)
        except NotFoundError:
            if current == version:
                raise
            yield Past(current, None)
            continue
        yield Past(current, manifest)
        waiting.extend(reversed(manifest.parents))


def resolve_name(store: ObjectStore, volume: str, at: str | None) -> VersionId | None:
    """The version that NAME or NAME@ (at None or "": its head, which may have none yet) or
    NAME@TAG, NAME@VERSION means."""
    head = near_names.read_head(store, volume)
    if not at:
        return head.version
    if _is_hex(at) and len(at) == 2 * VersionId.length:
        return VersionId.from_hex(at)
    if (tagged := _tagged(store, volume, at)) is not None:
        return tagged
    if _is_hex(at) and len(at) >= SHORTEST_PREFIX and head.version is not None:
        return _by_prefix(store, volume, head.version, at)
    raise NotFoundError(
        f"volume {volume!r} has no tag or version {at!r}",
        hint=f"`cowfs log {volume}` and history() list versions; a version can be shortened to {SHORTEST_PREFIX} hex digits.",
    )


def parse_source(text: str) -> Locator | tuple[str, str | None]:
    """A locator, or (volume name, tag or version; "" for NAME@, its last version; None for
    NAME)."""
    if is_locator(text):
        return Locator.parse(text)
    name, at, tail = text.partition("@")
    return keys.check_volume_name(name), tail if at else None


def _may_be_in_line(store: ObjectStore, volume: str, version: VersionId) -> bool:
    """False only when the whole line was seen: behind what is pruned, or closed to this reader, it
    may go on."""
    try:
        head = find_head(store, volume)
    except AccessDeniedError:
        return True
    if head is None or head.version is None:
        return False
    for seen, past in enumerate(history(store, head.version)):
        if past.version == version or past.manifest is None or seen == LINE_LIMIT:
            return True
    return False


def _tagged(store: ObjectStore, volume: str, tag: str) -> VersionId | None:
    try:
        keys.check_tag_name(tag)
    except InvalidInputError:
        return None
    found = refs.newest(store, refs.tag(volume, tag))
    return found[1].version if found else None


def _by_prefix(store: ObjectStore, volume: str, head: VersionId, prefix: str) -> VersionId:
    found = {past.version for past in history(store, head) if past.version.hex().startswith(prefix)}
    for _, record in refs.history(store, refs.head(volume)):
        if record.version is not None and record.version.hex().startswith(prefix):
            found.add(record.version)
    if len(found) == 1:
        return found.pop()
    if not found:
        raise NotFoundError(
            f"volume {volume!r} has no version {prefix}…",
            hint=f"`cowfs log {volume}` and history() list its versions.",
        )
    raise InvalidInputError(f"{prefix!r} is the beginning of {len(found)} versions", hint="Give more digits.")


def _is_hex(text: str) -> bool:
    return bool(text) and not set(text) - set("0123456789abcdef")
