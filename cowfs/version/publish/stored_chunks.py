"""The chunks that a writer's next version may name: those that it has stored, and those that it has
found.

    rows      cut, look up, else compress and add to a pack     (`contents`, `known_chunks`, `PackUploader`)
    send      uploads every pack; the contents of its receipt are known
    stored    every chunk that rows name is durable when it ends
    is_stale  whether rows made earlier name a chunk that can no longer be relied on

Two events invalidate earlier results. A failed upload: its pack was never stored. And a pin that
was dead, or that a collection declared dead: the packs that it protected may be gone, so every pack
of this writer is looked for, and earlier observations no longer count (`prove`). Both raise
`doubts`; rows made before then must be made again.

A pack that is durable and in no version yet is recorded in `UploadLog`, and found again after a
restart. For one thread at a time, except for `list_uploaded_packs`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, partial
from typing import TYPE_CHECKING

from cowfs.base import clock
from cowfs.base.ids import ChunkHash, PackId
from cowfs.format.manifest import IndexSection
from cowfs.format.pack import PackKind
from cowfs.store.packs import PackReceipt, PackUploader, load_purged
from cowfs.version.publish.contents import ContentStorer
from cowfs.version.publish.known_chunks import KnownChunks
from cowfs.version.publish.recut import E
from cowfs.version.publish.uploads import UploadLog

if TYPE_CHECKING:
    from cowfs.format.codec import Blob
    from cowfs.format.sealing import Sealing
    from cowfs.index import ExtentRow
    from cowfs.native.chunks import FileRows, SmallFiles
    from cowfs.store import ObjectStore
    from cowfs.store.packs import PackReader
    from cowfs.version.publish.cut_file import ReadInto
    from cowfs.version.publish.pack_numbers import PackNumbers
    from cowfs.version.publish.protection import Protection
    from cowfs.version.publish.recut import Read


FEW_BYTES = 64 << 10


class StoredChunks:
    """section: of the base version's index, whose catalogues are searched first."""

    def __init__(
        self,
        store: ObjectStore,
        *,
        volume: str,
        section: IndexSection | None,
        packs: PackReader,
        numbers: PackNumbers,
        protection: Protection,
        new_uploader: Callable[..., PackUploader],
        uploads: UploadLog,
    ) -> None:
        self._store = store
        self._numbers = numbers
        self._protection = protection
        self._make_uploader = new_uploader
        self._uploads = uploads
        self._uploader = self._new_uploader()
        resumed = uploads.load()
        self._receipts = {receipt.pack: receipt for receipt in resumed}
        self._stored_s = {receipt.pack: -math.inf for receipt in resumed}
        self._sent: dict[PackId, PackReceipt] = {}  # packs being uploaded
        self._uploaded_bytes = sum(receipt.size_bytes for receipt in resumed)
        self._known = KnownChunks(store, packs, protection, volume=volume, section=section, uploaded=resumed)
        self._storer = ContentStorer(self._known, numbers, packs.sealing)
        self._proven_lapses = protection.lapses
        self._doubts = 0

    def close(self) -> None:
        """Ends the threads. Uploaded packs without a version are garbage in the store."""
        self._known.close()
        self._storer.close()
        self._uploader.close()

    # -- storing

    @contextmanager
    def storing(self, number: int) -> Iterator[None]:
        """Around `rows` that are made before there is a version to publish, on head `number`. The
        last, partly filled pack waits for that version. Raises the error of a background upload
        since the last call, once.
        """
        if (failure := self._uploader.failure) is not None:
            self._replace_uploader()
            raise failure
        self._protection.read_lists()  # before any look-up
        self.prove(number)
        try:
            yield
        except BaseException:
            self._replace_uploader()
            self._storer.rest()
            raise

    def rest(self) -> None:
        """Frees the memory reserved since `storing`: nothing more is stored for a while."""
        self._uploader.rest()
        self._storer.rest()

    @contextmanager
    def make_durable(self) -> Iterator[None]:
        """Around `rows` of a version that is about to be published: their chunks are durable when
        the block ends. Call `send` inside, after the last of them."""
        if self._uploader.failure is not None:  # of a background upload, perhaps hours ago
            self._replace_uploader()
        try:
            yield
            self._claim(self._uploader.flush())
            self._sent = {}
        except BaseException:
            self._replace_uploader()
            raise
        finally:
            self._storer.rest()

    def send(self) -> None:
        """Uploads all packs: no more `rows` follow."""
        self._sent = {receipt.pack: receipt for receipt in self._uploader.send()}

    def rows(self, extents: Sequence[E], read: Read[E], earlier: Iterable[ExtentRow] = ()) -> list[ExtentRow]:
        """Stores the content of a file, and returns all its rows. earlier: rows of the file's
        earlier content, which is searched for equal chunks first."""
        self._storer.note(earlier)
        return self._storer.rows(extents, read, self._uploader)

    def put_small(self, files: SmallFiles, rows: FileRows, earlier: Iterable[ExtentRow] = ()) -> None:
        """As `rows`, for many small files, whose rows are added to `rows`. No other thread may
        store meanwhile: each would store a chunk that both have."""
        self._storer.note(earlier)
        self._known.find_small(files)
        files.compress(self.compresses)
        self._uploader.add_small(files)
        numbers = {pack: self._numbers.number(PackId(pack)) for pack in files.packs()}
        self._known.finish_small(files, numbers, rows)

    def blob_rows(self, blob: Blob, length: int, earlier: Iterable[ExtentRow] = ()) -> list[ExtentRow]:
        """As `rows`, for a small file that is one blob, of `length` raw bytes, named by
        `name_key`."""
        self._storer.note(earlier)
        return self._storer.blob_rows(blob, length, self._uploader)

    @property
    def sealing(self) -> Sealing:
        """How the store's chunks are cut and named."""
        return self._uploader.sealing

    @property
    def name_key(self) -> bytes | None:
        """The key by which blobs are named, as of `Sealing`."""
        return self._uploader.sealing.name_key

    @property
    def compresses(self) -> bool:
        """Whether chunks are compressed if that saves space."""
        return self._uploader.compresses

    def file_rows(
        self,
        ranges: Iterable[tuple[int, int]],
        read_into: ReadInto,
        earlier: Iterable[ExtentRow] = (),
        *,
        goes_on: bool = False,
    ) -> list[ExtentRow]:
        """As `rows`, for a large file with its own bytes in `ranges`, (offset, length) in order,
        and holes elsewhere; goes_on: as for `cut_file`."""
        self._storer.note(earlier)
        return self._storer.file_rows(ranges, read_into, self._uploader, goes_on=goes_on)

    @property
    def has_room(self) -> bool:
        """Whether two more packs can be stored without waiting for the store."""
        return self._uploader.has_room

    def find_rows(self, parts: Iterable[tuple[int, int, ChunkHash]]) -> list[ExtentRow] | None:
        """The rows of a file of these complete chunks, (offset, length, hash) in order; None: one
        of them is not known to be in the store."""
        return self._storer.find_rows(parts)

    def find_purged(self, rows_of: Callable[[int], Iterable[ExtentRow]]) -> Callable[[int], bool]:
        """Returns a function that tells whether a purge took one of the chunks of an inode of the
        base: then equal bytes have to be stored again. rows_of: its rows. The first call sends a
        request; of a store without purges, `rows_of` is not called."""
        load = cache(partial(load_purged, self._store))

        def is_purged(ino: int) -> bool:
            purged = load()
            return bool(purged) and any(purged.has(self._numbers.id(row[3]), ChunkHash(row[2])) for row in rows_of(ino))

        return is_purged

    def wait_for_catalogues(self, new_bytes: int) -> None:
        """Waits until the store's chunks are known, as long as waiting pays for that many new
        bytes; for FEW_BYTES a request would cost more than it can save."""
        if new_bytes > FEW_BYTES and not self._known.is_loaded:
            self._known.wait_loaded(new_bytes)

    @property
    def knows_store(self) -> bool:
        """Whether the store's chunks are known as far as waiting for them pays, so that known ones
        are not stored again. Returns at once."""
        return self._known.is_ready

    def expect_work(self) -> None:
        """Starts loading the store's chunks: there will be something to store soon."""
        self._known.begin()

    def wait_for_uploads(self) -> None:
        """Waits until the uploads of an earlier writer of this working copy, and the chunks of the
        base version, are known; a moment longer for other volumes."""
        self._known.wait_own_loaded()
        self._known.wait_loaded()

    def take_up(self, receipts: Sequence[PackReceipt]) -> None:
        """Adds packs that others have just stored for this writer: they count as its own. Reads
        their directories."""
        for receipt in receipts:
            self._note(receipt)
        self._claim(receipts)
        self._known.take_up(receipts)

    # -- relying on stored chunks

    @property
    def doubts(self) -> int:
        """Rises when chunks that counted as stored may be gone: rows made before then no longer
        count."""
        return self._doubts

    @property
    def proven_lapses(self) -> int:
        """The number of lapses of the protection up to which everything known here was proven to
        exist."""
        return self._proven_lapses

    @property
    def suspects(self) -> frozenset[PackId]:
        """Packs with chunks that cannot be relied on."""
        return self._known.suspects

    def is_stale(
        self,
        rows: Sequence[ExtentRow],
        suspects: frozenset[PackId],
        kept: Callable[[], Collection[tuple[int, bytes, int]]],
    ) -> bool:
        """Whether a file must be stored again, because a chunk found for its new bytes can no
        longer be relied on.

        kept: returns (offset, chunk hash, number of its pack) of its content in the base version,
        which is as good as the base; the same chunk in another pack is not. Called only if it
        matters.
        """
        if not suspects:
            return False
        found = [
            (row[0], row[2], row[3])
            for row in rows
            if (pack := self._numbers.id(row[3])) in suspects and not self._known.is_usable(pack, ChunkHash(row[2]))
        ]
        if not found:
            return False
        known = kept()
        return any(chunk not in known for chunk in found)

    def prove(self, number: int) -> None:
        """If the pin was dead, or declared dead, since the last time: looks for packs without a
        head in the store, and drops earlier observations. number: of the head that the work is
        based on."""
        if self._proven_lapses == self._protection.lapses:
            return
        lapses, missing = self._protection.prove_alive(number, self._known.list_uploaded_packs())
        self._known.prove_again(missing)
        self._doubts += 1
        self._proven_lapses = lapses

    def forget_proofs(self) -> None:
        """A collection's fence shows that it declared the pin dead."""
        self._proven_lapses = -1

    # -- additions of a version

    def list_uploaded_packs(self) -> set[PackId]:
        """Packs with chunks that no version names yet. Thread-safe."""
        return self._known.list_uploaded_packs()

    @property
    def uploaded_bytes(self) -> int:
        """Size of the data packs that were stored since the last version."""
        return self._uploaded_bytes

    def was_stored_since(self, pack: PackId, time_s: float) -> bool:
        """Whether this writer has stored the pack at that time or later. False once it is in a
        version."""
        return self._stored_s.get(pack, -math.inf) >= time_s

    def receipt(self, pack: PackId) -> PackReceipt:
        """The receipt of a pack that was stored here, or sent, and is in no version."""
        return self._receipts.get(pack) or self._sent[pack]

    def new_packs(self, contents: FileRows) -> dict[int, PackId]:
        """The packs that rows name by a number that no version has yet."""
        return self._numbers.new_among(contents.packs())

    def name(self, contents: FileRows) -> Iterator[tuple[bytes, list[PackId], int]]:
        """As `KnownChunks.name`: the new entries of the version's catalogues."""
        return self._known.name(contents)

    def record_published(self, catalogues: Sequence[bytes], section: IndexSection) -> None:
        """A version with the last named chunks was published; these are its new catalogues."""
        self._uploaded_bytes = 0
        self._known.record_published(catalogues, section)
        left = self._known.list_uploaded_packs()
        for pack in self._receipts.keys() - left:
            self._stored_s.pop(pack, None)
        self._receipts = {pack: receipt for pack, receipt in self._receipts.items() if pack in left}
        self._uploads.replace(self._receipts.values())

    # -- packs

    def _new_uploader(self) -> PackUploader:
        return self._make_uploader(PackKind.DATA, on_durable=self._note)

    def _note(self, receipt: PackReceipt) -> None:
        self._stored_s[receipt.pack] = clock.monotonic_s()
        self._uploads.append(receipt)

    def _claim(self, receipts: Iterable[PackReceipt]) -> None:
        for receipt in receipts:
            self._receipts[receipt.pack] = receipt
            self._uploaded_bytes += receipt.size_bytes

    def _replace_uploader(self) -> None:
        """After a failed upload, forgets chunks without a receipt, so that they are stored
        again."""
        self._uploader.close()
        self._claim(self._uploader.take_durable())
        self._sent = {}
        self._uploader = self._new_uploader()
        self._doubts += 1
        self._known.forget_unproven(self._receipts.keys())
