"""What a wheel is shown to do where nothing can be mounted: `.ci/check-aarch64` runs this file with
the wheel's Python, which has no pytest."""

from __future__ import annotations

import platform
import tempfile
from pathlib import Path

from cowfs.blocking import Store


def main() -> None:
    place = Path(tempfile.mkdtemp())  # its caller removes it: sessions end with the program
    tree = {str(number): bytes([number]) * 10_000 * (number + 1) for number in range(50)}
    (place / "tree").mkdir()
    for name, data in tree.items():
        (place / "tree" / name).write_bytes(data)
    store = Store(place / "store")
    store.upload(place / "tree", "data")
    version = store.version("data")
    assert version.stats.files == len(tree)
    assert version.files.read("49") == tree["49"]

    for name in ("one", "other"):
        fork = version.fork(name)
        fork.files.write(name, name.encode())
        fork.commit()
    store.merge("data", ["one", "other"])
    merged = store.version("data")
    assert (merged.files.read("one"), merged.files.read("other")) == (b"one", b"other")

    store.download("data", place / "back")
    assert all((place / "back" / name).read_bytes() == data for name, data in tree.items())
    assert store.verify().is_sound
    where = f"{platform.machine()}, Python {platform.python_version()}, glibc {platform.libc_ver()[1]}"
    print(f"{where}: upload, files, fork, merge, download and verify work")


if __name__ == "__main__":
    main()
