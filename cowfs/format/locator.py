"""Locators: a store URL, a volume's name and a version id in one string that is also a URL.

    locator             = "cowfs+" store URL "/-/" name "@" 64 hex
    locator with path   = locator *( "/" segment )                  a place inside the version, percent-encoded bytes

    cowfs+s3://bucket;endpoint=http%3A%2F%2F127.0.0.1%3A8333;region=us-east-1/prefix/-/NAME@ID
    cowfs+file:///dir/-/NAME@ID/train/a%20b.png

"/-/" cannot be part of a store URL (`store_url` writes such a segment as %2D), so the first one
ends the URL, and a path may contain it. A locator has none of `? * [ ] #`: `LOCATOR/path` passes
through fsspec and universal-pathlib unchanged.

Guarantees: one locator has one text; `Locator.parse(str(x)) == x`. A locator is enough to read a
version and to verify it; it does not protect it from pruning. Only protocols of registered
backends (`backends`) are opened: opening a locator imports and runs the package that serves its
protocol. Refuses credentials, and names every damaged part; whitespace around the locator, as a
file or a shell adds it, is dropped.
The name is for people and messages, the version id alone decides what is read. The code that opens
a locator checks whether the volume has that version (`version.history.open_named`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from cowfs.base.errors import InvalidInputError
from cowfs.base.ids import VersionId
from cowfs.format import backends, keys
from cowfs.format.store_url import StoreUrl, decode_percent, encode_segment, mask_secrets

_SCHEME = "cowfs+"
_DIVIDER = "/-/"
_HINT = "A locator reads cowfs+<store URL>/-/<name>@<64 hex digits>; copy it whole."


@dataclass(frozen=True, slots=True)
class Locator:
    store: StoreUrl
    volume: str
    version: VersionId

    def __post_init__(self) -> None:
        keys.check_volume_name(self.volume)

    @property
    def store_url(self) -> str:
        return str(self.store)

    def __str__(self) -> str:
        # file:///, the root directory, ends in the slash the divider starts with.
        url = "file://" if self.store_url == "file:///" else self.store_url
        return f"{_SCHEME}{url}{_DIVIDER}{self.volume}@{self.version.hex()}"

    def with_path(self, path: bytes) -> str:
        """The locator followed by a path inside the version, percent-encoded."""
        segments = [segment for segment in path.split(b"/") if segment]
        _check_path(segments)
        return "".join((str(self), *("/" + encode_segment(s.decode(errors="surrogateescape")) for s in segments)))

    @staticmethod
    def parse(text: str) -> Locator:
        """InvalidInputError names the damaged part; a path behind the version id is refused."""
        locator, path = Locator.parse_with_path(text)
        if path:
            raise InvalidInputError("the locator continues after its version id", hint=_HINT)
        return locator

    @staticmethod
    def parse_with_path(text: str) -> tuple[Locator, bytes]:
        """As parse, with the path inside the version (b"" for its root), decoded, without leading
        or trailing '/'."""
        text = text.strip()
        if not is_locator(text):
            raise InvalidInputError(
                f"{mask_secrets(text)} is not a locator: it does not start with {_SCHEME}", hint=_HINT
            )
        url, divider, rest = text.removeprefix(_SCHEME).partition(_DIVIDER)
        if not divider:
            raise InvalidInputError(f"the locator has no {_DIVIDER} between store and volume: it was cut", hint=_HINT)
        name, at, rest = rest.partition("@")
        if not at or "/" in name:
            raise InvalidInputError(f"the locator has no @ behind its volume {name[:128]!r}: it was cut", hint=_HINT)
        hex_id, _, path = rest.partition("/")
        segments = [decode_percent(segment, "path segment") for segment in path.split("/") if segment]
        _check_path(segments)
        store = StoreUrl.parse(url + "/" if url == "file://" else url)
        if not backends.is_registered(store.protocol):
            raise InvalidInputError(
                f"the locator's store has the protocol {store.protocol!r}, which locators do not open",
                hint=f"Locators come from other people, so they open only {', '.join(backends.protocols())}.",
            )
        return Locator(store, _name(name), _version(hex_id)), b"/".join(segments)


def is_locator(text: str) -> bool:
    """Whether the text is meant as a locator (begins with cowfs+) and not as a volume's name."""
    return text.lstrip().startswith(_SCHEME)


def _name(text: str) -> str:
    try:
        return keys.check_volume_name(text)
    except InvalidInputError as error:
        raise InvalidInputError(f"the locator's volume {text[:128]!r} is not a volume name", hint=_HINT) from error


def _version(text: str) -> VersionId:
    if wrong := re.search(r"[^0-9a-f]", text):
        raise InvalidInputError(f"the locator's version id has the character {wrong[0]!r}", hint=_HINT)
    if len(text) != 64:
        raise InvalidInputError(f"the locator's version id has {len(text)} digits instead of 64", hint=_HINT)
    return VersionId.from_hex(text)


def _check_path(segments: list[bytes]) -> None:
    for segment in segments:
        if segment in (b".", b"..") or b"/" in segment or b"\0" in segment:
            raise InvalidInputError(
                f"a path inside a version cannot have the part {segment!r}", hint="Give it without detours."
            )
