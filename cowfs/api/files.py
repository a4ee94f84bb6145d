"""The files of a version or a volume, without a mount: `ROVolume.files` and `RWVolume.files`.

    version.files.read("/config.json")                   bytes
    for entry in version.files.ls("/train"): …           names, types, sizes
    with version.files.open("/model.bin") as file: …     a seekable binary file
    with version.files.open("/log.txt", "r") as file: …  text, as Python's open()
    volume.files.write("/out.txt", b"…")                 in the journal when it returns; commit() publishes it

Paths are text, bytes or path-like and start at the volume's root; a leading "/" changes nothing.
Links are followed inside the volume and never lead out of it. Names are bytes: names that are not
UTF-8 appear with surrogates, as in `os`. Path errors are those of Python (FileNotFoundError and
similar); errors of the store or the lease are cowfs' errors.

A volume that is mounted on this machine is used through that mount. Otherwise the first call that
writes opens it in this process, as a mount would. The process then is the only writer, uncommitted
work of earlier mounts is visible, and a finished write survives the process. Before the first
write, each call reads the version that is newest at that moment and runs beside writers. If this
machine has uncommitted work, calls read that instead. Threads: any.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from operator import attrgetter
from typing import IO, TYPE_CHECKING, Any, BinaryIO, TextIO, TypeAlias, overload

from cowfs.api import arguments, hints
from cowfs.api.access import file_object
from cowfs.api.access.file_access import SessionAccess
from cowfs.api.transfers import shell_patterns
from cowfs.api.transfers.path_errors import NothingThere
from cowfs.api.twins.one_type import OneType
from cowfs.api.versions.labels import Labels
from cowfs.base.short_repr import has_card

if TYPE_CHECKING:
    from _typeshed import OpenBinaryMode, OpenTextMode

    from cowfs.api.access.volume_handle import VolumeHandle
    from cowfs.api.storage.definition import Storage
    from cowfs.api.transfers.downloading import Overwrite
    from cowfs.api.transfers.transfer_report import TransferReport
    from cowfs.api.versions.located_version import LocatedVersion
    from cowfs.session.opened_file import FileTree, OpenedFile
    from cowfs.transfer.copying import Attributes
    from cowfs.version.commit import ProgressListener

FilePath: TypeAlias = "str | bytes | os.PathLike[str] | os.PathLike[bytes]"

TYPES = {stat.S_IFREG: "file", stat.S_IFDIR: "directory", stat.S_IFLNK: "symlink"}
ANY_DIRECTORIES = b"**"


@has_card
@dataclass(frozen=True)
class Entry:
    """One entry. path: from the root. type: file, directory, symlink or special. mode: with the
    type bits. target: the target of a link.

    `files` accepts an entry in place of a path. It is not an os.PathLike, because other functions
    would take its path for a file of this machine.
    """

    path: str
    name: str
    type: str
    mode: int
    size: int
    mtime_ns: int
    target: str | None


class ROFiles(metaclass=OneType):
    """The files of a version, or of one folder of it, as returned by `ROVolume.files`. Pickles as
    the version does."""

    def __init__(
        self, access: SessionAccess, version: Callable[[], LocatedVersion], owner: object | None = None
    ) -> None:
        """owner: the object whose `files` these are, for pickles."""
        self._access = access
        self._version = version
        self._owner = owner

    def __reduce__(self) -> tuple[Any, ...]:
        return attrgetter("files"), (self._owner,)

    def __repr__(self) -> str:
        return f"{self._owner!r}.files" if self._owner is not None else f"<{type(self).__name__}>"

    @property
    def _store_url(self) -> str | None:
        """The store that hints name; None: hints name no store, as for a version."""
        return None

    # -- listing

    def ls(self, path: FilePath | Entry = "/", recursive: bool = False) -> Iterator[Entry]:
        """The entries of a directory, by name; for anything else, its own entry. recursive: include
        everything below, each directory before its contents; links are not followed.
        FileNotFoundError."""
        given, files = _check_given(path), self._steady()
        with files._tree(given) as tree:
            at = _follow(tree, given)
            attr = tree.stat(at)
            if not stat.S_ISDIR(attr.mode):
                return iter([_entry(tree, given, at, attr)])
            first = _entries(tree, given, at)
        return files._below(first) if recursive else iter([entry for entry, _ in first])

    def stat(self, path: FilePath | Entry = "/", *, follow: bool = True) -> Entry:
        """The entry at a path. follow: if the path names a link, return its target instead of the
        link. FileNotFoundError."""
        given = _check_given(path)
        with self._tree(given) as tree:
            at = _follow(tree, given, last=follow)
            return _entry(tree, given, at, tree.stat(at))

    def exists(self, path: FilePath | Entry) -> bool:
        """Whether a path exists; for a link, whether its target does."""
        with NothingThere():
            self.stat(path)
            return True
        return False

    def glob(self, pattern: FilePath) -> Iterator[Entry]:
        """The entries that match a pattern: within a name as in the shell (`*`, `?`, `[…]`, and
        `\\` before a literal character), and `**` for any number of directories. A link is followed
        only where the pattern contains its whole name."""
        seen: set[str] = set()
        for found in self._steady()._matching(b"/", _parts(_check_given(pattern))):
            if found.path not in seen:
                seen.add(found.path)
                yield found

    def walk(self, path: FilePath | Entry = "/") -> Iterator[tuple[str, list[Entry], list[Entry]]]:
        """Walks the tree as os.walk does, top down. Yields a directory's path, its subdirectories
        and its other entries. Subdirectories that the caller removes from the second are
        skipped."""
        waiting, files = [os.fsdecode(_check_given(path))], self._steady()
        while waiting:
            here = waiting.pop()
            entries = list(files.ls(here))
            directories = [each for each in entries if each.type == "directory"]
            yield here, directories, [each for each in entries if each.type != "directory"]
            waiting += [each.path for each in reversed(directories)]

    # -- reading

    def read(self, path: FilePath | Entry, offset: int = 0, length: int | None = None) -> bytes:
        """The bytes of a file; length None: to the end. Returns fewer bytes at the end of the
        file."""
        arguments.byte_range(offset, length)
        given = _check_given(path)
        with self._tree(given) as tree, tree.open(_follow(tree, given), os.O_RDONLY) as file:
            return file.read(offset, max(file.size() - offset, 0) if length is None else length)

    def read_text(self, path: FilePath | Entry, encoding: str = "utf-8", errors: str = "strict") -> str:
        """The text of a file. UnicodeDecodeError: it is in another encoding."""
        return self.read(path).decode(encoding, errors)

    def download(
        self,
        src: FilePath = "/",
        dst: str | os.PathLike[str] | None = None,
        *,
        overwrite: Overwrite = "error",
        progress: ProgressListener | None = None,
    ) -> TransferReport:
        """Copies the contents of the directory `src`, or the file `src`, of the version to `dst`
        (None: volumes/NAME).

        Missing directories of dst are created. A file is placed inside dst if dst is a directory or
        ends in "/". Files with the same size and modification time are taken as present, so a
        killed download continues where it stopped, also within a file of 8 MiB or more. overwrite
        decides about other files at dst: "error" raises ConflictError before anything is written;
        "newer" replaces files that are older than in the version; "always" rewrites every file,
        even if it looks the same. Chunks are read in parallel and checked. Holes and links are
        preserved; set-id bits, owners and extended attributes are not. Nothing is written outside
        of dst.
        """
        from cowfs.api.transfers import downloading

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
        """Writes the contents of the directory `src`, or the file `src`, as objects below `url` of
        any store, each under its path. For a volume, the last version is written, provided that
        there is no uncommitted work here.

        storage: credentials for `url`; None: those of the environment. Objects that an earlier
        export wrote and that have not been replaced since are skipped. delete: delete objects below
        `url` that the directory does not contain, regardless of their origin, except excluded ones;
        for a single file, delete none. Links to files become objects with the file's bytes.
        InvalidInputError, before anything is written: there are other links or names that are not
        UTF-8; `url` is the store, lies among its objects, or contains it without excluding it;
        objects of another store would be replaced or deleted.
        """
        from cowfs.api.transfers import exporting

        return exporting.export(
            self._version(), url, src, storage=storage, delete=delete, exclude=exclude, progress=progress
        )

    @overload
    def open(
        self,
        path: FilePath | Entry,
        mode: OpenTextMode,
        *,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
    ) -> TextIO: ...

    @overload
    def open(self, path: FilePath | Entry, mode: OpenBinaryMode = "rb") -> BinaryIO: ...

    @overload
    def open(
        self,
        path: FilePath | Entry,
        mode: str,
        *,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
    ) -> IO[Any]: ...

    def open(
        self,
        path: FilePath | Entry,
        mode: str = "rb",
        *,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
    ) -> IO[Any]:
        """A seekable, buffered file. Without a mode it is read, and binary; Python's open() would
        read text. A volume also supports the modes "wb", "ab", "xb", "r+b" and "w+b".

        The same modes without the "b" are of text, as in Python: "r", "w", "a", "x", "r+" and "w+".
        encoding, errors and newline are those of open(), except that the encoding is UTF-8 unless
        one is given: a volume is read on other machines, too."""
        given, chosen = _check_given(path), file_object.parse_mode(mode, encoding, errors, newline)
        flags = chosen.flags
        if flags & os.O_CREAT and _is_named_directory(path):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fsdecode(given))

        def opens(tree: FileTree) -> OpenedFile:
            at = _follow(tree, given, last=not flags & os.O_EXCL, may_be_missing=bool(flags & os.O_CREAT))
            return tree.open(at, flags)

        with hints.of_store(self._store_url), _naming(given):
            opened, session = self._access.open(opens, writes=flags & os.O_ACCMODE != os.O_RDONLY)
        return file_object.wrap(file_object.RawFile(opened, session, os.fsdecode(given), flags), chosen)

    # -- inside

    @contextmanager
    def _tree(self, given: bytes, *, writes: bool = False) -> Iterator[FileTree]:
        with hints.of_store(self._store_url), _naming(given), self._access.tree(writes=writes) as tree:
            yield tree

    def _steady(self) -> ROFiles:
        """For a call that reads several times: a tree that does not change meanwhile."""
        return self

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
        waiting: list[Iterator[Entry | tuple[bytes, list[bytes]]]] = [iter([(above, parts)])]
        while waiting:
            found = next(waiting[-1], None)
            if found is None:
                waiting.pop()
            elif isinstance(found, Entry):
                yield found
            else:
                waiting.append(self._match(*found))

    def _match(self, above: bytes, parts: list[bytes]) -> Iterator[Entry | tuple[bytes, list[bytes]]]:
        """Matches the pattern's first part. Yields an entry, or a directory with the remaining
        parts."""
        if not parts:
            with NothingThere():
                yield self.stat(above, follow=False)
            return
        part, *rest = parts
        if part == ANY_DIRECTORIES:
            yield above, rest
            for entry in self._list_entries(above):
                if entry.type == "directory":
                    yield os.fsencode(entry.path), parts
                elif not rest:
                    yield entry
        elif shell_patterns.has_wildcards(part):
            for entry in self._list_entries(above):
                if shell_patterns.matches(entry.name, part):
                    yield os.fsencode(entry.path), rest
        else:
            yield _join(above, part), rest

    def _list_entries(self, path: bytes) -> list[Entry]:
        with NothingThere():
            if self.stat(path).type == "directory":
                return list(self.ls(path))
        return []


class RWFiles(ROFiles):
    """The files of a volume, as returned by `RWVolume.files`.

    A finished call survives this process; a commit publishes it. `upload` publishes on its own.
    """

    def __init__(self, access: SessionAccess, volume: VolumeHandle, owner: object | None = None) -> None:
        super().__init__(access, volume.committed_version, owner)
        self._volume = volume

    @property
    def _store_url(self) -> str | None:
        return self._volume.store_url

    def _steady(self) -> ROFiles:
        return RWFiles(self._access.steady(), self._volume, self._owner)

    def upload(
        self,
        src: str | os.PathLike[str],
        dst: FilePath = "/",
        *,
        delete: bool = False,
        exclude: Iterable[str] = (),
        checksum: bool = False,
        message: str = "",
        author: str | None = None,
        labels: Labels | None = None,
        progress: ProgressListener | None = None,
    ) -> TransferReport:
        """Publishes the contents of the directory `src`, or the file `src`, at `dst` of the volume
        as one version. If nothing differs, no version is made.

        Missing directories of dst are created. A file is placed inside dst if dst is a directory or
        ends in "/"; otherwise it takes that name. delete: remove entries below dst that are not in
        src. Without delete, a directory replaces nothing but a directory, and nothing else replaces
        a directory. exclude: patterns as in .gitignore, relative to src; entries that match are
        neither uploaded nor removed. A file with the same size and modification time as in the
        volume is not read, unless its inode number or change time differs from this machine's last
        upload. checksum: read all files.

        Bytes go from the source to the store without being written to this machine. If the upload
        is interrupted, fails or is killed, nothing is published, and the next upload transfers only
        the missing data. ConflictError: a file kept changing. InvalidStateError: the volume has
        uncommitted work here. LeaseHeldError: another writer has the volume.

        If the volume is mounted on this machine, the files are copied into the mount, as by `cp`,
        and no version is made. The mount's commit publishes them with its other changes. The
        report's mount_path shows this case.
        """
        from cowfs.api.provenance import commit_request
        from cowfs.api.transfers import uploading

        with hints.of_store(self._store_url):
            return uploading.upload(
                self._volume,
                src,
                dst,
                commit_request(message, author, None, labels),
                delete=delete,
                exclude=exclude,
                checksum=checksum,
                progress=progress,
            )

    def download(
        self,
        src: FilePath = "/",
        dst: str | os.PathLike[str] | None = None,
        *,
        overwrite: Overwrite = "error",
        progress: ProgressListener | None = None,
    ) -> TransferReport:
        """Downloads the last version, as `ROFiles.download` does. If the volume is mounted on this
        machine, its current contents are copied, committed or not. InvalidStateError: it is not
        mounted and has uncommitted work here."""
        from cowfs.api.transfers import downloading

        if (entry := self._volume.mounted_here()) is not None:
            return downloading.download_mounted(self._volume, entry, src, dst, overwrite=overwrite, progress=progress)
        return super().download(src, dst, overwrite=overwrite, progress=progress)

    def write(self, path: FilePath | Entry, data: bytes | bytearray | memoryview) -> None:
        """Creates a file, or replaces the content of an existing one. FileNotFoundError: the
        directory is missing.

        Up to 64 MiB and without a mount, the write is atomic: if this process dies meanwhile, an
        existing file has its old content or the new one.
        """
        content, given = bytes(memoryview(_check_data(data))), _check_given(path)
        if _is_named_directory(path):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fsdecode(given))
        with (
            self._tree(given, writes=True) as tree,
            tree.open(_follow(tree, given, may_be_missing=True), os.O_WRONLY | os.O_CREAT) as file,
        ):
            file.replace(content)

    def write_text(self, path: FilePath | Entry, text: str, encoding: str = "utf-8", errors: str = "strict") -> None:
        """As `write`, with the text in that encoding."""
        if not isinstance(text, str):
            raise TypeError(f"{type(text).__name__} is no text: write() takes bytes")
        self.write(path, text.encode(encoding, errors))

    def append(self, path: FilePath | Entry, data: bytes | bytearray | memoryview) -> None:
        """Appends to a file, which is created if it is missing."""
        data = _check_data(data)
        with self.open(path, "ab") as file:
            file.write(data)

    def mkdir(self, path: FilePath | Entry, *, parents: bool = False, exist_ok: bool = False) -> None:
        """Creates a directory. parents: create missing parents, too. exist_ok: accept an existing
        directory."""
        given = _check_given(path)
        try:
            with self._tree(given, writes=True) as tree:
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
        self.mkdir(_parent_of(given), parents=True, exist_ok=True)
        self.mkdir(path, exist_ok=exist_ok)

    def move(self, source: FilePath | Entry, target: FilePath) -> None:
        """Renames, as os.rename. The target may be a file, which is replaced. A directory may
        replace an empty directory."""
        old, new = _check_given(source), _check_given(target)
        with self._tree(old, writes=True) as tree:
            tree.move(_place(tree, old), _place(tree, new))

    def copy(self, source: FilePath | Entry, target: FilePath, *, recursive: bool = False) -> None:
        """Copies a file by sharing its chunks: nothing is read or stored again. Permissions are
        copied. recursive: copy directories, too, into the target if that is an existing
        directory."""
        old, new = _check_given(source), _check_given(target)
        with self._tree(old, writes=True) as tree:
            at, to = _follow(tree, old), _follow(tree, new, may_be_missing=True)
            attr = tree.stat(at)
            if not stat.S_ISDIR(attr.mode):
                tree.share(at, to)
                return
            if not recursive:
                raise IsADirectoryError(errno.EISDIR, "it is a directory: copy it with recursive=True")
            if (to + b"/").startswith(at + b"/") or not at:
                raise OSError(errno.EINVAL, "a directory cannot be copied into itself")
        self._copy_directories(at, to, attr.mode)

    def remove(self, path: FilePath | Entry, *, recursive: bool = False) -> None:
        """Removes a file, a link or an empty directory; recursive: a directory with all its
        contents."""
        given = _check_given(path)
        with self._tree(given, writes=True) as tree:
            at = _place(tree, given)
            if not (recursive and stat.S_ISDIR(tree.stat(at).mode)):
                tree.remove(at)
                return
        below = [os.fsencode(each.path)[1:] for each in self.ls(b"/" + at, recursive=True)]
        for each in (*reversed(below), at):
            with self._tree(given, writes=True) as tree:
                tree.remove(each)

    def symlink(self, path: FilePath | Entry, target: FilePath) -> None:
        """Makes `path` a symbolic link to `target`, which is stored unchanged. FileExistsError."""
        given = _check_given(path)
        with self._tree(given, writes=True) as tree:
            tree.new_symlink(_place(tree, given), os.fsencode(target))

    def chmod(self, path: FilePath | Entry, mode: int) -> None:
        """Sets the permission bits; links are followed."""
        given = _check_given(path)
        with self._tree(given, writes=True) as tree:
            tree.chmod(_follow(tree, given), stat.S_IMODE(mode))

    def _copy_directories(self, at: bytes, to: bytes, mode: int) -> None:
        waiting: list[tuple[bytes | None, bytes, int]] = [(at, to, mode)]  # None: everything in the directory is done
        while waiting:
            old_directory, to, mode = waiting.pop()
            if old_directory is None:
                self.chmod(b"/" + to, mode)
                continue
            self.mkdir(b"/" + to, exist_ok=True)
            waiting.append((None, to, mode))
            for entry in self.ls(b"/" + old_directory):
                name = os.fsencode(entry.name)
                old, new = _join(old_directory, name), _join(to, name)
                if entry.type == "directory":
                    waiting.append((old, new, entry.mode))
                elif entry.type != "special":
                    with self._tree(old, writes=True) as tree:
                        if entry.type == "file":
                            tree.share(old, new)
                        else:
                            with suppress(FileNotFoundError):
                                tree.remove(new)
                            tree.new_symlink(new, tree.readlink(old))


def _check_data(data: object) -> bytes | bytearray | memoryview:
    if isinstance(data, str):
        raise TypeError("files hold bytes, and this is text: use write_text(), or encode it")
    try:
        return memoryview(data)  # type: ignore[arg-type]
    except TypeError:
        raise TypeError(f"{type(data).__name__} is no data to write: give bytes, or an object with a buffer") from None


def _check_given(path: FilePath | Entry) -> bytes:
    """Absolute in the volume, without empty names and "."."""
    text = os.fsencode(path.path if isinstance(path, Entry) else path)
    if b"\0" in text:
        raise ValueError("embedded null byte")
    return b"/" + b"/".join(_parts(text))


def _is_named_directory(path: FilePath | Entry) -> bool:
    """Whether the path can only mean a directory."""
    return not isinstance(path, Entry) and os.fsencode(path).endswith(b"/")


def _parts(path: bytes) -> list[bytes]:
    return [part for part in path.split(b"/") if part not in (b"", b".")]


def _join(directory: bytes, name: bytes) -> bytes:
    return directory.rstrip(b"/") + b"/" + name if directory else name


def _parent_of(given: bytes) -> bytes:
    return given.rpartition(b"/")[0] or b"/"


def _follow(tree: FileTree, given: bytes, *, last: bool = True, may_be_missing: bool = False) -> bytes:
    """The path in the tree, with links resolved; last=False: except a link at its end."""
    from cowfs.transfer import links

    path = given[1:]
    if b".." not in path.split(b"/"):
        with NothingThere():  # or below a link
            if not (stat.S_ISLNK(tree.stat(path).mode) and last):
                return path
    return links.follow(tree, path, last=last, may_be_missing=may_be_missing)


def _place(tree: FileTree, given: bytes) -> bytes:
    """The place of an entry that is created, moved or removed under its own name."""
    if given == b"/":
        raise OSError(errno.EBUSY, "it is the volume's root")
    return _follow(tree, given, last=False, may_be_missing=True)


def _entries(tree: FileTree, given: bytes, at: bytes) -> list[tuple[Entry, bytes]]:
    """Entries, each with its path in the tree."""
    found = []
    for name, attr in tree.list(at):
        below = _join(at, name)
        found.append((_entry(tree, _join(given, name), below, attr), below))
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
    """Rewrites path errors to name the path as the caller wrote it."""
    try:
        yield
    except OSError as error:
        error.filename = os.fsdecode(given)
        raise
