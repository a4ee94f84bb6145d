"""Jobs of the suite's workloads, as those of `cowfs.bench.jobs`. A worker finds them by
`benchmarks.jobs:NAME`.

    digest, verify_record    check the files of other programs
    append                   one byte
"""

from __future__ import annotations

import base64
import csv
import hashlib
import os
from pathlib import Path
from typing import Any

from cowfs.bench.jobs import Job, Wrong


def append(path: str) -> Job:
    """Appends one byte."""
    yield
    with Path(path).open("ab", buffering=0) as file:
        file.write(b"+")
    yield
    return 1


def verify_record(path: str) -> Job:
    """Checks that every file in a wheel's RECORD has the hash stated there."""
    (record,) = Path(path).glob("*.dist-info/RECORD")
    rows = list(csv.reader(record.read_text().splitlines()))
    yield
    for name, stated, _ in rows:
        if stated.startswith("sha256=") and not name.startswith("../"):  # scripts were moved
            found = hashlib.sha256((Path(path) / name).read_bytes()).digest()
            if base64.urlsafe_b64encode(found).rstrip(b"=").decode() != stated.removeprefix("sha256="):
                raise Wrong(f"{name} has another hash than its RECORD says")
    yield
    return len(rows)


def digest(path: str) -> Job:
    """A digest of a directory's names, kinds, modes and contents, and the number of its files."""
    yield
    found = tree_digest(path)
    yield
    return found


def tree_digest(path: str) -> list[Any]:
    whole = hashlib.blake2b(digest_size=16)
    count = 0
    for directory, directories, files in os.walk(path):
        directories.sort()
        for name in sorted(files):
            full = os.path.join(directory, name)
            is_link = os.path.islink(full)
            content = os.fsencode(os.readlink(full)) if is_link else Path(full).read_bytes()
            mode = os.lstat(full).st_mode
            whole.update(repr((os.path.relpath(full, path), mode, hashlib.blake2b(content).hexdigest())).encode())
            count += 1
    return [whole.hexdigest(), count]
