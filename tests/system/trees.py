"""What a directory tree holds, in a form that compares: every name with type, permissions, owner,
times, content, xattrs."""

from __future__ import annotations

import hashlib
import os
import stat
from pathlib import Path
from typing import NamedTuple

KEPT_XATTRS = ("user.", "trusted.", "system.posix_acl_")


class Node(NamedTuple):
    kind: int
    permissions: int
    uid: int
    gid: int
    links: int
    size: int
    mtime_ns: int
    content: str  # SHA-256 of a file's bytes, a link's target, a device's number
    xattrs: tuple[tuple[str, bytes], ...]


def digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_node(path: Path, *, times: bool = True, links: bool = True) -> Node:
    found = path.lstat()
    kind = stat.S_IFMT(found.st_mode)
    content = ""
    if kind == stat.S_IFREG:
        content = digest(path)
    elif kind == stat.S_IFLNK:
        content = os.readlink(path)
    elif kind in (stat.S_IFCHR, stat.S_IFBLK):
        content = str(found.st_rdev)
    names = [name for name in os.listxattr(path, follow_symlinks=False) if name.startswith(KEPT_XATTRS)]
    return Node(
        kind=kind,
        permissions=stat.S_IMODE(found.st_mode),
        uid=found.st_uid,
        gid=found.st_gid,
        links=found.st_nlink if links else 0,
        size=found.st_size
        if kind in (stat.S_IFREG, stat.S_IFLNK)
        else 0,  # a directory's size is the file system's own
        mtime_ns=found.st_mtime_ns if times else 0,
        content=content,
        xattrs=tuple(sorted((name, os.getxattr(path, name, follow_symlinks=False)) for name in names)),
    )


def read_tree(
    root: Path, *, times: bool = True, links: bool = True, skip: frozenset[str] = frozenset()
) -> dict[bytes, Node]:
    """Every path below root (bytes, relative) and root itself (b"."); `skip` names directories
    directly in root."""
    nodes = {b".": read_node(root, times=times, links=links)}
    pending = [root]
    while pending:
        directory = pending.pop()
        for entry in sorted(os.scandir(os.fsencode(directory)), key=lambda entry: entry.name):
            path = Path(os.fsdecode(entry.path))
            if directory == root and path.name in skip:
                continue
            nodes[os.path.relpath(os.fsencode(path), os.fsencode(root))] = read_node(path, times=times, links=links)
            if entry.is_dir(follow_symlinks=False):
                pending.append(path)
    return nodes


def differences(left: dict[bytes, Node], right: dict[bytes, Node], limit: int = 10) -> list[str]:
    """What differs, in words; empty when the trees are equal."""
    found = [f"only left: {name!r}" for name in left.keys() - right.keys()]
    found += [f"only right: {name!r}" for name in right.keys() - left.keys()]
    for name in sorted(left.keys() & right.keys()):
        if left[name] != right[name]:
            changed = [f for f in Node._fields if getattr(left[name], f) != getattr(right[name], f)]
            pairs = ", ".join(f"{f} {getattr(left[name], f)!r} != {getattr(right[name], f)!r}" for f in changed)
            found.append(f"{name!r}: {pairs}")
    return sorted(found)[:limit]
