"""A directory tree with everything a copy can get wrong, made the same way each time.

Python's own packages, and beside them: hard and symbolic links, a dangling one, a FIFO, empty and
deep directories, odd permissions, names of 255 bytes, names that are not UTF-8, extended
attributes, a sparse file, old nanosecond times.
"""

from __future__ import annotations

import os
import shutil
import sysconfig
from pathlib import Path

PACKAGES = ("asyncio", "email", "encodings", "json", "importlib", "unittest", "xml")


def stdlib() -> Path:
    return Path(sysconfig.get_paths()["stdlib"])


def make_source_tree(root: Path) -> Path:
    root.mkdir()
    for package in PACKAGES:
        shutil.copytree(stdlib() / package, root / package, ignore=shutil.ignore_patterns("__pycache__"))
    odd = root / "odd"
    odd.mkdir()
    (odd / "file").write_bytes(b"one\n" * 1000)
    os.link(odd / "file", odd / "hard link")
    (odd / "link").symlink_to("file")
    (odd / "dangling").symlink_to("/no/such/" + "x" * 300)
    os.mkfifo(odd / "fifo")
    (odd / "empty").mkdir()
    (odd / "empty file").touch()
    (odd / "deep" / "er" / "and" / "deeper").mkdir(parents=True)
    (odd / ("n" * 255)).write_text("a long name")
    for name in (b"\xff\xfe not utf-8", "composed é".encode(), "composed e\u0301".encode(), b"new\nline"):
        Path(os.fsdecode(os.fsencode(odd) + b"/" + name)).write_bytes(name)
    (odd / "private").write_text("secret")
    (odd / "private").chmod(0o600)
    (odd / "setgid").mkdir()
    (odd / "setgid").chmod(0o2755)
    (odd / "sticky").mkdir()
    (odd / "sticky").chmod(0o1777)
    os.setxattr(odd / "file", "user.origin", b"\x00binary\xff")
    os.setxattr(odd / "empty", "user.empty", b"")
    with (odd / "sparse").open("wb") as file:
        file.write(b"head")
        file.seek(50 << 20)
        file.write(b"tail")
    os.utime(odd / "file", ns=(1_000_000_001, 981_173_106_123_456_789))
    os.utime(odd / "link", ns=(5, 7), follow_symlinks=False)
    return root
