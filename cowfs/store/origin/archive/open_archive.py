"""From the address of an archive to the archive."""

from __future__ import annotations

from cowfs.base.errors import NotFoundError
from cowfs.format.store_url import mask_secrets
from cowfs.store.origin.archive.address import Address
from cowfs.store.origin.archive.input import Input
from cowfs.store.origin.archive.members import Archive
from cowfs.store.origin.archive.tar_archive import TarArchive
from cowfs.store.origin.archive.zip_archive import ZipArchive
from cowfs.store.origin.contract import Origin


def open_archive(address: Address, origin: Origin, key: str) -> Archive:
    """The archive is the object `key` of the origin. NotFoundError: there is no such object. No
    content is read yet."""
    name = mask_secrets(address.place).strip("'")
    found = origin.look(key)
    if found is None:
        raise NotFoundError(f"there is no file at {name}", hint="Correct the URL, or the path.")
    return (ZipArchive if address.kind == "zip" else TarArchive)(name, Input(origin, found))
