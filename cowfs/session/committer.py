"""Publishes layers of one working copy as versions: freeze, cut, upload, index, manifest, head.

One `Committer` per writable mount. `commit` and `upload_quiet` may be called from any thread; they are serialised.
Order (docs/architecture.md, "A commit"): nothing is named before it is durable; the head comes last. Crash points between
the steps are named `commit-*` (`cowfs.failpoints`).

A commit is bound to the head number it started from and creates exactly the next one. It is prepared again when a collection
has condemned what it relies on (`protection`), when a chunk it relies on could not be read meanwhile, and when a collection's
fence took its number; anything else at that number means that the line is lost.

After an error before the head the layer rejoins the working copy: nothing is lost, the next commit has it. After an
error of which the outcome is unknown the same head record is put again before anything else happens.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from cowfs import clock
from cowfs.errors import ConflictError, LeaseLostError
from cowfs.failpoints import hit
from cowfs.format import keys
from cowfs.format.catalogue import PREFIX_BYTES, CatalogueEntry, CataloguePack
from cowfs.format.heads import Intent
from cowfs.format.manifest import Manifest, Stats, version_id
from cowfs.format.pack import PackKind
from cowfs.format.records import HeadRecord
from cowfs.ids import ChunkHash, PackId, VersionId, WriteId
from cowfs.index import ChangeSet, publish
from cowfs.native import FileRows
from cowfs.session.early import EarlyUploads
from cowfs.session.layer_changes import files_of, layer_changes, layer_files
from cowfs.session.lost import LostFiles
from cowfs.store import refs
from cowfs.store.packs import PackReceipt, PackUploader
from cowfs.version.commit import Base, CommitRequest, Progress, ProgressListener
from cowfs.version.contents import ContentStorer
from cowfs.version.heads import is_only_fenced
from cowfs.version.known_chunks import KnownChunks
from cowfs.version.uploads import UploadLog
from cowfs.version.volumes import read_head

if TYPE_CHECKING:
    from cowfs.index import ExtentRow, Index
    from cowfs.native import Engine, LayerExtent
    from cowfs.session.residency import Residency
    from cowfs.store import ObjectStore
    from cowfs.store.packs import PackLocation
    from cowfs.version.protection import Protection

PREPARE_TRIES = 5
PROGRESS_S = 0.1


@dataclass(frozen=True)
class _Prepared:
    """Everything of a commit that is durable in the store, short of manifest and head."""

    layer: int | None
    contents: FileRows
    packs: Mapping[int, PackId]  # numbers that the base has not got
    catalogues: Sequence[bytes]  # of the new chunks
    index: Index  # opened already: behind the head nothing may fail that needs the store
    index_packs: frozenset[PackId]  # which it has uploaded
    manifest: Manifest
    data: bytes  # of the manifest
    version: VersionId
    lapses: int  # of the pin, before anything was looked up


class _NewChunks:
    """The catalogue's entries, made one by one; packs and raw_bytes are whole once they were gone through."""

    def __init__(
        self, chunks: Iterator[tuple[ChunkHash, PackLocation]], receipts: Mapping[PackId, PackReceipt]
    ) -> None:
        self.packs: list[CataloguePack] = []
        self.raw_bytes = 0
        self._chunks = chunks
        self._receipts = receipts
        self._order: dict[PackId, int] = {}

    def __iter__(self) -> Iterator[CatalogueEntry]:
        for hash, location in self._chunks:
            position = self._order.setdefault(location.pack, len(self.packs))
            if position == len(self.packs):
                receipt = self._receipts[location.pack]
                self.packs.append(CataloguePack(location.pack, receipt.directory_offset, receipt.directory_length))
            self.raw_bytes += location.raw_length
            yield CatalogueEntry(bytes(hash[:PREFIX_BYTES]), position, location.offset)


