"""What SOURCE means on the command line: NAME, NAME@ (its last version), NAME@TAG, NAME@VERSION (8
hex digits or more will do) or a locator.

A bare name means the volume and can be written to; everything else means one version and can only
be read.
"""

from __future__ import annotations

from dataclasses import dataclass

from cowfs.api import stores
from cowfs.errors import InvalidInputError, NotFoundError
from cowfs.format.locator import Locator
from cowfs.ids import VersionId
from cowfs.version import history, volumes


@dataclass(frozen=True)
class Source:
    """A source that was found. version None: a volume without versions."""

    store: stores.OpenStore
    volume: str
    version: VersionId | None
    is_writable: bool

    def locator(self) -> Locator:
        """NotFoundError when there is no version yet."""
        if self.version is None:
            raise NotFoundError(
                f"volume {self.volume!r} has no version yet",
                hint=f"Mount it, write, and commit: `cowfs commit {self.volume}`, or commit() of the volume.",
            )
        return volumes.locator(self.store.objects, self.volume, self.version)


def find(text: object, store_url: str | None) -> Source:
    """The volume or version that `text` means; store_url None: the default store, or the locator's
    own."""
    if not isinstance(text, str):
        raise InvalidInputError(f"a source is text, not {text!r}", hint="Give NAME, NAME@VERSION or a locator.")
    parsed = history.parse_source(text)
    if isinstance(parsed, Locator):
        _require_same_store(parsed, store_url)
        return Source(stores.open_located(parsed.store_url), parsed.volume, parsed.version, is_writable=False)
    name, at = parsed
    store = stores.open_store(store_url)
    return Source(store, name, history.resolve_name(store.objects, name, at), is_writable=at is None)


def _require_same_store(locator: Locator, store_url: str | None) -> None:
    if store_url is None or stores.canonical_url(store_url) in (
        locator.store_url,
        stores.canonical_url(locator.store_url),
    ):
        return
    raise InvalidInputError(
        f"the locator's store is {locator.store_url}, not {store_url}",
        hint="Leave the store (--store, store=) out: a locator names its own.",
    )
