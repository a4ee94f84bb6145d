"""The meaning of SOURCE on the command line: NAME, NAME@TAG, NAME@VERSION (8 hex digits or more),
NAME@{3} (three versions before), NAME@{2026-11-20T12:00} or a locator
(`version.names.source_names`).

A bare name means the volume, which can be written to. Every other form means one version and can
only be read.

SOURCE:PATH means a place in it, and so does LOCATOR/PATH, whose path is percent-encoded as in a
URL. Where a local path is also possible, text with a colon before any slash, or text that begins as
a locator, is such a place: `./a:b` is a local file, `a:b` is "b" in volume "a".

STORE/NAME is a volume of the store that has that name on this machine (`store.store_names`), with @
and : after it as well. STORE/NAME:PATH is a local path if no store has that name.
"""

from __future__ import annotations

import os
import re
from functools import partial

from cowfs.api import hints, names, stores
from cowfs.api.storage.definition import Storage
from cowfs.api.versions.located_version import LocatedVersion
from cowfs.base.errors import InvalidInputError, NotFoundError
from cowfs.base.fast_dataclass import dataclass
from cowfs.base.hints import Command
from cowfs.base.ids import VersionId
from cowfs.format.locator import Locator, is_locator
from cowfs.format.manifest import Manifest
from cowfs.store import store_names
from cowfs.version import history
from cowfs.version.names import near_names, source_names, volumes
from cowfs.version.names.volumes import Head
from cowfs.version.publish import seen

_LOCATOR_AND_PATH = re.compile(r"(cowfs\+.*?/-/[^/@]+@[0-9a-f]{64}):(.*)", re.DOTALL)


@dataclass(frozen=True)
class Source:
    """A source that was found. version None: a volume without versions. head: of the volume, if the
    source names the volume itself. manifest: of a locator's version, if it was requested."""

    store: stores.OpenStore
    volume: str
    version: VersionId | None
    head: Head | None = None
    manifest: Manifest | None = None

    def located(self, folder: bytes = b"") -> LocatedVersion:
        """The version, or that folder of it. NotFoundError when there is no version yet."""
        return LocatedVersion(self.locator(), folder, self.manifest, self.store.storage)

    def locator(self) -> Locator:
        """NotFoundError when there is no version yet."""
        if self.version is None:
            raise NotFoundError(
                f"volume {self.volume!r} has no version yet",
                hint=f"Mount it, write, and commit: {Command('commit', self.volume)}, or commit() of the volume.",
            )
        return volumes.locator(self.store.objects, self.volume, self.version)


@dataclass(frozen=True)
class Place:
    """A source, and a path in it without slashes at its ends; b"" is the root. is_directory: the
    given path ends in a slash, or is empty."""

    source: str
    path: bytes
    is_directory: bool


def is_place(text: str) -> bool:
    """Whether text means a place in a volume or version, where it could be a local path as well."""
    before, colon, _ = source_names.split_place(text)
    store, _ = store_names.split_name(before)
    is_source = "/" not in before or (store is not None and store_names.has_store(store))
    return is_locator(text) or bool(colon and before and is_source)


def names_version(text: str) -> bool:
    """Whether a source names one version, and not the volume. InvalidInputError: it names neither.
    Nothing is looked up."""
    meant = place(text)
    if is_locator(meant.source):
        Locator.parse(meant.source)
        return True
    _, rest = store_names.split_name(meant.source)
    parsed = source_names.parse_source(rest)
    return isinstance(parsed, Locator) or parsed[1] is not None or bool(meant.path)


def place(text: object) -> Place:
    """Splits SOURCE, SOURCE:PATH or LOCATOR/PATH; nothing is looked up."""
    if not isinstance(text, str):
        raise InvalidInputError(f"a source is text, not {text!r}", hint="Give NAME, NAME@VERSION or a locator.")
    if is_locator(text):
        return _place_of_locator(text.strip())
    source, _, path = source_names.split_place(text)
    if path.startswith("//"):
        raise InvalidInputError(
            f"{text} is a URL", hint="Name the store with --store (store=), and its volume as NAME."
        )
    return _place(source, path)


def _place_of_locator(text: str) -> Place:
    if (found := _LOCATOR_AND_PATH.fullmatch(text)) is not None:
        return _place(found[1], found[2])
    locator, path = Locator.parse_with_path(text)
    return Place(str(locator), path, is_directory=not path or text.endswith("/"))


def _place(source: str, text: str) -> Place:
    parts = [part for part in os.fsencode(text).split(b"/") if part not in (b"", b".")]
    if b".." in parts:
        raise InvalidInputError(f"{text!r} has '..' in it", hint="Give the path from the volume's root on.")
    return Place(source, b"/".join(parts), is_directory=not parts or text.endswith(("/", "/.")))


