"""The versions that programs look at inside a mount, under `.cowfs/versions`. Each has its own
read-only engine, index and residency, as a mount of that version has.

    name      the part after the @ of NAME@TAG or NAME@VERSION (`version/source_names`), except `{}`, which names another
              version after each commit. A whole id is a directory, anything else a link to one
    number    of its attachment, in the highest bits of its inodes' numbers: native/mounted gives it out, and gives it to
              another version when the kernel refers to nothing of this one

At most OPEN_MAX of them are open at once; beyond that, the least recently used are closed, unless a
file is open in them. The next access opens them again.

Looking at a version does not protect it, as for any reader. If it was collected meanwhile, reads
fail with EIO.

Any thread may call. A mount whose versions are not looked at pays nothing.
"""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial

from cowfs.base.errors import InvalidInputError, NotFoundError
from cowfs.base.fast_dataclass import dataclass
from cowfs.base.single_flight import Flights
from cowfs.native import Engine, NotResident
from cowfs.native.chunks import ChunkRef
from cowfs.session.opening import open_version_engine
from cowfs.session.residency.residency import Residency
from cowfs.session.session import Session
from cowfs.version.history import open_named
from cowfs.version.names import head_line, tags
from cowfs.version.names.head_line import Step
from cowfs.version.names.source_names import resolve_name
from cowfs.version.names.volumes import read_head
from cowfs.version.retention import pruned

OPEN_MAX = 16
NAMESPACE_BYTES = 24 << 20
"""The limit for one version, as the keeper's for the mount."""
CHUNK_BYTES = 2 << 20
"""Memory for decoded chunks of each version: the largest chunk."""


@dataclass
class _Look:
    stack: ExitStack
    engine: Engine
    residency: Residency
    users: int = 0


class Looks:
    """Loads what requests to a mount's server need: of the mount's own version, which is number 0,
    and of the others. is_listed: listings of the mount's root show `.cowfs`."""

    def __init__(self, session: Session, *, is_listed: bool) -> None:
        self._session = session
        self.engine = session.engine.with_versions(is_listed)
        """The engine from which the server answers."""
        self._lock = threading.Lock()  # guards everything below
        self._open: dict[int, _Look] = {}  # by the number of the attachment
        self._steps: dict[int, Step] = {}  # of the volume's line, by their first head
        self._is_closed = False
        self._flights: Flights[int, None] = Flights()

    def load_rows(self, missing: NotResident) -> Sequence[ChunkRef]:
        """As `Residency.load_rows`. OSError ENOENT: the name leads to no version."""
        if missing.what == "names":
            self.engine.list_versions(self._names())
        elif missing.what == "name":
            self._resolve(missing.name)
        elif missing.what == "closed":
            self._flights.load(missing.attachment, partial(self._open_version, missing.attachment, missing.name))
        else:
            with self._using(missing.attachment) as residency:
                return residency.load_rows(missing) if residency is not None else ()
        return ()

    def load_chunks(
        self, missing: NotResident, chunks: Sequence[ChunkRef], done: Callable[[BaseException | None], None]
    ) -> Sequence[Future[None]]:
        """As `Residency.load_chunks`, for the version of `missing`."""
        if missing.attachment == 0:
            return self._session.residency.load_chunks(chunks, done)
        with ExitStack() as stack:
            residency = stack.enter_context(self._using(missing.attachment))
            if residency is None:
                done(None)
                return ()
            using = stack.pop_all()

        def let_go(error: BaseException | None) -> None:
            using.close()
            done(error)

        try:
            return residency.load_chunks(chunks, let_go)
        except BaseException:
            using.close()
            raise

    def look_after(self) -> None:
        """Fails abandoned loads, as `Residency.fail_abandoned`, and keeps memory within bounds.
        Call regularly."""
        with self._lock:
            looks = list(self._open.values())
        for look in looks:
            look.residency.fail_abandoned()
            look.engine.evict(NAMESPACE_BYTES)

    def close(self) -> None:
        """Closes all versions; no request is answered after this."""
        with self._lock:
            self._is_closed = True
            looks, self._open = list(self._open.values()), {}
        for look in looks:
            look.stack.close()

    # -- names

    def _names(self) -> list[tuple[bytes, bytes | None]]:
        """The names of the versions of the volume's line, newest first, and of its tags."""
        store, volume = self._session.store, self._session.volume
        head = read_head(store, volume)
        hidden = pruned.read(store, volume)
        with self._lock:
            known = dict(self._steps)
        for step in head_line.steps(store, volume, head.number, hidden):
            is_known = step.first in known
            known[step.first] = step
            if is_known:
                break
        with self._lock:
            self._steps = known
        kept = (
            step.version
            for _, step in sorted(known.items(), reverse=True)
            if not all(hidden.has(number) for number in range(step.first, step.last + 1))
        )
        names: dict[bytes, bytes | None] = {version.hex().encode(): None for version in dict.fromkeys(kept)}
        for tag in tags.all_tags(store, volume):
            names.setdefault(tag.name.encode(), tag.version.hex().encode())
        return list(names.items())

    def _resolve(self, name: bytes) -> None:
        try:
            at = name.decode("ascii")
            if not at or "{" in at:
                raise NotFoundError(f"{at!r} names no version here")
            store, volume = self._session.store, self._session.volume
            if (version := resolve_name(store, volume, at)) is None:
                raise NotFoundError(f"volume {volume!r} has no version")
            whole = version.hex()
            if at == whole:
                open_named(store, volume, version)
        except (UnicodeDecodeError, InvalidInputError, NotFoundError):
            raise FileNotFoundError(errno.ENOENT, "no such version") from None
        self.engine.name_version(name, None if at == whole else whole.encode())

    # -- engines

    def _open_version(self, number: int, version: bytes) -> None:
        session = self._session
        spec = replace(session.spec, mode="ro", version=version.decode(), working_copy=None)
        with ExitStack() as stack:
            _, engine, residency = open_version_engine(
                spec, stack, session.store.read_only(), session.residency.linked, CHUNK_BYTES
            )
            look = _Look(stack.pop_all(), engine, residency)
        with self._lock:
            is_kept = not self._is_closed and self.engine.open_version(number, version, engine)
            if is_kept:
                self._open[number] = look
        if not is_kept:
            look.stack.close()
        self._close_oldest()

    def _close_oldest(self) -> None:
        closed = []
        with self._lock:
            for number in self.engine.open_versions()[:-OPEN_MAX]:
                look = self._open.get(number)
                if look is not None and look.users == 0 and self.engine.close_version(number):
                    closed.append(self._open.pop(number))
        for look in closed:
            look.stack.close()

    @contextmanager
    def _using(self, number: int) -> Iterator[Residency | None]:
        """Yields None if the version was closed; the request will open it again."""
        if number == 0:
            yield self._session.residency
            return
        with self._lock:
            if (look := self._open.get(number)) is not None:
                look.users += 1
        try:
            yield look.residency if look is not None else None
        finally:
            if look is not None:
                with self._lock:
                    look.users -= 1
