"""Maps the owner of a version's files for a mount (`MountOptions.map_owner`).

The version's owner is the owner of its root directory when it is opened (for a mounted folder, of
that folder): the user who created the volume, unless the tree was given to another user. The mount
shows files of that owner as files of the mapped owner, and the reverse when it stores them.
`native.Owners` implements the mapping for both servers, on requests and replies, so the version
itself never changes by it. Files written without a mount are stored as through a mount.
"""

from __future__ import annotations

import os

from cowfs.control import MountOptions
from cowfs.native import Engine, Owners
from cowfs.native.constants import ROOT_INO


def of_session(engine: Engine, options: MountOptions) -> Owners:
    """Returns the mapping of the resolved options. The engine must have replayed its journal."""
    root = engine.getattr(ROOT_INO)
    return _of_root((root.uid, root.gid), options)


def resolve_owner(root: tuple[int, int], options: MountOptions) -> tuple[int, int]:
    """The owner stored for files that this process creates, in a version whose root belongs to
    `root`."""
    owners = _of_root(root, options)
    return owners.kept_user(os.geteuid()), owners.kept_group(os.getegid())


def _of_root(kept: tuple[int, int], options: MountOptions) -> Owners:
    if (given := options.mapped_owner) is not None:
        return Owners(kept, given)
    is_of_another = options.map_owner == "caller" and kept[0] != os.geteuid()
    return Owners(kept, (os.geteuid(), os.getegid()) if is_of_another else kept)
