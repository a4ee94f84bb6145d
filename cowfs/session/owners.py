"""Whose files a mount shows to be whose (`MountOptions.map_owner`).

The version's owner is the owner of its root directory when it is opened (of a mounted folder:
that folder's): whoever made the volume, as long as nobody has given the tree to somebody else. That
one and the mapped owner are one for the length of the mount. `native.Owners` is the mapping, for
both servers; they apply it where requests come in and replies go out, so what lies in the version
never changes by it. What is written without a mount is kept as a mount would keep it.
"""

from __future__ import annotations

import os

from cowfs.control import MountOptions
from cowfs.native import Engine, Owners
from cowfs.native.constants import ROOT_INO


def of_session(engine: Engine, options: MountOptions) -> Owners:
    """As the resolved options say; the engine has replayed its journal."""
    root = engine.getattr(ROOT_INO)
    return _of_root((root.uid, root.gid), options)


def kept_as(root: tuple[int, int], options: MountOptions) -> tuple[int, int]:
    """As whose the files that this process makes are kept, in a version whose root belongs to
    `root`."""
    owners = _of_root(root, options)
    return owners.kept_user(os.geteuid()), owners.kept_group(os.getegid())


def _of_root(kept: tuple[int, int], options: MountOptions) -> Owners:
    if (given := options.mapped_owner) is not None:
        return Owners(kept, given)
    is_of_another = options.map_owner == "caller" and kept[0] != os.geteuid()
    return Owners(kept, (os.geteuid(), os.getegid()) if is_of_another else kept)
