"""Copies files of a version (`VersionTree`) to a directory of this machine (`LocalFiles`).

A directory's contents go into the target directory, which is created if it is missing, so that
copying again gives the same tree. An existing directory keeps its own permissions and time.

    kept        contents with their holes, permissions (but set-id bits), times of modification, symbolic links as they
                are, hard links among the copied files
    not kept    owners, extended attributes; special files are counted and left out

A file replaces a file or a link; a directory is never replaced, nor created in place of a file. A
special file is never replaced. Before anything is written, the copy checks for names that the
target would treat as one (`names_alike`), and for directories too deep for a path.

A large file whose source can tell which parts exist already (`Resumes`) is written under a
temporary name that can be found again, so a copy that was interrupted continues within the file.
The remains of a killed copy are removed if they were for a file of the source's directory and the
source has no file of that name.

Several threads copy files, because stores may be slow; the first error ends the copy. A file whose
bytes were purged does not end it: the copy fails at its end, when all other files are there.
"""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from cowfs.base import clock, interruptible
from cowfs.base.errors import ConflictError, CorruptError, PurgedError
from cowfs.base.fast_dataclass import dataclass
from cowfs.base.thread_pool import Helpers
from cowfs.machine.folders.stamps import is_special
from cowfs.transfer.local_files import part_name
from cowfs.transfer.names_alike import groups
from cowfs.transfer.upload.upload_plan import NAMED_SKIPPED
from cowfs.version.commit import Progress, ProgressListener

if TYPE_CHECKING:
    from cowfs.transfer.local_files import Clones, LocalFiles

THREADS = 8
WAITING_MAX = 512
REPORT_S = 0.1
RESUMED_BYTES = 8 << 20
"""Smaller files are copied from their beginning again: that takes a request or two."""
KEPT_BITS = 0o1777


