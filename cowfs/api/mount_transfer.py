"""Uploads, copies and imports to, and downloads from, a volume that is mounted on this machine: by
the mount's path, as `cp` would. What goes in is the mount's uncommitted work, which its commit
publishes.

    in          below the mount's root; names are opened one by one, so no link leads out of the volume
    download    what programs see there, committed or not

Files of the same size and time of modification are there already; objects also if they are in the
same state, which their files are marked with.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from cowfs.api import local_paths, mount_paths
from cowfs.api.local_paths import Own
from cowfs.api.path_errors import NOT_DOWN, NOT_HERE, NothingThere, errors_of_ours
from cowfs.api.transfer_report import Source, TransferReport
from cowfs.errors import ConflictError
from cowfs.machine.registry import MountEntry
from cowfs.values import dataclass
from cowfs.version.commit import ProgressListener

if TYPE_CHECKING:
    from cowfs.session.copying import Attributes
    from cowfs.session.mounted_files import MountedFiles
    from cowfs.session.upload_reading import SourceTree


@dataclass(frozen=True)
class Wanted:
    """to: in the volume; is_directory: it is to be one. excluded: as for `UploadPlan`."""

    to: bytes
    is_directory: bool = False
    delete: bool = False
    excluded: Callable[[bytes], bool] = lambda path: False


def upload(
    entry: MountEntry, src: bytes, wanted: Wanted, own: list[Own], locator: str, progress: ProgressListener | None
) -> TransferReport:
    """From a path of this machine. own: directories that the source must lie apart from, besides
    the mount. locator: of the volume's last version."""
    mount = Own(Path(entry.mount_path), f"the mount of {entry.volume}", "copy within the mount")
    local_paths.require_apart(src, [*own, mount])
    with ExitStack() as stack, errors_of_ours(os.fsdecode(src), NOT_HERE):
        source = Source(*local_paths.source(stack, src))
        local_paths.read_pipe(source.tree)
        return put(entry, source, wanted, locator, progress)


def put(
    entry: MountEntry, source: Source, wanted: Wanted, locator: str, progress: ProgressListener | None
) -> TransferReport:
    """What is at `source`. It must not lie in the mount."""
    from cowfs.session import copying
    from cowfs.session.local_source import LocalSource
    from cowfs.session.mounted_files import MountedFiles
    from cowfs.session.object_tree import marks

    tree, at = source.tree, source.at
    with MountedFiles(os.fsencode(entry.mount_path)) as target:
        require_there(entry)
        with errors_of_ours(entry.mount_path, NOT_DOWN):
            first = tree.stat(at)
            to = _made(target, wanted, source.name, is_file=not stat.S_ISDIR(first.mode))
            gone = _leaving(tree, at, first, target, to, wanted.excluded) if wanted.delete else []
            for path in gone:
                target.remove(path)

            def leaves_out(path: bytes, attr: Attributes) -> bool:
                return wanted.excluded(_relative(path, at, attr))

            def keeps(path: bytes, there: bytes, attr: Attributes) -> bool:
                return _is_same(tree, path, target, there, attr)

            found = LocalSource(tree, leaves_out)
            is_fuse = not entry.is_copy
            done = copying.copy(found, at, target, to, progress, keeps=keeps, marks=marks, tells_apart=is_fuse)
    return TransferReport(**asdict(done), removed=len(gone), locator=locator, is_new=False, mount_path=entry.mount_path)


def require_there(entry: MountEntry) -> None:
    """ConflictError: it was unmounted, perhaps before its root was opened."""
    if not mount_paths.is_there(entry):
        raise ConflictError(
            f"volume {entry.volume!r} was unmounted from {entry.mount_path} meanwhile",
            hint="Do it again, without the mount.",
        )


def _made(target: MountedFiles, wanted: Wanted, name: bytes, *, is_file: bool) -> bytes:
    """Where the source goes; the directories above it are made."""
    to = wanted.to
    if is_file and (wanted.is_directory or not to or _is_directory(target, to)):
        to = to + b"/" + name if to else name
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
    """What is below `to` and not in the source, and what is a directory only on one side, but for
    what is excluded and the directories that lead to it; each after what is in it. ConflictError:
    the source has something else in place of what is excluded, or leads to it."""
    from cowfs.session.upload_plan import in_the_way

    gone: list[bytes] = []

    def is_excluded(path: bytes, attr: Attributes) -> bool:
        return path != at and excluded(_relative(path, at, attr))

    def leave(path: bytes, there: bytes, attr: Attributes) -> bytes | None:
        """Gives what is excluded there, if anything is."""
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
        found = _found(target, there)
        if found is None:
            continue
        if stat.S_ISDIR(attr.mode) != stat.S_ISDIR(found.mode) and there:
            if (kept := leave(path, there, found)) is not None:
                raise in_the_way(path, kept)
        elif stat.S_ISDIR(attr.mode):
            inside = {name: each for name, each in tree.list(path) if not is_excluded(_below(path, name), each)}
            for name, each in target.list(there):
                if name in inside:
                    waiting.append((_below(path, name), _below(there, name), inside[name]))
                else:
                    leave(_below(path, name), _below(there, name), each)
    return gone


def _is_same(tree: SourceTree, path: bytes, target: MountedFiles, there: bytes, attr: Attributes) -> bool:
    found = _found(target, there)
    if found is None or stat.S_IFMT(found.mode) != stat.S_IFMT(attr.mode):
        return False
    if stat.S_ISLNK(attr.mode):
        return target.readlink(there) == tree.readlink(path)
    is_same = (found.size, found.mtime_ns) == (attr.size, attr.mtime_ns)
    is_same = is_same and stat.S_IMODE(found.mode) == stat.S_IMODE(attr.mode)
    return is_same and _is_same_state(target, there, attr)


def _is_same_state(target: MountedFiles, there: bytes, attr: Attributes) -> bool:
    from cowfs.session.object_tree import STATE, state_of

    if (state := state_of(attr)) is None:
        return True
    return bool(state) and target.xattr(there, STATE) == state.encode()


def _found(target: MountedFiles, path: bytes) -> Attributes | None:
    with NothingThere():
        return target.stat(path)
    return None


def _is_directory(target: MountedFiles, path: bytes) -> bool:
    found = _found(target, path)
    return found is not None and stat.S_ISDIR(found.mode)


def _below(directory: bytes, name: bytes) -> bytes:
    return directory + b"/" + name if directory else name


def _relative(path: bytes, at: bytes, attr: Attributes) -> bytes:
    relative = path[len(at) :].lstrip(b"/")
    return relative + b"/" if stat.S_ISDIR(attr.mode) else relative
