"""Reads a whole pack and checks every byte of it: header, directory, footer, each blob's hash. A
plain pack does not state its own id; a blob that a version names in it identifies it. Apparent
damage is confirmed by a second read (`store.reliability.damaged`).

Memory: the pack, some 16 MiB for those that cowfs writes. Any thread may call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from cowfs.base.errors import CorruptError, NotFoundError
from cowfs.base.fast_dataclass import dataclass
from cowfs.base.ids import PackId
from cowfs.base.thread_pool import Helpers
from cowfs.format import codec, keys
from cowfs.format.pack import PackDirectory, PackEntry, PackKind, parse_pack
from cowfs.format.sealing import Sealing
from cowfs.store import ObjectStore
from cowfs.store.reliability.damaged import read_as
from cowfs.store.sealed import sealing_of

THREADS = 4


@dataclass(frozen=True)
class PackState:
    """The result of a check. problem "": everything is right. directory None: it cannot be trusted,
    or the pack is gone. broken: offsets of listed blobs whose bytes do not match their hash."""

    pack: PackId
    size: int
    problem: str = ""
    is_gone: bool = False
    kind: PackKind | None = None
    directory: PackDirectory | None = None
    broken: frozenset[int] = frozenset()

    def has_whole(self, blob: PackEntry) -> bool:
        """Whether exactly this blob was read from the pack and is right."""
        return (
            self.directory is not None
            and blob.offset not in self.broken
            and self.directory.find_at(blob.offset) == blob
        )


Heard = Callable[[PackState], None]
Expected = tuple[PackId, PackEntry | None]
"""A pack, and a blob that a version names in it, if there is one."""


def check_pack(store: ObjectStore, pack: PackId, named: PackEntry | None = None) -> PackState:
    """As `read_pack`, without the bytes."""
    return read_pack(store, pack, named)[0]


def read_pack(store: ObjectStore, pack: PackId, named: PackEntry | None = None) -> tuple[PackState, bytes]:
    """Returns the result, and the pack's bytes if everything is right. named: as for `check_bytes`.
    Errors of the store itself are raised: a pack that could not be fetched is not a damaged one."""
    state: PackState | None = None

    def check_read(data: bytes) -> tuple[PackState, bytes]:
        nonlocal state
        state = check_bytes(data, pack, sealing_of(store), named)
        if state.problem:
            raise CorruptError(state.problem)
        return state, data

    try:
        return read_as(store, keys.pack(pack), check_read)
    except NotFoundError:
        return PackState(pack, 0, "it is gone", is_gone=True), b""
    except CorruptError as error:
        return state or PackState(pack, 0, error.message), b""


def check_packs(store: ObjectStore, packs: Sequence[Expected], heard: Heard = lambda state: None) -> list[PackState]:
    """Checks THREADS packs at a time, each in memory whole. The result of a pack that is right has
    no details, to keep the answer small. heard: called with each result, on several threads."""

    def check(expected: Expected) -> PackState:
        pack, named = expected
        state = check_pack(store, pack, named)
        heard(state)
        return state if state.problem else PackState(pack, state.size)

    with Helpers(THREADS, name="cowfs-verify") as threads:
        return list(threads.map(check, packs))


def check_bytes(data: bytes, pack: PackId, sealing: Sealing, named: PackEntry | None = None) -> PackState:
    """named: a blob that a version names in this pack, to tell it from other packs."""
    blobs = sealing.pack(pack)
    try:
        kind, directory = parse_pack(data, what=f"pack {pack}", blobs=blobs)
    except CorruptError as error:
        return PackState(pack, len(data), error.message)
    broken = frozenset(entry.offset for entry in directory if not is_right(data, entry, pack, sealing))
    problem = f"{len(broken)} of its {len(directory)} blobs do not match their hash" if broken else ""
    state = PackState(pack, len(data), problem, kind=kind, directory=directory, broken=broken)
    if named is None or problem or state.has_whole(named):
        return state
    return replace(state, problem="it is another pack: it does not contain the blobs that versions name in it")


def is_right(data: bytes, entry: PackEntry, pack: PackId, sealing: Sealing) -> bool:
    stored = memoryview(data)[entry.offset : entry.offset + entry.stored_length]
    what = f"the blob at {entry.offset} of pack {pack}"
    try:
        plain = sealing.pack(pack).open(stored, entry.offset, entry.codec, entry.raw_length, what=what)
        codec.decompress(plain, entry.codec, entry.raw_length, entry.hash, what, name=sealing.name)
    except CorruptError:
        return False
    return True
