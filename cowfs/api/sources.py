"""What SOURCE means on the command line: NAME, NAME@TAG, NAME@VERSION (8 hex digits or more
will do), NAME@{3} (three versions before), NAME@{2026-11-20T12:00} or a locator
(`version.source_names`).

A bare name means the volume and can be written to; everything else means one version and can only
be read.

SOURCE:PATH means a place in it, and so does LOCATOR/PATH, whose path is percent-encoded as a URL's.
What has a colon before any slash, or begins as a locator, is such a place wherever a path of this
machine could stand as well: `./a:b` is a local file, `a:b` is "b" in volume "a".
"""

from __future__ import annotations

import os
import re
from dataclasses import replace
from functools import partial

from cowfs.api import stores
from cowfs.errors import InvalidInputError, NotFoundError
from cowfs.format.locator import Locator, is_locator
from cowfs.format.manifest import Manifest
from cowfs.ids import VersionId
from cowfs.values import dataclass
from cowfs.version import history, near_names, seen, source_names, volumes
from cowfs.version.volumes import Head

_LOCATOR_AND_PATH = re.compile(r"(cowfs\+.*?/-/[^/@]+@[0-9a-f]{64}):(.*)", re.DOTALL)


@dataclass(frozen=True)
class Source:
    """A source that was found. version None: a volume without versions. head: of the volume, if it
    is the volume itself that was named. manifest: of a locator's version, if it was asked for."""

    store: stores.OpenStore
    volume: str
    version: VersionId | None
    head: Head | None = None
    manifest: Manifest | None = None

    def locator(self) -> Locator:
        """NotFoundError when there is no version yet."""
        if self.version is None:
            raise NotFoundError(
                f"volume {self.volume!r} has no version yet",
                hint=f"Mount it, write, and commit: `cowfs commit {self.volume}`, or commit() of the volume.",
            )
        return volumes.locator(self.store.objects, self.volume, self.version)


@dataclass(frozen=True)
class Place:
    """A source, and a path in it without slashes at its ends; b"" is the root. is_directory: what
    was given ends in a slash, or is empty."""

    source: str
    path: bytes
    is_directory: bool


def is_place(text: str) -> bool:
    """Whether text means a place in a volume or version, where it could be a local path as well."""
    before, colon, _ = source_names.split_place(text)
    return is_locator(text) or bool(colon and before and "/" not in before)


def place(text: object) -> Place:
    """SOURCE, SOURCE:PATH or LOCATOR/PATH, taken apart; nothing is looked up."""
    if not isinstance(text, str):
        raise InvalidInputError(f"a source is text, not {text!r}", hint="Give NAME, NAME@VERSION or a locator.")
    if is_locator(text):
        return _place_of_locator(text.strip())
    source, _, path = source_names.split_place(text)
    if path.startswith("//"):
        raise InvalidInputError(
            f"{text} is a URL", hint="Name the store with --store (store=), and its volume as NAME."
        )
    return _placed(source, path)


def _place_of_locator(text: str) -> Place:
    if (found := _LOCATOR_AND_PATH.fullmatch(text)) is not None:
        return _placed(found[1], found[2])
    locator, path = Locator.parse_with_path(text)
    return Place(str(locator), path, is_directory=not path or text.endswith("/"))


def _placed(source: str, text: str) -> Place:
    parts = [part for part in os.fsencode(text).split(b"/") if part not in (b"", b".")]
    if b".." in parts:
        raise InvalidInputError(f"{text!r} has '..' in it", hint="Give the path from the volume's root on.")
    return Place(source, b"/".join(parts), is_directory=not parts or text.endswith("/"))


def version_of(name: str, source: str) -> str:
    """What SOURCE means where a volume's version is asked for: @{3} alone means NAME@{3}.
    InvalidInputError for the bare name of another volume: a tag was meant, most likely, and
    everything of `name` would give way to what is in that volume."""
    if source.startswith("@"):
        return name + source
    if source != name and "@" not in source and not is_locator(source):
        raise InvalidInputError(
            f"{source!r} is not a version of {name}",
            hint=f"Give @TAG, @VERSION or @{{3}} for one of {name}; for that of another volume `{source}@{{0}}` or a locator.",
        )
    return source


def find(text: str, named: stores.Named, *, to_write: bool = False, with_manifest: bool = False) -> Source:
    """The volume or version that `text` means; named None: the default store, or the locator's own.
    to_write: a volume is opened next, and what was seen of it is in its head. with_manifest: that
    of a locator's version is asked for beside the store's record."""
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
        store, page = stores.open_asking(named, partial(seen.shown, name=name))
        head = near_names.read_seen(store.objects, name, page)
        return Source(store, name, head.version, head)
    store = stores.open_store(named)
    if at is None:
        head = near_names.read_head(store.objects, name)
        return Source(store, name, head.version, head)
    return Source(store, name, source_names.resolve_name(store.objects, name, at))


def at(source: Source, locator: str) -> Source:
    """The same volume, at the version of a locator."""
    return replace(source, version=Locator.parse(locator).version)


def require_same_store(locator: Locator, named: stores.Named) -> None:
    """InvalidInputError when the user names another store than the locator. A Storage is compared
    by its URL: its credentials are for that place alone."""
    if named is None or stores.canonical_url(named) in (
        locator.store_url,
        stores.canonical_url(locator.store_url),
    ):
        return
    raise InvalidInputError(
        f"the locator's store is {locator.store_url}, not {stores.canonical_url(named)}",
        hint="Leave the store (--store, store=) out: a locator names its own.",
    )
