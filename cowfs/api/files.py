"""The files of a version or a volume, without a mount: `ROVolume.files` and `RWVolume.files`.

    version.files.read("/config.json")                   bytes
    for entry in version.files.ls("/train"): …           names, types, sizes
    with version.files.open("/model.bin") as file: …     a seekable binary file
    volume.files.write("/out.txt", b"…")                 in the journal when it returns; commit() publishes it

Paths are text, bytes or path-like, from the volume's root on; a leading "/" changes nothing. Links
are followed inside of the volume, and lead nowhere outside of it. Names are bytes: those that are
no UTF-8 appear as surrogates, as in `os`. Errors of paths are those of Python (FileNotFoundError
and its like); what the store or the lease has to say are cowfs' errors.

A volume that is mounted on this machine is used through that mount. Otherwise the first call opens
it in this process, as a mount would: one writer, uncommitted work of earlier mounts is there, and
nothing that a call has written is lost with the process. Threads: any.
"""

from __future__ import annotations

import errno
import fnmatch
import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Any, BinaryIO, TypeAlias

from cowfs.api import arguments, file_object, hints
from cowfs.api.file_access import SessionAccess
from cowfs.api.path_errors import NothingThere

if TYPE_CHECKING:
    from cowfs.api.downloading import Overwrite
    from cowfs.api.ro_volume import ROVolume
    from cowfs.api.rw_volume import RWVolume
    from cowfs.api.storage.storage import Storage
    from cowfs.api.transfer_report import TransferReport
    from cowfs.session.copying import Attributes
    from cowfs.session.opened_file import FileTree, OpenedFile
    from cowfs.version.commit import ProgressListener

FilePath: TypeAlias = "str | bytes | os.PathLike[str] | os.PathLike[bytes]"

TYPES = {stat.S_IFREG: "file", stat.S_IFDIR: "directory", stat.S_IFLNK: "symlink"}
ANY_DIRECTORIES = b"**"
_MAGIC = re.compile(rb"[*?\[]")


@dataclass(frozen=True)
class Entry:
    """One entry. path: from the root on. type: file, directory, symlink or special. mode: with the
    bits of its type. target: where a link leads.

    Takes the place of a path in calls of `files`. It is no os.PathLike: to other functions its path
    would mean a file of this machine.
    """

    path: str
    name: str
    type: str
    mode: int
    size: int
    mtime_ns: int
    target: str | None


