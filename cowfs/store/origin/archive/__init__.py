"""Archives (tar, compressed or not, and zip) that an import reads: one pass, in the archive's
order, to the last byte.

    URL ─▶ address ─▶ input: the archive's bytes, read ahead ─▶ unpacked ─▶ tar ─┬▶ members, one after the other
                                    └───────────────────────────────────▶ zip ───┘

`open_archive` makes one from a URL like `tar://::s3://bucket/set.tar.gz`. The archive itself is an
object of an origin (`store.origin`), so requests are repeated and states are compared as for any
import. An error in the archive is a `Damaged`, which is never repeated.
"""

from __future__ import annotations

from cowfs.store.origin.archive.address import Address, address_of
from cowfs.store.origin.archive.members import Archive, Damaged, Member
from cowfs.store.origin.archive.open_archive import open_archive

__all__ = ["Address", "Archive", "Damaged", "Member", "address_of", "open_archive"]
