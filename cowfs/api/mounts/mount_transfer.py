"""Uploads, copies, imports and downloads for a volume that is mounted on this machine. They go
through the mount's path, as `cp` would. Incoming files become uncommitted work of the mount, which
its commit publishes.

    in          below the mount's root; names are opened one by one, so no link leads out of the volume
    download    the files as programs see them there, committed or not

A file with the same size and modification time is skipped. With checksum each such file is copied
again, and the commit finds which data it already has. For a source of objects, the state that is
recorded on the file must match as well.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from cowfs.api.mounts.base import mount_of
from cowfs.api.transfers import local_paths
from cowfs.api.transfers.local_paths import Own
from cowfs.api.transfers.path_errors import NOT_DOWN, NOT_HERE, NothingThere, errors_of_ours
from cowfs.api.transfers.transfer_report import Source, TransferReport
from cowfs.base.beneath import Root
from cowfs.base.errors import ConflictError
from cowfs.base.fast_dataclass import dataclass
from cowfs.machine.registry import MountEntry
from cowfs.version.commit import ProgressListener

if TYPE_CHECKING:
    from cowfs.session.mounted_files import MountedFiles
    from cowfs.transfer.copying import Attributes
    from cowfs.transfer.upload.upload_reading import SourceTree


@dataclass(frozen=True)
class Wanted:
    """to: path in the volume. is_directory: `to` is to be a directory. excluded: as for
    `UploadPlan`."""

    to: bytes
    is_directory: bool = False
    delete: bool = False
    excluded: Callable[[bytes], bool] = lambda path: False
    checksum: bool = False


def upload(
    entry: MountEntry, src: bytes, wanted: Wanted, own: list[Own], locator: str, progress: ProgressListener | None
) -> TransferReport:
    """Copies from a path of this machine. own: directories besides the mount that the source must
    not overlap. locator: that of the volume's last version."""
    mount = Own(Path(entry.mount_path), f"the mount of {entry.volume}", "copy within the mount")
    local_paths.require_apart(src, [*own, mount], wanted.excluded)
    with ExitStack() as stack, errors_of_ours(os.fsdecode(src), NOT_HERE):
        source = Source(*local_paths.source(stack, src))
        local_paths.read_pipe(source.tree)
        return put(entry, source, wanted, locator, progress)


def put(
    entry: MountEntry, source: Source, wanted: Wanted, locator: str, progress: ProgressListener | None
) -> TransferReport:
    """The tree at `source`, which must not lie in the mount."""
    from cowfs.session.mounted_files import MountedFiles
    from cowfs.transfer import copying
    from cowfs.transfer.imports.object_tree import marks
    from cowfs.transfer.local_source import LocalSource

    tree, at = source.tree, source.at
    with opened(entry) as root, MountedFiles(root.path, root.fileno()) as target:
        with errors_of_ours(entry.mount_path, NOT_DOWN):
            first = tree.stat(at)
            to = _make(target, wanted, source.name, is_file=not stat.S_ISDIR(first.mode))
            gone = _leaving(tree, at, first, target, to, wanted.excluded) if wanted.delete else []
            for path in gone:
                target.remove(path)

            def leaves_out(path: bytes, attr: Attributes) -> bool:
                return wanted.excluded(_relative(path, at, attr))

            def keeps(path: bytes, there: bytes, attr: Attributes) -> bool:
                return not wanted.checksum and _is_same(tree, path, target, there, attr)

            found = LocalSource(tree, leaves_out)
            tells_apart = mount_of(entry).tells_names_apart
            done = copying.copy(found, at, target, to, progress, keeps=keeps, marks=marks, tells_apart=tells_apart)
    return TransferReport(**asdict(done), removed=len(gone), locator=locator, is_new=False, mount_path=entry.mount_path)