class ROFiles:
    """The files of a version, or of one folder of it. `ROVolume.files` gives it. Pickles as the
    version does."""

    def __init__(self, access: SessionAccess, version: Callable[[], ROVolume]) -> None:
        self._access = access
        self._version = version

    def __reduce__(self) -> tuple[Any, ...]:
        return attrgetter("files"), (self._version(),)

    @property
    def _store_url(self) -> str | None:
        """For hints; None: they need none, as of a version."""
        return None

    # -- looking

    def ls(self, path: FilePath | Entry = "/", recursive: bool = False) -> Iterator[Entry]:
        """The entries of a directory, by name; of anything else its own. recursive: everything
        below as well, each directory before what is in it; links are not followed.
        FileNotFoundError."""
        given = _given(path)
        with self._tree(given) as tree:
            at = _followed(tree, given)
            attr = tree.stat(at)
            if not stat.S_ISDIR(attr.mode):
                return iter([_entry(tree, given, at, attr)])
            first = _entries(tree, given, at)
        return self._below(first) if recursive else iter([entry for entry, _ in first])

    def stat(self, path: FilePath | Entry = "/", *, follow: bool = True) -> Entry:
        """What is at a path. follow: where a link that is named leads, else the link.
        FileNotFoundError."""
        given = _given(path)
        with self._tree(given) as tree:
            at = _followed(tree, given, last=follow)
            return _entry(tree, given, at, tree.stat(at))

    def exists(self, path: FilePath | Entry) -> bool:
        """Whether there is something at a path; of a link, where it leads."""
        with NothingThere():
            self.stat(path)
            return True
        return False

    def glob(self, pattern: FilePath) -> Iterator[Entry]:
        """What matches: `*`, `?` and `[…]` within a name, `**` for any directories in between.
        Links are followed only where the pattern has their whole name."""
        seen: set[str] = set()
        for found in self._matching(b"/", _parts(_given(pattern))):
            if found.path not in seen:
                seen.add(found.path)
                yield found

    def walk(self, path: FilePath | Entry = "/") -> Iterator[tuple[str, list[Entry], list[Entry]]]:
        """As os.walk, from the top down: path of a directory, the directories in it, everything
        else in it. What is removed from the second is not walked into."""
        waiting = [os.fsdecode(_given(path))]
        while waiting:
            here = waiting.pop()
            entries = list(self.ls(here))
            directories = [each for each in entries if each.type == "directory"]
            yield here, directories, [each for each in entries if each.type != "directory"]
            waiting += [each.path for each in reversed(directories)]

    # -- reading

    def read(self, path: FilePath | Entry, offset: int = 0, length: int | None = None) -> bytes:
        """The bytes of a file; length None: to the end. Shorter at the end of the file."""
        arguments.byte_range(offset, length)
        given = _given(path)
        with self._tree(given) as tree, tree.open(_followed(tree, given), os.O_RDONLY) as file:
            return file.read(offset, max(file.size() - offset, 0) if length is None else length)

    def download(
        self,
        src: FilePath = "/",
        dst: str | os.PathLike[str] | None = None,
        *,
        overwrite: Overwrite = "error",
        progress: ProgressListener | None = None,
    ) -> TransferReport:
        """Copies what is in the directory `src`, or the file `src`, of the version to `dst` (None:
        volumes/NAME).

        What is missing of dst is made; a file goes into dst if that is a directory, or ends in "/".
        Files of the same size and time of modification are there already, so a download that was
        killed goes on where it was, also within a file of 8 MiB or more. Others that are at dst:
        "error" raises ConflictError before anything is written, "newer" replaces those that are
        older than in the version. "always" writes every file anew, also one that looks the same.
        Chunks are read in parallel and checked; holes and links are kept, set-id bits, owners and
        extended attributes are not, and nothing is written outside of dst.
        """
        from cowfs.api import downloading

        return downloading.download(self._version(), src, dst, overwrite=overwrite, progress=progress)

    def export(
        self,
        url: str | os.PathLike[str],
        src: FilePath = "/",
        *,
        storage: Storage | None = None,
        delete: bool = False,
        exclude: Iterable[str] = (),
        progress: ProgressListener | None = None,
    ) -> TransferReport:
        """Writes what is in the directory `src`, or the file `src`, as objects below `url` of any
        store, each under its path. Of a volume the last version, if there is no uncommitted work
        here.

        storage: credentials for `url`; None: those of the environment. What an earlier export has
        put there, and nobody has replaced, is not put again. delete: objects below `url` that the
        directory has not are deleted, whoever made them, but for what is excluded; beside a single
        file, none. Links to files become objects with the file's bytes. InvalidInputError, before
        anything is put: other links, names that are not UTF-8; `url` is the store, lies among its
        objects, or has it in it and not excluded; objects of another store would be replaced or
        deleted.
        """
        from cowfs.api import exporting

        return exporting.export(
            self._version(), url, src, storage=storage, delete=delete, exclude=exclude, progress=progress
        )

    def open(self, path: FilePath | Entry, mode: str = "rb") -> BinaryIO:
        """A seekable, buffered binary file. Of a volume also in modes "wb", "ab", "xb", "r+b" and
        "w+b"."""
        given, flags = _given(path), file_object.flags(mode)
        if flags & os.O_CREAT and _is_named_directory(path):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fsdecode(given))

        def opens(tree: FileTree) -> OpenedFile:
            at = _followed(tree, given, last=not flags & os.O_EXCL, may_be_missing=bool(flags & os.O_CREAT))
            return tree.open(at, flags)

        with hints.of_store(self._store_url), _naming(given):
            opened, session = self._access.open(opens)
        return file_object.buffered(file_object.RawFile(opened, session, os.fsdecode(given), flags), flags)

    # -- inside

    @contextmanager
    def _tree(self, given: bytes) -> Iterator[FileTree]:
        with hints.of_store(self._store_url), _naming(given), self._access.tree() as tree:
            yield tree

    def _below(self, first: list[tuple[Entry, bytes]]) -> Iterator[Entry]:
        waiting = [iter(first)]
        while waiting:
            entry, at = next(waiting[-1], (None, b""))
            if entry is None:
                waiting.pop()
                continue
            yield entry
            if entry.type == "directory":
                above = os.fsencode(entry.path)
                with self._tree(above) as tree, suppress(FileNotFoundError):  # removed meanwhile
                    waiting.append(iter(_entries(tree, above, at)))

    def _matching(self, above: bytes, parts: list[bytes]) -> Iterator[Entry]:
        if not parts:
            with NothingThere():
                yield self.stat(above, follow=False)
            return
        part, *rest = parts
        if part == ANY_DIRECTORIES:
            yield from self._matching(above, rest)
            for entry in self._in(above):
                if entry.type == "directory":
                    yield from self._matching(os.fsencode(entry.path), parts)
                elif not rest:
                    yield entry
        elif _MAGIC.search(part):
            matches = re.compile(fnmatch.translate(os.fsdecode(part))).match
            for entry in self._in(above):
                if matches(entry.name):
                    yield from self._matching(os.fsencode(entry.path), rest)
        else:
            yield from self._matching(_joined(above, part), rest)

    def _in(self, path: bytes) -> list[Entry]:
        with NothingThere():
            if self.stat(path).type == "directory":
                return list(self.ls(path))
        return []