class Committer:
    def __init__(
        self,
        store: ObjectStore,
        *,
        volume: str,
        epoch: int,
        engine: Engine,
        index: Index,
        residency: Residency,
        base: Base,
        protection: Protection,
        record_intent: Callable[[Intent], None],
        record_published: Callable[[Intent], None],
        max_uploads: int = 50,
        uploads: UploadLog | None = None,
    ) -> None:
        self._store = store
        self._volume = volume
        self._epoch = epoch
        self._engine = engine
        self._index = index
        self._residency = residency
        self._base = base
        self._protection = protection
        self._record_intent = record_intent
        self._record_published = record_published
        self._max_uploads = max_uploads
        self.lost = LostFiles(engine, residency)
        self._mutex = threading.Lock()
        self._reader = residency.packs
        self._uploads = uploads or UploadLog(None)
        self._uploader = self._new_uploader(PackKind.DATA)
        resumed = self._uploads.load()
        self._receipts = {receipt.pack: receipt for receipt in resumed}
        self._uploaded_bytes = sum(receipt.size_bytes for receipt in resumed)  # of data packs no version counts yet
        self._numbers = residency.pack_numbers
        self._known = KnownChunks(
            store, self._reader, protection, volume=volume, section=index.section, uploaded=resumed
        )
        self._storer = ContentStorer(engine, self._known, self._numbers)
        self._early = EarlyUploads(engine, self._rows, self.lost.lose_unreadable)
        self._commit_waits = threading.Event()
        self._proven_lapses = protection.lapses
        self._unsettled: tuple[_Prepared, Intent, HeadRecord] | None = None

    @property
    def base(self) -> Base:
        """The last published state."""
        return self._base

    def commit(self, request: CommitRequest, progress: ProgressListener = lambda _: None) -> Base:
        """Publishes everything written before the call; returns the new base, or the same one if nothing changed and the request
        says no more than that version does.

        The first commit of a volume publishes even an empty tree. progress hears of "files" at most every PROGRESS_S and
        at the end, then of "index".
        LeaseLostError when another writer has head n+1: the layer rejoins the working copy, nothing is lost.
        CorruptError when the local disk has lost bytes of files that would be in the version (`lost`).
        """
        self._commit_waits.set()
        with self._mutex:
            self._commit_waits.clear()
            self._resume()
            if self._uploader.failure is not None:  # of a background upload, perhaps hours ago
                self._replace_uploader()
            before = self._base
            self.lost.refuse()
            layer = self._engine.freeze()
            if layer is None and before.manifest is not None and not request.says_more_than(before.manifest):
                return before
            try:
                self._residency.load_nameless()
                self._prepare_and_publish(layer, request, progress)
            except BaseException:
                if layer is not None and self._base.manifest is before.manifest and self._unsettled is None:
                    self._engine.layer_failed(layer)
                raise
            return self._base

    def upload_quiet(self, idle_s: float = 5.0) -> int:
        """Uploads chunks of files nobody has written for idle_s; a later commit finds them. Returns the staged bytes done.

        Does nothing while a commit runs, and stops after the file at hand when one wants to. The last, partly filled pack
        waits for the commit.
        """
        if not self._mutex.acquire(blocking=False):
            return 0
        try:
            if (failure := self._uploader.failure) is not None:
                self._replace_uploader()
                raise failure
            self._protection.read_lists()  # before anything is looked up
            self._prove_again()
            try:
                return self._early.upload(idle_s, self._commit_waits.is_set)
            except BaseException:
                self._replace_uploader()
                raise
        finally:
            self._mutex.release()

    def heed_collections(self) -> None:
        """Renews the pin, and acknowledges what collections have condemned, so that they need not wait for the next commit.

        One list request when nothing is new. Commits and uploads go on beside it. A head of unknown outcome is put again first.
        """
        if self._unsettled is not None and self._mutex.acquire(blocking=False):
            try:
                self._resume()
            finally:
                self._mutex.release()
        self._protection.acknowledge(self._base.head_number, self._known.uploaded_packs)

    def hold(self) -> None:
        """Uncommitted work stays here: what it stands on, and what it has uploaded, is kept for it."""
        self._protection.hold(self._base.head_number, self._known.uploaded_packs())

    def close(self) -> None:
        """Waits for a commit under way; lets go of threads. What was uploaded and not committed is garbage in the store."""
        with self._mutex:
            self._known.close()
            self._storer.close()
            self._uploader.close()

    # -- up to the manifest

    def _prepare_and_publish(self, layer: int | None, request: CommitRequest, progress: ProgressListener) -> None:
        """Repeats until nothing the version relies on has been condemned, or has failed to be read, meanwhile."""
        self._protection.read_lists()
        if not self._known.is_loaded:
            self._known.wait_loaded(self._engine.layer_totals(layer)[1] if layer is not None else 0)
        contents = FileRows()
        for _ in range(PREPARE_TRIES):
            if self._prove_again():
                contents = FileRows()
            contents = self._store_contents(layer, contents, progress)
            prepared = self._prepare(layer, contents, request, progress)
            try:
                with self._protection.publishing():
                    if self._may_be_published(prepared) and self._publish(prepared):
                        return
            except BaseException:
                self._abandon(prepared)
                raise
            prepared.index.close()
        raise ConflictError(
            "garbage collections kept condemning packs this commit needs", hint="Commit again; nothing is lost."
        )

    def _may_be_published(self, prepared: _Prepared) -> bool:
        if prepared.lapses != self._protection.lapses or prepared.index_packs & self._protection.condemned:
            return False
        if not (suspects := self._known.suspects):
            return True
        files = files_of(prepared.contents)
        return not any(self._is_stale(prepared.layer, ino, rows, suspects) for ino, _, rows in files)

    def _is_stale(self, layer: int | None, ino: int, rows: Sequence[ExtentRow], suspects: frozenset[PackId]) -> bool:
        """Whether the file must be stored again, because a chunk found for its new bytes cannot be relied on any more.

        What the base version has there already is as good as the base.
        """
        if not suspects:
            return False
        found = [
            (row[0], row[2])
            for row in rows
            if (pack := self._numbers.id(row[3])) in suspects and not self._known.is_usable(pack, ChunkHash(row[2]))
        ]
        if not found or layer is None:
            return False
        kept = {(extent.offset, extent.chunk.hash) for extent in self._engine.layer_extents(layer, ino) if extent.chunk}
        return any(chunk not in kept for chunk in found)

    def _store_contents(self, layer: int | None, earlier: FileRows, progress: ProgressListener) -> FileRows:
        """Uploads the layer's file contents; durable when it returns. earlier: what an earlier try has made of them."""
        contents = FileRows()
        if layer is None:
            return contents
        total, total_bytes = self._engine.layer_totals(layer)
        suspects = self._known.suspects
        done_bytes, told_s = 0, -PROGRESS_S
        try:
            for ino, version in layer_files(self._engine, layer):
                rows = self._made(layer, ino, version, earlier, suspects)
                if rows is None:
                    extents = self._engine.layer_extents(layer, ino)
                    try:
                        rows = self._rows(ino, extents)
                    except OSError as error:
                        self.lost.refuse_unreadable(layer, ino, error)
                    done_bytes += sum(each.length for each in extents if each.segment >= 0 and each.chunk is None)
                contents.put(ino, version, rows)
                is_last = contents.count() == total
                if clock.monotonic_s() - told_s >= PROGRESS_S or is_last:
                    bytes_now = total_bytes if is_last else min(done_bytes, total_bytes)
                    progress(Progress("files", contents.count(), total, bytes_now, total_bytes))
                    told_s = clock.monotonic_s()
            hit("commit-before-packs")
            self._claim(self._uploader.flush())
        except BaseException:
            self._replace_uploader()
            raise
        hit("commit-after-packs")
        return contents

    def _made(
        self, layer: int, ino: int, version: int, earlier: FileRows, suspects: frozenset[PackId]
    ) -> Sequence[ExtentRow] | None:
        """What an earlier try, or an early upload, has made of the file, if it still holds."""
        for made in (earlier, self._early.rows):
            if made.version(ino) == version and (found := made.get(ino)) is not None:
                return None if self._is_stale(layer, ino, found[1], suspects) else found[1]
        return None

    def _rows(self, ino: int, extents: Sequence[LayerExtent]) -> list[ExtentRow]:
        if ino < self._index.next_ino:
            self._storer.note(self._index.content(ino)[0])
        return self._storer.rows(extents, self._uploader)

    def _prepare(
        self, layer: int | None, contents: FileRows, request: CommitRequest, progress: ProgressListener
    ) -> _Prepared:
        """Index blocks and catalogue, durable when it returns, and the manifest that names them."""
        progress(Progress("index"))
        packs = self._numbers.new_among({row[3] for _, _, rows in files_of(contents) for row in rows})
        unchanged = ChangeSet(next_ino=self._index.next_ino)
        changes = unchanged if layer is None else layer_changes(self._engine, layer, contents, packs)
        with self._index.apply(changes) as delta:
            catalogue = _NewChunks(self._known.name(contents), self._receipts)
            uploader = self._new_uploader(PackKind.INDEX)
            try:
                published = publish(
                    delta,
                    uploader=uploader,
                    reader=self._reader,
                    base_section=self._index.section,
                    catalogue_packs=catalogue.packs,
                    catalogue=catalogue,
                )
            finally:
                uploader.close()
            hit("commit-after-index")
            stored = self._uploaded_bytes + sum(receipt.size_bytes for receipt in published.receipts)
            manifest = Manifest(
                volume=self._volume,
                parents=(self._base.version_id,) if self._base.version_id else (),
                index=published.section,
                stats=Stats(
                    files=delta.totals.files,
                    directories=delta.totals.directories,
                    bytes=delta.totals.bytes,
                    added_bytes=catalogue.raw_bytes,
                    stored_bytes_added=stored,
                ),
                created_ns=clock.now_ns(),
                message=request.message,
                author=request.author,
                labels=dict(request.labels),
                produced_by=dict(request.produced_by),
            )
            data = manifest.encode()
            version = version_id(data)
            index = delta.as_index(published.section)
        return _Prepared(
            layer,
            contents,
            packs,
            published.catalogues,
            index,
            frozenset(receipt.pack for receipt in published.receipts),
            manifest,
            data,
            version,
            self._proven_lapses,
        )

    # -- the head

    def _publish(self, prepared: _Prepared) -> bool:
        """Manifest and head. False: a collection's fence came first, so that everything must be prepared again behind it."""
        self._store.put(keys.version(prepared.version), prepared.data)
        hit("commit-after-manifest")
        number = self._base.head_number + 1
        intent = Intent(number, WriteId(clock.random_bytes(WriteId.length)), prepared.version, prepared.layer or 0)
        record = HeadRecord(
            kind="commit",
            version=prepared.version,
            epoch=self._epoch,
            created_ns=prepared.manifest.created_ns,
            write_id=intent.write_id,
        )
        self._record_intent(intent)
        hit("commit-before-head")
        try:
            self._put_head(prepared, intent, record)
        except ConflictError as error:
            self._move_behind_fences(error)
            return False
        return True

    def _resume(self) -> None:
        """Puts the head of which the outcome is not known, again with the same bytes, before anything else is done."""
        if self._unsettled is None:
            return
        prepared, intent, record = self._unsettled
        try:
            self._put_head(prepared, intent, record)
        except ConflictError as error:
            prepared.index.close()
            if prepared.layer is not None:
                self._engine.layer_failed(prepared.layer)
            self._move_behind_fences(error)

    def _put_head(self, prepared: _Prepared, intent: Intent, record: HeadRecord) -> None:
        """Creates the head and moves the working copy to it. UnavailableError: unknown, `_resume` tries again."""
        self._unsettled = prepared, intent, record
        self._protection.is_bound = True
        try:
            refs.append(self._store, refs.head(self._volume), intent.number, record)
        except ConflictError:
            self._settled()
            raise
        hit("commit-after-head")
        self._record_published(intent)
        self._settled()
        hit("commit-after-published")
        before, self._index = self._index, prepared.index
        self._base = Base(intent.number, prepared.version, prepared.manifest)
        self._residency.rebase(self._index, prepared.packs)
        if prepared.layer is not None:
            self._engine.layer_committed(prepared.layer, prepared.contents)
        self._early.forget()
        self._uploaded_bytes = 0
        self._known.published(prepared.catalogues, prepared.manifest.index)
        left = self._known.uploaded_packs()
        self._receipts = {pack: receipt for pack, receipt in self._receipts.items() if pack in left}
        self._uploads.replace(self._receipts.values())
        before.close()

    def _settled(self) -> None:
        self._unsettled = None
        self._protection.is_bound = False

    def _abandon(self, prepared: _Prepared) -> None:
        """After an error: closes what no version will be, unless its head is, or may be, in the line."""
        if self._unsettled is None and prepared.index is not self._index:
            prepared.index.close()

    def _move_behind_fences(self, error: ConflictError) -> None:
        """Our number was taken. Only a collection's fences leave the line to us: the next commit starts from the last of them."""
        head = read_head(self._store, self._volume)
        is_ours = head.version == self._base.version_id and head.epoch == self._epoch
        if not is_ours or not is_only_fenced(self._store, self._volume, self._base.head_number, head):
            raise LeaseLostError(
                f"another writer went on with volume {self._volume!r}; this commit was not published",
                hint="Nothing is lost: the work is kept in the working copy. Fork it under another name.",
                details={"volume": self._volume, "epoch": head.epoch, "version": str(head.version or "")},
            ) from error
        self._base = replace(self._base, head_number=head.number)
        self._proven_lapses = -1  # a fence says that the collection took the pin for dead

    # -- packs

    def _new_uploader(self, kind: PackKind) -> PackUploader:
        note = self._uploads.append if kind == PackKind.DATA else lambda receipt: None
        return PackUploader(self._store, kind, max_uploads=self._max_uploads, on_durable=note)

    def _prove_again(self) -> bool:
        """After the pin was dead, or taken for dead: whatever no head names is looked for, and what was seen counts no longer.

        Returns whether that was so: what was prepared before must then be prepared anew.
        """
        if self._proven_lapses == self._protection.lapses:
            return False
        lapses, missing = self._protection.prove_alive(self._base.head_number, self._known.uploaded_packs())
        self._known.prove_again(missing)
        self._early.forget()
        self._proven_lapses = lapses
        return True

    def _claim(self, receipts: Iterable[PackReceipt]) -> None:
        for receipt in receipts:
            self._receipts[receipt.pack] = receipt
            self._uploaded_bytes += receipt.size_bytes

    def _replace_uploader(self) -> None:
        """After a failed upload: what no receipt proves is forgotten and will be stored again."""
        self._uploader.close()
        self._claim(self._uploader.take_durable())
        self._uploader = self._new_uploader(PackKind.DATA)
        self._early.forget()
        self._known.forget_unproven(self._receipts.keys())
