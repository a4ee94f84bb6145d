"""How often, and how deep, cowfs asks the store: counted by a relay, so that a busy machine does
not matter.

    mount-version, mount-volume    with empty caches
    commit-one                     a file of a few bytes was added
    fork                           by locator
    list-root                      `ls` of the root of a version, with empty caches
    small-cold                     all files of a version of small files are read, with empty caches

Each is a process or a mount of its own, as users have it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from benchmarks import scratch
from benchmarks.store_path.places import Place
from cowfs.base import clock
from cowfs.blocking import Volume

PER_DIRECTORY = 500
SMALL_BYTES = 4096

Save = Callable[[str, dict[str, float]], None]


def run(place: Place, directory: Path, files: int, save: Save, *, traced: bool) -> None:
    """files: in the version that is listed and read, PER_DIRECTORY in each directory. traced:
    prints each request."""
    assert place.relayed is not None
    relay = place.relayed
    tree = directory / "tree"
    scratch.small_files(tree, files, SMALL_BYTES, per_directory=PER_DIRECTORY)
    volume = Volume.new("counted", store=str(place.store))
    volume.files.upload(tree)
    locator = Volume.version("counted", store=str(place.store)).locator
    number = 0

    def count(row: str, *arguments: str) -> None:
        nonlocal number
        number += 1
        environ = {**os.environ, "COWFS_STORE": str(place.store), "COWFS_CACHE_DIR": str(directory / f"cache-{number}")}
        relay.seen()
        start_s = clock.monotonic_s()
        subprocess.run([sys.executable, "-m", "cowfs.cli", *arguments], env=environ, check=True, capture_output=True)
        seconds = clock.monotonic_s() - start_s
        if traced:
            print(f"\n{row}", file=sys.stderr)
        save(row, {"seconds": seconds, **relay.seen(traced=traced)})

    at = directory / "mount"
    count("mount-version", "mount", locator, str(at))
    relay.seen()
    for directory_path, _, names in os.walk(at):
        for name in names:
            Path(directory_path, name).read_bytes()
    found = relay.seen()
    megabytes = files * SMALL_BYTES / 1e6
    save("small-cold", {**found, "requests_per_mb": found["requests"] / megabytes})
    count("unmount", "unmount", str(at))
    count("list-root", "ls", f"{locator}")
    count("fork", "fork", locator, "forked")
    count("mount-volume", "mount", "counted", str(at))
    (at / "one").write_text("a few bytes")
    count("commit-one", "commit", str(at))
    count("unmount", "unmount", str(at))
    shutil.rmtree(tree)