class RWFiles(ROFiles):
    """The files of a volume. `RWVolume.files` gives it.

    A call that has returned survives this process; a commit publishes it. `upload` publishes by
    itself.
    """

    def __init__(self, access: SessionAccess, version: Callable[[], ROVolume], volume: RWVolume) -> None:
        super().__init__(access, version)
        self._volume = volume

    def __reduce__(self) -> tuple[Any, ...]:
        return attrgetter("files"), (self._volume,)

    @property
    def _store_url(self) -> str | None:
        return self._volume.store_url

    def upload(
        self,
        src: str | os.PathLike[str],
        dst: FilePath = "/",
        *,
        delete: bool = False,
        exclude: Iterable[str] = (),
        message: str = "",
        progress: ProgressListener | None = None,
    ) -> TransferReport:
        """Publishes what is in the directory `src`, or the file `src`, at `dst` of the volume, as
        one version; if nothing differs, none is made.

        What is missing of dst is made. A file goes below dst if that is a directory, or ends in
        "/", and takes that name else. delete: removes what is below dst and not in src; without it
        a directory takes the place of nothing else, nor the other way round. exclude: patterns as
        in .gitignore, relative to src; what they match is neither uploaded nor removed. A file of
        the same size and time of modification as in the volume is not read.

        Bytes go from the source to the store, and are not written to this machine. Ended, failed or
        killed: nothing is published, and the next upload moves only what is missing. ConflictError:
        a file never stood still. InvalidStateError: the volume has uncommitted work here.
        LeaseHeldError: somebody else writes to it.

        If the volume is mounted on this machine, the files go into the mount, as `cp` would copy
        them, and no version is made: the mount's commit publishes them with everything else. The
        report's mount_path says so.
        """
        from cowfs.api import uploading

        with hints.of_store(self._store_url):
            return uploading.upload(
                self._volume, src, dst, delete=delete, exclude=exclude, message=message, progress=progress
            )

    def download(
        self,
        src: FilePath = "/",
        dst: str | os.PathLike[str] | None = None,
        *,
        overwrite: Overwrite = "error",
        progress: ProgressListener | None = None,
    ) -> TransferReport:
        """As `ROFiles.download`, of the last version. If the volume is mounted on this machine,
        what programs see there is copied, committed or not. InvalidStateError: it is not mounted,
        and has uncommitted work here."""
        from cowfs.api import downloading

        if (entry := self._volume.mounted_here()) is not None:
            return downloading.download_mounted(self._volume, entry, src, dst, overwrite=overwrite, progress=progress)
        return super().download(src, dst, overwrite=overwrite, progress=progress)

    def write(self, path: FilePath | Entry, data: bytes | bytearray | memoryview) -> None:
        """Makes a file, or replaces the content of one. FileNotFoundError: the directory is
        missing.

        Up to 64 MiB, and without a mount, in one step: if this process ends meanwhile, a file that
        was there has its old content or the new one.
        """
        content, given = bytes(memoryview(data)), _given(path)
        if _is_named_directory(path):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fsdecode(given))
        with (
            self._tree(given) as tree,
            tree.open(_followed(tree, given, may_be_missing=True), os.O_WRONLY | os.O_CREAT) as file,
        ):
            file.replace(content)

    def append(self, path: FilePath | Entry, data: bytes | bytearray | memoryview) -> None:
        """Writes to the end of a file, which is made if it is missing."""
        with self.open(path, "ab") as file:
            file.write(data)

    def mkdir(self, path: FilePath | Entry, *, parents: bool = False, exist_ok: bool = False) -> None:
        """Makes a directory. parents: those above it, too; exist_ok: fine if there is one."""
        given = _given(path)
        try:
            with self._tree(given) as tree:
                if given == b"/":
                    raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
                tree.mkdir(_place(tree, given))
            return
        except FileExistsError:
            if not exist_ok or self.stat(path).type != "directory":
                raise
            return
        except FileNotFoundError:
            if not parents:
                raise
        self.mkdir(_above(given), parents=True, exist_ok=True)
        self.mkdir(path, exist_ok=exist_ok)

    def move(self, source: FilePath | Entry, target: FilePath) -> None:
        """As os.rename: the target may be a file, which is replaced, or an empty directory in the
        way of a directory."""
        old, new = _given(source), _given(target)
        with self._tree(old) as tree:
            tree.move(_place(tree, old), _place(tree, new))

    def copy(self, source: FilePath | Entry, target: FilePath, *, recursive: bool = False) -> None:
        """Copies a file by sharing its chunks: nothing is read or stored again. Permissions go with
        it. recursive: directories, too, into the target if it is one already."""
        old, new = _given(source), _given(target)
        with self._tree(old) as tree:
            at, to = _followed(tree, old), _followed(tree, new, may_be_missing=True)
            attr = tree.stat(at)
            if not stat.S_ISDIR(attr.mode):
                tree.share(at, to)
                return
            if not recursive:
                raise IsADirectoryError(errno.EISDIR, "it is a directory: copy it with recursive=True")
            if (to + b"/").startswith(at + b"/") or not at:
                raise OSError(errno.EINVAL, "a directory cannot be copied into itself")
        self._copy_directory(at, to, attr.mode)

    def remove(self, path: FilePath | Entry, *, recursive: bool = False) -> None:
        """A file, a link, or an empty directory; recursive: a directory with everything in it."""
        given = _given(path)
        with self._tree(given) as tree:
            at = _place(tree, given)
            if not (recursive and stat.S_ISDIR(tree.stat(at).mode)):
                tree.remove(at)
                return
        below = [os.fsencode(each.path)[1:] for each in self.ls(b"/" + at, recursive=True)]
        for each in (*reversed(below), at):
            with self._tree(given) as tree:
                tree.remove(each)

    def symlink(self, path: FilePath | Entry, target: FilePath) -> None:
        """Makes `path` a symbolic link to `target`, which is kept as it is given.
        FileExistsError."""
        given = _given(path)
        with self._tree(given) as tree:
            tree.new_symlink(_place(tree, given), os.fsencode(target))

    def chmod(self, path: FilePath | Entry, mode: int) -> None:
        """Sets the permission bits; a link is followed."""
        given = _given(path)
        with self._tree(given) as tree:
            tree.chmod(_followed(tree, given), stat.S_IMODE(mode))

    def _copy_directory(self, at: bytes, to: bytes, mode: int) -> None:
        self.mkdir(b"/" + to, exist_ok=True)
        for entry in self.ls(b"/" + at):
            name = os.fsencode(entry.name)
            old, new = _joined(at, name), _joined(to, name)
            if entry.type == "directory":
                self._copy_directory(old, new, entry.mode)
            elif entry.type != "special":
                with self._tree(old) as tree:
                    if entry.type == "file":
                        tree.share(old, new)
                    else:
                        with suppress(FileNotFoundError):
                            tree.remove(new)
                        tree.new_symlink(new, tree.readlink(old))
        self.chmod(b"/" + to, mode)


