"""URLs of archives, as fsspec writes them: KIND://PATH-IN-IT::WHERE-IT-IS.

tar://::/data/set.tar.gz            all of it; "zip::URL" is short for "zip://::URL"
zip://images::s3://bucket/set.zip   the members below `images`, or the file of that name
"""

from __future__ import annotations

import re

from cowfs.base.errors import InvalidInputError
from cowfs.base.fast_dataclass import dataclass
from cowfs.format.store_url import mask_secrets
from cowfs.store.origin.archive.members import clean

_ARCHIVE = re.compile(r"(tar|zip)(?:://(.*?))?::(.+)", re.DOTALL)
_WITHOUT_PLACE = re.compile(r"(tar|zip)://", re.DOTALL)


@dataclass(frozen=True)
class Address:
    """kind: tar or zip. root: the path in the archive; b"": all of it. place: URL or path of the
    archive itself."""

    kind: str
    root: bytes
    place: str


def address_of(url: str) -> Address | None:
    """None: it is no archive's. InvalidInputError: it names an archive in another way."""
    if (found := _ARCHIVE.fullmatch(url)) is not None:
        return Address(found[1], clean((found[2] or "").encode("utf-8", "surrogateescape")), found[3])
    if _WITHOUT_PLACE.match(url) is not None:
        raise InvalidInputError(
            f"{mask_secrets(url)} does not say where the archive is",
            hint="An archive is named as zip://::URL or tar://::PATH; a part of it as tar://DIR/IN/IT::PATH.",
        )
    return None
