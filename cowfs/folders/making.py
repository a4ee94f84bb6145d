"""A new folder at a mount path, filled from a version (`filling`), and its record.

The folder must be empty. A new folder is closed to other users until it is complete. If it cannot
be filled, it is removed again.
"""

from __future__ import annotations

import os
from contextlib import ExitStack, suppress

from cowfs.base.beneath import Root
from cowfs.base.errors import AccessDeniedError, ConflictError, InvalidInputError
from cowfs.base.fast_dataclass import dataclass
from cowfs.base.hints import Command
from cowfs.base.ids import StoreId, VersionId
from cowfs.control import MountOptions
from cowfs.folders import filling
from cowfs.machine import mounting
from cowfs.machine.folders import mapped_stores
from cowfs.machine.folders.folder import Copy
from cowfs.machine.folders.record import CopyRecord
from cowfs.transfer.cloned_files import ClonedFiles
from cowfs.transfer.version_tree import VersionTree
from cowfs.version.commit import ProgressListener


@dataclass(frozen=True)
class Contents:
    """The contents of a new folder. version: None for a volume without a version."""

    store_url: str
    store_id: StoreId
    volume: str
    version: VersionId | None
    tree: VersionTree
    read_only: bool


def make_folder(copy: Copy, path: str, contents: Contents, options: MountOptions, progress: ProgressListener) -> None:
    """Makes the folder at a canonical path, or fills an empty one. OSError: raised by the local
    file system."""
    tree, read_only = contents.tree, contents.read_only
    mode, mtime_ns = filling.root_attributes(tree, read_only=read_only)
    with ExitStack() as stack:
        is_made = _prepare(path)
        root = stack.enter_context(_open_empty(path))
        record = CopyRecord.new(
            root,
            path,
            is_made=is_made,
            version=contents.version,
            read_only=read_only,
            root_mode=mode,
            root_mtime_ns=mtime_ns,
            store_url=contents.store_url,
            store_id=contents.store_id.hex(),
            volume=contents.volume,
        )
        try:
            private = stack.enter_context(copy.begin(root, record))
            if not read_only and not mapped_stores.are_noted(private.fileno()):
                raise _count_memory(path)
            clones = ClonedFiles(options.cache_path, options.cache_size_bytes)
            written = filling.fill(tree, private, read_only=read_only, report=progress, clones=clones)
            clones.trim()
            try:
                copy.end_filling(root, private, contents.version, written)
            except PermissionError as error:
                unreadable = os.fsencode(error.filename or b"").removeprefix(private.path)
                raise _unreadable(contents.volume, unreadable) from error
        except BaseException:
            with suppress(OSError):  # then the next mount does
                copy.remove_filling()
            raise


def _prepare(path: str) -> bool:
    """Returns whether the folder was made. A new folder is closed to other users until complete."""
    with Root.open("/") as top:
        if not top.exists(path[1:]):
            mounting.require_parent(path)
            if top.make_directory(path[1:], 0o700, exact=True):
                return True
    mounting.prepare_directory(path, may_be_mount=True)  # for example, a container's volume
    return False


def _open_empty(path: str) -> Root:
    """The folder, which is empty. Its path has no links, so none can have appeared since."""
    with Root.open("/") as top:
        root = Root(top.open_fd(path[1:], os.O_RDONLY | os.O_DIRECTORY), path)
    if os.listdir(root.fileno()):
        root.close()
        raise ConflictError(f"{path} is not empty", hint="Choose an empty directory, or a path that does not exist.")
    return root


def _count_memory(path: str) -> InvalidInputError:
    return InvalidInputError(
        f"{path} lies on a file system in memory (tmpfs), which does not note what is stored through a mapping: changes would be "
        "missed",
        hint="Choose a path on a disk, or mount by FUSE (mode='fuse', --mode fuse). A version can be mounted there read-only.",
    )


def _unreadable(volume: str, path: bytes) -> AccessDeniedError:
    return AccessDeniedError(
        f"{os.fsdecode(path)!r} of {volume} is a directory that its owner may not read: in a copy nobody could see whether "
        "something has changed there",
        hint=f'Mount by FUSE (mode="fuse", --mode fuse), or as root; or read it without a mount: {Command("cp")}, files.',
    )