def _given(path: FilePath | Entry) -> bytes:
    """Absolute in the volume, without empty names and "."."""
    text = os.fsencode(path.path if isinstance(path, Entry) else path)
    if b"\0" in text:
        raise ValueError("embedded null byte")
    return b"/" + b"/".join(_parts(text))


def _is_named_directory(path: FilePath | Entry) -> bool:
    """Whether it can only mean a directory."""
    return not isinstance(path, Entry) and os.fsencode(path).endswith(b"/")


def _parts(path: bytes) -> list[bytes]:
    return [part for part in path.split(b"/") if part not in (b"", b".")]


def _joined(directory: bytes, name: bytes) -> bytes:
    return directory.rstrip(b"/") + b"/" + name if directory else name


def _above(given: bytes) -> bytes:
    return given.rpartition(b"/")[0] or b"/"


def _followed(tree: FileTree, given: bytes, *, last: bool = True, may_be_missing: bool = False) -> bytes:
    """The path in the tree, without links."""
    from cowfs.session import links

    path = given[1:]
    if b".." not in path.split(b"/"):
        with NothingThere():  # or below a link
            if not (stat.S_ISLNK(tree.stat(path).mode) and last):
                return path
    return links.followed(tree, path, last=last, may_be_missing=may_be_missing)