class Attributes(Protocol):
    @property
    def ino(self) -> int: ...
    @property
    def mode(self) -> int: ...
    @property
    def nlink(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def mtime_ns(self) -> int: ...


class SourceTree(Protocol):
    def stat(self, path: bytes) -> Attributes: ...
    def list(self, path: bytes) -> Sequence[tuple[bytes, Attributes]]: ...
    def readlink(self, path: bytes) -> bytes: ...
    def pieces(self, path: bytes) -> Generator[tuple[int, bytes]]: ...


class Resumes(Protocol):
    """The methods of `VersionTree` for files that are partly copied, or may be complete."""

    def content_id(self, path: bytes) -> str: ...
    def missing(
        self, path: bytes, there: Callable[[int, int], bytes], kept: Callable[[int], None]
    ) -> Generator[tuple[int, bytes]]: ...
    def is_content(self, path: bytes, fd: int) -> bool: ...


# (path in the source, path in the target, attributes in the source)
Keeps = Callable[[bytes, bytes, Attributes], bool]
# attributes in the source -> extended attributes of the file in the target
Marks = Callable[[Any], Sequence[tuple[bytes, bytes]]]


@dataclass(frozen=True)
class Copied:
    """Counts of a copy. skipped: special files that were left out; skipped_paths: the first of
    them. bytes: of the files' sizes. unchanged: files that existed already."""

    files: int = 0
    directories: int = 0
    symlinks: int = 0
    bytes: int = 0
    skipped: int = 0
    unchanged: int = 0
    skipped_paths: tuple[str, ...] = ()


def copy(
    source: SourceTree,
    at: bytes,
    target: LocalFiles,
    to: bytes,
    report: ProgressListener | None = None,
    *,
    keeps: Keeps = lambda path, there, attr: False,
    expect: Callable[[bytes, Any], None] = lambda path, attr: None,
    resumes: Resumes | None = None,
    marks: Marks = lambda attr: (),
    clones: Clones | None = None,
    tells_apart: bool = False,
) -> Copied:
    """Copies `at` in `source` to `to` in `target`, whose parent directory must exist. report
    receives the stage "copy". keeps: whether the existing file or link `there` in the target stays.
    expect is called for each file before it is read. resumes: the source, if it can resume large
    files. marks: extended attributes for each file that is read. clones: for large files of a
    source that can resume them. tells_apart: the target is known to keep all names apart.
    ConflictError: it treats two names of the source as one. PurgedError: bytes of files were
    purged; all others were copied."""
    return _Copy(source, target, report, keeps, expect, resumes, marks, clones, tells_apart).run(at, to)


class _Copy:
    """One copy. A thread walks the directories, its helpers copy files."""

    def __init__(
        self,
        source: SourceTree,
        target: LocalFiles,
        report: ProgressListener | None,
        keeps: Keeps,
        expect: Callable[[bytes, Any], None],
        resumes: Resumes | None,
        marks: Marks,
        clones: Clones | None,
        tells_apart: bool,
    ) -> None:
        self._source = source
        self._target = target
        self._report = report
        self._keeps = keeps
        self._expect = expect
        self._resumes = resumes
        self._marks = marks
        self._clones = clones
        self._tells_apart = tells_apart
        self._lock = threading.Lock()  # guards the counts, `_error`, `_purged` and `_left`, which helpers change
        self._room = threading.BoundedSemaphore(WAITING_MAX)
        self._is_stopped = False
        self._error: BaseException | None = None
        self._done = dict.fromkeys(("files", "directories", "symlinks", "bytes", "skipped", "unchanged"), 0)
        self._skipped: list[str] = []
        self._purged: dict[bytes, str] = {}  # path in the target → path in the source
        self._done_bytes = 0
        self._total = (0, 0)
        self._reported_s = 0.0
        self._named: dict[int, bytes] = {}  # files with several names: path of the first one in the target
        self._links: list[tuple[bytes, bytes, str]] = []  # existing and new path in the target, path in the source
        self._directories: list[tuple[bytes, Attributes]] = []
        self._left: list[bytes] = []  # remains of large files from a killed copy

    def run(self, at: bytes, to: bytes) -> Copied:
        first = self._source.stat(at)
        interruptible.run(lambda: self._copy_all(at, to, first), self._stop)
        for existing, path, name in self._links:
            if existing in self._purged:
                self._purged[path] = name
            else:
                self._target.link(existing, path)
        for path in self._left:
            self._target.remove_left(path)
        for path, attr in reversed(self._directories):  # last, since new entries change a directory's time
            self._target.set_attributes(path, mode=attr.mode & KEPT_BITS, mtime_ns=attr.mtime_ns)
        self._tell(0, is_last=True)
        if self._purged:
            raise name_purged(sorted(self._purged.values()))
        return Copied(**self._done, skipped_paths=tuple(self._skipped))

    def _copy_all(self, at: bytes, to: bytes, first: Attributes) -> None:
        if self._report is not None or not self._tells_apart:
            self._total = self._count_source(at, to, first)
        with Helpers(THREADS, name="cowfs-copy") as helpers:
            try:
                self._walk(at, to, first, lambda *file: self._submit(helpers, *file))
            except BaseException:
                self._stop()
                raise
        if self._error is not None:
            raise self._error
        if not self._is_stopped:
            self._target.settle()

    def _stop(self) -> None:
        self._is_stopped = True

    def _walk(
        self, at: bytes, to: bytes, first: Attributes, submit: Callable[[bytes, bytes, Attributes], None]
    ) -> None:
        waiting = [(at, to, first)]
        while waiting and not self._is_stopped:
            path, there, attr = waiting.pop()
            if stat.S_ISDIR(attr.mode):
                self._count(directories=1)
                is_made = self._target.make_directory(there)
                if is_made or there != to:
                    self._directories.append((there, attr))
                entries = self._source.list(path)
                if not is_made:
                    self._left += self._target.tidy(there, (name for name, _ in entries))
                waiting += ((_below(path, name), _below(there, name), each) for name, each in reversed(entries))
            elif is_special(attr.mode):
                self._count(skipped=1)
                if len(self._skipped) < NAMED_SKIPPED:
                    self._skipped.append(os.fsdecode(path))
            elif attr.nlink > 1 and attr.ino in self._named:
                self._name(path, there, attr)
            else:
                if attr.nlink > 1:
                    self._named[attr.ino] = there
                if stat.S_ISLNK(attr.mode):
                    if not self._keeps(path, there, attr):
                        self._target.symlink(there, self._source.readlink(path), mtime_ns=attr.mtime_ns)
                    self._count(symlinks=1)
                elif self._keeps(path, there, attr):
                    self._count(files=1, bytes=attr.size, unchanged=1)
                    self._tell(attr.size)
                else:
                    self._expect(path, attr)
                    submit(path, there, attr)

    def _name(self, path: bytes, there: bytes, attr: Attributes) -> None:
        """Links another name to a file that is in the target by now."""
        is_kept = self._keeps(path, there, attr)  # may raise
        self._links.append((self._named[attr.ino], there, os.fsdecode(path)))
        if stat.S_ISLNK(attr.mode):
            self._count(symlinks=1)
        else:
            self._count(files=1, bytes=attr.size, unchanged=int(is_kept))

    def _submit(self, helpers: Helpers, *file: Any) -> None:
        self._room.acquire()
        future = helpers.submit(self._copy_file, *file)
        future.add_done_callback(lambda _: self._room.release())

    def _copy_file(self, path: bytes, there: bytes, attr: Attributes) -> None:
        resumed = None
        try:
            if self._is_stopped:
                return
            kept = {"mode": attr.mode & KEPT_BITS, "mtime_ns": attr.mtime_ns}
            if (resumed := self._find_resumable(path, there, attr)) is not None:
                resumes, content_id = resumed
                missing = partial(self._missing, resumes, path)
                self._target.put_rest(there, missing, content_id=content_id, clones=self._clones, **kept)
            else:
                with closing(self._source.pieces(path)) as pieces:  # its tree may be closed before it is collected
                    self._target.put(there, self._watch(path, pieces), xattrs=self._marks(attr), **kept)
        except _Stopped:
            pass
        except PurgedError:
            with self._lock:
                self._purged[there] = os.fsdecode(path)
                if resumed is not None:
                    directory, _, name = there.rpartition(b"/")
                    self._left.append(_below(directory, part_name(name, resumed[1])))
        except BaseException as raised:  # noqa: BLE001 — on a helper thread; the main thread raises it
            error: BaseException = raised
            if isinstance(raised, _SourceError):
                error = raised.error
            elif isinstance(raised, OSError):
                raised.filename = raised.filename or os.fsdecode(there)
            with self._lock:
                self._error = self._error or error
            self._stop()

    def _find_resumable(self, path: bytes, there: bytes, attr: Attributes) -> tuple[Resumes, str] | None:
        """The source and the file's content id if the file can be resumed: not if the source itself
        has a file with the name of the partial file."""
        if self._resumes is None or attr.size < RESUMED_BYTES:
            return None
        content_id = self._resumes.content_id(path)
        part = part_name(there.rpartition(b"/")[2], content_id)
        try:
            self._source.stat(_below(path.rpartition(b"/")[0], part))
        except FileNotFoundError:
            return self._resumes, content_id
        return None

    def _missing(
        self, source: Resumes, path: bytes, there: Callable[[int, int], bytes]
    ) -> Generator[tuple[int, bytes]]:
        def count_kept(length: int) -> None:
            if self._is_stopped:
                raise _Stopped
            self._tell(length)

        with closing(source.missing(path, there, count_kept)) as pieces:
            yield from self._watch(path, pieces)

    def _watch(self, path: bytes, pieces: Iterator[tuple[int, bytes]]) -> Iterator[tuple[int, bytes]]:
        size = 0
        while (piece := _next(path, pieces)) is not None:
            if self._is_stopped:
                raise _Stopped
            yield piece
            size = max(size, piece[0] + len(piece[1])) if piece[1] else piece[0]
            self._tell(len(piece[1]))
        self._count(files=1, bytes=size)

    def _count_source(self, at: bytes, to: bytes, first: Attributes) -> tuple[int, int]:
        """Counts files and their bytes. ConflictError: two of them would be one at the target.
        OSError: the target cannot have a directory of the source."""
        if not stat.S_ISDIR(first.mode):
            return (1, first.size) if stat.S_ISREG(first.mode) else (0, 0)
        files, size, waiting = 0, 0, [(at, to)]
        while waiting and not self._is_stopped:
            path, there = waiting.pop()
            self._target.require_possible(there)
            entries = self._source.list(path)
            if not self._tells_apart:
                self._require_apart(path, there, [name for name, each in entries if not is_special(each.mode)])
            for name, each in entries:
                if stat.S_ISDIR(each.mode):
                    waiting.append((_below(path, name), _below(there, name)))
                elif stat.S_ISREG(each.mode):
                    files, size = files + 1, size + each.size
        return files, size

    def _require_apart(self, path: bytes, there: bytes, names: Sequence[bytes]) -> None:
        alike = groups(names)
        for name in (name for group in alike for name in group):
            _below(path, name)  # refuses names that lead out of the target
        if alike and (found := self._target.first_same(there, alike)) is not None:
            one, other = (os.fsdecode(_below(path, name)) for name in found)
            raise ConflictError(
                f"{one!r} and {other!r} would be the same file at the target: its file system does not tell such names apart",
                hint="Choose a target on another file system, or mount by FUSE (mode='fuse', --mode fuse), which tells all names "
                "apart.",
            )

    # -- progress

    def _count(self, **more: int) -> None:
        with self._lock:
            for name, number in more.items():
                self._done[name] += number

    def _tell(self, more_bytes: int, *, is_last: bool = False) -> None:
        if self._report is None:
            return
        with self._lock:
            self._done_bytes += more_bytes
            now_s = clock.monotonic_s()
            if is_last or now_s - self._reported_s >= REPORT_S:
                self._reported_s = now_s
                self._report(Progress("copy", self._done["files"], self._total[0], self._done_bytes, self._total[1]))


def name_purged(paths: Sequence[str]) -> PurgedError:
    """The error of a copy without these files of the source."""
    more = ", …" if len(paths) > NAMED_SKIPPED else ""
    return PurgedError(
        f"purged, and not copied: {len(paths)} file{'s' * (len(paths) != 1)} ({', '.join(paths[:NAMED_SKIPPED])}{more})",
        hint="All others were copied. Nothing brings the bytes of these back; a person who still has such a file can write "
        "it again.",
        details={"paths": list(paths)},
    )


class _Stopped(Exception):
    """Another file failed, or the copy was interrupted."""


class _SourceError(Exception):
    """An error of reading a file, on its way through the target's `put`."""

    def __init__(self, error: OSError) -> None:
        super().__init__(str(error))
        self.error = error


def _next(path: bytes, pieces: Iterator[tuple[int, bytes]]) -> tuple[int, bytes] | None:
    try:
        return next(pieces, None)
    except OSError as error:
        error.filename = error.filename or os.fsdecode(path)
        raise _SourceError(error) from error


def _below(directory: bytes, name: bytes) -> bytes:
    if name in (b"", b".", b"..") or b"/" in name:
        raise CorruptError(
            f"{os.fsdecode(directory)!r} has an entry named {name!r}",
            hint="This entry was not written. Use another version.",
        )
    return directory + b"/" + name if directory else name