def opened(entry: MountEntry) -> Root:
    """The root of the mount. The caller closes it. ConflictError: the mount was unmounted."""
    if (root := mount_of(entry).open_root()) is None:
        raise ConflictError(
            f"volume {entry.volume!r} was unmounted from {entry.mount_path} meanwhile",
            hint="Do it again, without the mount.",
        )
    return root


def _make(target: MountedFiles, wanted: Wanted, name: bytes, *, is_file: bool) -> bytes:
    """Creates the missing parent directories and returns the destination path."""
    from cowfs.transfer.links import directory_at

    to = wanted.to
    if is_file:
        at = directory_at(target, to)
        if at is not None or wanted.is_directory:
            to = _below(at if at is not None else to, name)
    above = b""
    for part in to.split(b"/")[:-1]:
        above = above + b"/" + part if above else part
        with suppress(FileExistsError):
            target.mkdir(above)
    return to


def _leaving(
    tree: SourceTree,
    at: bytes,
    first: Attributes,
    target: MountedFiles,
    to: bytes,
    excluded: Callable[[bytes], bool],
) -> list[bytes]:
    """Paths to remove below `to`, children before their parents: paths missing from the source, and
    paths with a directory on one side only. Excluded paths and the directories that lead to
    them stay. ConflictError: the source has another kind of entry at a path that is excluded or
    leads to an excluded one."""
    from cowfs.transfer.upload.upload_plan import exclusion_conflict

    gone: list[bytes] = []

    def is_excluded(path: bytes, attr: Attributes) -> bool:
        return path != at and excluded(_relative(path, at, attr))

    def leave(path: bytes, there: bytes, attr: Attributes) -> bytes | None:
        """Marks for removal. Returns an excluded path at or below `there`, if there is one."""
        if is_excluded(path, attr):
            return path
        inside = target.list(there) if stat.S_ISDIR(attr.mode) else ()
        kept = [leave(_below(path, name), _below(there, name), each) for name, each in inside]
        found = next((each for each in kept if each is not None), None)
        if found is None:
            gone.append(there)
        return found

    waiting = [(at, to, first)]
    while waiting:
        path, there, attr = waiting.pop()
        found = _find(target, there)
        if found is None:
            continue
        if stat.S_ISDIR(attr.mode) != stat.S_ISDIR(found.mode) and there:
            if (kept := leave(path, there, found)) is not None:
                raise exclusion_conflict(path, kept)
        elif stat.S_ISDIR(attr.mode):
            inside = {name: each for name, each in tree.list(path) if not is_excluded(_below(path, name), each)}
            for name, each in target.list(there):
                if name in inside:
                    waiting.append((_below(path, name), _below(there, name), inside[name]))
                else:
                    leave(_below(path, name), _below(there, name), each)
    return gone


def _is_same(tree: SourceTree, path: bytes, target: MountedFiles, there: bytes, attr: Attributes) -> bool:
    found = _find(target, there)
    if found is None or stat.S_IFMT(found.mode) != stat.S_IFMT(attr.mode):
        return False
    if stat.S_ISLNK(attr.mode):
        return target.readlink(there) == tree.readlink(path)
    is_same = (found.size, found.mtime_ns) == (attr.size, attr.mtime_ns)
    is_same = is_same and stat.S_IMODE(found.mode) == stat.S_IMODE(attr.mode)
    return is_same and _is_same_state(target, there, attr)


def _is_same_state(target: MountedFiles, there: bytes, attr: Attributes) -> bool:
    from cowfs.transfer.imports.object_tree import STATE, state_of

    if (state := state_of(attr)) is None:
        return True
    return bool(state) and target.xattr(there, STATE) == state.encode()


def _find(target: MountedFiles, path: bytes) -> Attributes | None:
    with NothingThere():
        return target.stat(path)
    return None


def _below(directory: bytes, name: bytes) -> bytes:
    return directory + b"/" + name if directory else name


def _relative(path: bytes, at: bytes, attr: Attributes) -> bytes:
    relative = path[len(at) :].lstrip(b"/")
    return relative + b"/" if stat.S_ISDIR(attr.mode) else relative
