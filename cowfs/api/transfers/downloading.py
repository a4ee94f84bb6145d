"""Downloads a version's files to a directory of this machine, straight from its packs: in parallel
ranges, with each chunk checked and no cache used.

A file appears under its name only when it is complete, with its time, even after a power loss
(`WholeFiles`). A killed download can therefore be continued. Files with the same size and time as
in the version are taken as present. Of a large partial file, the chunks that match the version are
reused. If the file system stores times less precisely, the contents are compared.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from cowfs.api import arguments
from cowfs.api.mounts import mount_transfer
from cowfs.api.transfers import local_paths, uploading
from cowfs.api.transfers.local_paths import Own
from cowfs.api.transfers.path_errors import NOT_DOWN, errors_of_ours
from cowfs.api.transfers.transfer_report import TransferReport
from cowfs.base.errors import ConflictError, InvalidInputError, NotFoundError, PurgedError
from cowfs.base.hints import Command
from cowfs.control import MountOptions, SessionSpec
from cowfs.machine.registry import MountEntry
from cowfs.machine.working_copy import working_root
from cowfs.version.commit import ProgressListener

if TYPE_CHECKING:
    from cowfs.api.access.volume_handle import VolumeHandle
    from cowfs.api.files import FilePath
    from cowfs.api.versions.located_version import LocatedVersion
    from cowfs.transfer.copying import Attributes, Copied, Resumes, SourceTree
    from cowfs.transfer.local_files import LocalAttr, LocalFiles
    from cowfs.transfer.version_tree import VersionTree

Overwrite = Literal["error", "newer", "always"]

PARENT = "volumes"


def download(
    version: LocatedVersion,
    src: FilePath = "/",
    dst: str | os.PathLike[str] | None = None,
    *,
    overwrite: Overwrite = "error",
    progress: ProgressListener | None = None,
) -> TransferReport:
    """`ROFiles.download`: the directory `src`, or the file, of the version to `dst`."""
    hears, target = _check(overwrite, progress), _target(dst, version.name)
    with errors_of_ours(os.fsdecode(target), NOT_DOWN), reading(version) as tree:
        require_outside(target, version.open_store().url)
        done = _copy(tree, src, target, overwrite, version.locator, hears, expect=tree.expect, resumes=tree)
    return TransferReport(**asdict(done), removed=0, locator=version.locator, is_new=False)


def download_mounted(
    volume: VolumeHandle,
    entry: MountEntry,
    src: FilePath = "/",
    dst: str | os.PathLike[str] | None = None,
    *,
    overwrite: Overwrite = "error",
    progress: ProgressListener | None = None,
) -> TransferReport:
    """`RWFiles.download` of a volume that is mounted here: the contents that programs see there."""
    from cowfs.transfer.local_files import LocalFiles
    from cowfs.transfer.local_source import LocalSource

    hears, target = _check(overwrite, progress), _target(dst, volume.name)
    with (
        errors_of_ours(os.fsdecode(target), NOT_DOWN),
        mount_transfer.opened(entry) as root,
        LocalFiles(root.path, root.fileno()) as files,
    ):
        require_outside(target, entry.store_url)
        mount = Own(Path(entry.mount_path), "the mount", "choose a target outside of it")
        local_paths.require_outside(target, [mount])
        done = _copy(LocalSource(files), src, target, overwrite, entry.mount_path, hears)
    volume.resolve()
    locator = volume.locator or ""
    return TransferReport(**asdict(done), removed=0, locator=locator, is_new=False, mount_path=entry.mount_path)


def _check(overwrite: str, progress: ProgressListener | None) -> ProgressListener | None:
    if overwrite not in get_args(Overwrite):
        raise InvalidInputError(f"overwrite is {overwrite!r}", hint="Give 'error', 'newer' or 'always'.")
    return arguments.listener(progress) if progress is not None else None


def _target(dst: str | os.PathLike[str] | None, name: str) -> bytes:
    target = os.fsencode(os.path.expanduser(dst) if dst is not None else os.path.join(PARENT, name))
    try:
        os.path.abspath(target)
    except FileNotFoundError as error:
        raise NotFoundError("the working directory does not exist any more", hint="Give a whole path.") from error
    return target


def _copy(
    tree: SourceTree,
    src: FilePath,
    target: bytes,
    overwrite: Overwrite,
    about: str,
    progress: ProgressListener | None,
    expect: Callable[[bytes, Any], None] = lambda path, attr: None,
    resumes: Resumes | None = None,
) -> Copied:
    """Copies the files. about: the source, for errors."""
    from cowfs.transfer import copying

    with ExitStack() as stack:
        with errors_of_ours(about, f"vol.files.ls() and {Command('ls')} show what there is."):
            given = b"/".join(part for part in os.fsencode(src).split(b"/") if part)
            at = followed(tree, given)
            mode = tree.stat(at).mode
        if stat.S_ISDIR(mode):
            os.makedirs(target, exist_ok=True)
        name = b"" if stat.S_ISDIR(mode) else given.rpartition(b"/")[2]
        there, to = local_paths.target(stack, target, name)
        existing = _Existing(tree, there, overwrite, resumes)
        if overwrite == "error":
            existing.look(at, to)
        return copying.copy(tree, at, there, to, progress, keeps=existing.keeps, expect=expect, resumes=resumes)


@contextmanager
def reading(version: LocatedVersion) -> Iterator[VersionTree]:
    """The version's files, or those of its folder. A PurgedError of the block gets the version's
    name."""
    from cowfs.transfer.reading import reading

    store = version.open_store()
    spec = SessionSpec(
        store_url=store.url,
        volume=version.name,
        mode="ro",
        version=version.id,
        folder=os.fsdecode(version.folder),
        options=replace(MountOptions(), resident=False).resolved(),
    )
    with reading(spec, access=store.access) as tree:
        try:
            yield tree
        except PurgedError as error:
            raise PurgedError(
                f"{version.name}@{version.id[:12]}: {error.message}", hint=error.open_hint, details=error.details
            ) from error


def followed(tree: SourceTree, path: bytes) -> bytes:
    """The path with links resolved. No link leads out of the volume."""
    from cowfs.transfer import links

    return links.follow(tree, path)


def require_outside(target: bytes, store_url: str) -> None:
    """InvalidInputError: the target lies in a directory reserved for cowfs."""
    local_paths.require_outside(target, uploading.own_directories(store_url, working_root()))


class _Existing:
    """Decides which files and links at the target are kept."""

    def __init__(self, tree: SourceTree, target: LocalFiles, overwrite: Overwrite, resumes: Resumes | None) -> None:
        self._tree = tree
        self._target = target
        self._overwrite = overwrite
        self._resumes = resumes
        self._compared: dict[bytes, LocalAttr] = {}  # files with the right content but another time

    def look(self, at: bytes, to: bytes) -> None:
        """ConflictError for the first file that would be replaced, before any is."""
        waiting = [(at, to, self._tree.stat(at))]
        while waiting:
            path, there, attr = waiting.pop()
            if not stat.S_ISDIR(attr.mode):
                self.keeps(path, there, attr)
            elif there == to or self._is_there(there):
                entries = self._tree.list(path)
                waiting += ((_below(path, name), _below(there, name), each) for name, each in entries)

    def keeps(self, path: bytes, there: bytes, attr: Attributes) -> bool:
        if self._overwrite == "always":
            return False
        try:
            found = self._target.stat(there)
        except (FileNotFoundError, NotADirectoryError):
            return False
        if self._is_same(path, there, attr, found):
            return True
        if self._overwrite == "error":
            raise ConflictError(
                f"{os.fsdecode(there)} is at the target already, and is not what the version has",
                hint="Choose another target, or overwrite='newer' (--overwrite newer) to replace what is older, "
                "'always' to write every file anew.",
            )
        return found.mtime_ns >= attr.mtime_ns

    def _is_same(self, path: bytes, there: bytes, attr: Attributes, found: LocalAttr) -> bool:
        if stat.S_IFMT(found.mode) != stat.S_IFMT(attr.mode):
            return False
        if stat.S_ISLNK(attr.mode):
            return self._target.readlink(there) == self._tree.readlink(path)
        if (found.size, found.mtime_ns) == (attr.size, attr.mtime_ns):
            return True
        if found.size != attr.size:
            return False
        from cowfs.transfer import same_content

        if not same_content.may_be_kept(attr.mtime_ns, found):
            return False
        if self._compared.get(there) != found and self._has_content(path, there, attr):
            self._compared[there] = found
        return self._compared.get(there) == found

    def _has_content(self, path: bytes, there: bytes, attr: Attributes) -> bool:
        from cowfs.transfer import same_content

        try:
            opened = self._target.open_file(there)
        except PermissionError:
            return False
        with closing(opened) as file:
            if self._resumes is not None:
                return self._resumes.is_content(path, file.fd)
            with closing(self._tree.pieces(path)) as pieces:
                return same_content.has_content(file.fd, attr.size, pieces)

    def _is_there(self, there: bytes) -> bool:
        with suppress(FileNotFoundError, NotADirectoryError):
            self._target.stat(there)
            return True
        return False


def _below(directory: bytes, name: bytes) -> bytes:
    return directory + b"/" + name if directory else name