def _place(tree: FileTree, given: bytes) -> bytes:
    """Of something that is made, moved or removed under its own name."""
    if given == b"/":
        raise OSError(errno.EBUSY, "it is the volume's root")
    return _followed(tree, given, last=False, may_be_missing=True)


def _entries(tree: FileTree, given: bytes, at: bytes) -> list[tuple[Entry, bytes]]:
    """Each with its path in the tree."""
    found = []
    for name, attr in tree.list(at):
        below = _joined(at, name)
        found.append((_entry(tree, _joined(given, name), below, attr), below))
    return found


def _entry(tree: FileTree, given: bytes, at: bytes, attr: Attributes) -> Entry:
    kind = TYPES.get(stat.S_IFMT(attr.mode), "special")
    return Entry(
        path=os.fsdecode(given),
        name=os.fsdecode(given.rpartition(b"/")[2]),
        type=kind,
        mode=attr.mode,
        size=attr.size,
        mtime_ns=attr.mtime_ns,
        target=os.fsdecode(tree.readlink(at)) if kind == "symlink" else None,
    )


@contextmanager
def _naming(given: bytes) -> Iterator[None]:
    """An error of a path names the path as the caller knows it."""
    try:
        yield
    except OSError as error:
        error.filename = os.fsdecode(given)
        raise