def version_of(name: str, source: str) -> str:
    """The meaning of SOURCE where a version of volume `name` is expected: @{3} alone means
    NAME@{3}. InvalidInputError for the bare name of another volume. The user most likely meant a
    tag, and that volume's contents would replace everything in `name`."""
    if source.startswith("@"):
        return name + source
    if source != name and "@" not in source and not is_locator(source):
        if name.startswith("@"):
            raise InvalidInputError(f"{name!r} is not a volume name", hint=f"Write it as one, `{source}{name}`.")
        raise InvalidInputError(
            f"{source!r} is not a version of {name}",
            hint=f"Give @TAG, @VERSION or @{{3}} for one of {name}; for that of another volume `{source}@{{0}}` or a locator.",
        )
    return source


def find(text: str, named: stores.Named, *, to_write: bool = False, with_manifest: bool = False) -> Source:
    """The volume or version that `text` names; named None: the default store, or the locator's own.
    to_write: the volume is opened next, and its head carries the state that was seen.
    with_manifest: fetch that of a locator's version together with the store's record. STORE/NAME is
    in the store of that name."""
    rest, named = in_named_store(text, named, to_write=to_write)
    with hints.of_store(named if rest != text else None):  # callers mark errors of the store that they pass
        return _find(rest, named, to_write=to_write, with_manifest=with_manifest)


def _find(text: str, named: stores.Named, *, to_write: bool, with_manifest: bool) -> Source:
    parsed = source_names.parse_source(text)
    if isinstance(parsed, Locator):
        require_same_store(parsed, named)
        storage = stores.storage_of(named)
        if not with_manifest:
            return Source(stores.open_located(parsed.store_url, storage), parsed.volume, parsed.version)
        ask = partial(history.read_ahead, version=parsed.version)
        opened, data = stores.open_located_asking(parsed.store_url, storage, ask)
        manifest = history.open_named(opened.objects, parsed.volume, parsed.version, data)
        return Source(opened, parsed.volume, parsed.version, manifest=manifest)
    name, at = parsed
    if at is None and to_write:
        store, page = stores.open_asking(named, partial(seen.list_objects, name=name))
        head = near_names.read_suggesting(store.objects, name, lambda: seen.read_seen(store.objects, name, page))
        return Source(store, name, head.version, head)
    store = stores.open_store(named)
    if at is None:
        head = near_names.read_head(store.objects, name)
        return Source(store, name, head.version, head)
    return Source(store, name, source_names.resolve_name(store.objects, name, at))


def find_version(text: object, named: stores.Named) -> LocatedVersion:
    """The version, or the folder of one, that SOURCE, SOURCE:PATH or LOCATOR/PATH means, with its
    manifest."""
    meant = place(text)
    return find(meant.source, named).located(meant.path).resolve()


def of_locator(given: object, storage: Storage | None) -> LocatedVersion:
    """The version, or the folder of one, that a locator or LOCATOR/PATH names; nothing is
    requested. InvalidInputError: it is no locator, or `storage` is for another store."""
    if not isinstance(given, str | Locator):
        raise InvalidInputError(
            f"a locator is text, not {given!r}",
            hint="Give the locator of a committed version: that of a volume is None before its first commit.",
        )
    locator, folder = (given, b"") if isinstance(given, Locator) else Locator.parse_with_path(given)
    chosen = stores.name(storage)
    require_same_store(locator, chosen)
    return LocatedVersion(locator, folder, storage=stores.storage_of(chosen))


def in_named_store(text: str, named: stores.Named, *, to_write: bool = False) -> tuple[str, stores.Named]:
    """A source, and the store that it is in: STORE/NAME names both. InvalidInputError: no store has
    that name, `named` is another store, or the volume is to be written to, which requires a name
    without its store."""
    store, rest = (None, text) if is_locator(text) else store_names.split_name(text)
    if store is None:
        return text, named
    try:
        meant = stores.name(store)
    except InvalidInputError as error:
        error.set_hint(f"If {store} is a volume, its path {rest} is {store}:{rest}. {error.open_hint}")
        raise
    if to_write and "@" not in rest:
        raise names.with_its_store(store, rest)
    if named is not None and stores.canonical_url(named) != stores.canonical_url(meant):
        raise InvalidInputError(
            f"{text!r} is in the store {store}, and another one is given", hint="Leave the store (--store, store=) out."
        )
    return rest, meant


def require_same_store(locator: Locator, named: stores.Named) -> None:
    """InvalidInputError: the user names another store than the locator. A Storage is compared by
    its URL: its credentials are for that place alone."""
    if named is None or stores.canonical_url(named) in (
        locator.store_url,
        stores.canonical_url(locator.store_url),
    ):
        return
    raise InvalidInputError(
        f"the locator's store is {locator.store_url}, not {stores.canonical_url(named)}",
        hint="Leave the store (--store, store=) out: a locator names its own.",
    )


def listing_hint(place: Place) -> str:
    """Advice about a path that does not exist."""
    return f"{Command('ls', place.source)}, or listdir() of a mount of it, shows what there is."
