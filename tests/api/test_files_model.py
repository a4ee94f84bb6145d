"""`vol.files` compared with a directory of this machine: the same calls, the same tree, the same
kinds of errors; also after commits, after the session was ended, in versions, and in a scratch that
has become a volume. Nothing else mounts."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from cowfs.blocking import ROVolume, RWVolume, Volume
from tests.api.conftest import place

__all__ = ["place"]

NAMES = st.sampled_from(["a", "b", "c", "d\udcff"])
PATHS = st.lists(NAMES, min_size=1, max_size=3).map("/".join)
DATA = st.builds(lambda size, seed: bytes([seed]) * size, st.sampled_from([0, 1, 4096, 200_000]), st.integers(0, 255))
SAME = {errno.ENOTEMPTY: errno.EEXIST, errno.EPERM: errno.EISDIR}
"""Either may be answered, says POSIX."""


def outcome(call: Callable[[], Any]) -> Any:
    """What a call returns, or the number of its error."""
    try:
        return call()
    except OSError as error:
        assert error.errno is not None
        return "error", SAME.get(error.errno, error.errno)


class Model:
    """The same calls on a plain directory."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def tree(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for path in sorted(self.root.rglob("*")):
            shown = path.lstat()
            content = os.readlink(path) if path.is_symlink() else path.read_bytes() if path.is_file() else None
            found[str(path.relative_to(self.root))] = (content, shown.st_mode if not path.is_symlink() else None)
        return found

    def remove(self, path: str, *, recursive: bool) -> None:
        place = self.root / path
        if place.is_symlink() or not place.is_dir():
            place.unlink()
        elif recursive:
            shutil.rmtree(place)
        else:
            place.rmdir()

    def patch(self, path: str, offset: int, data: bytes, size: int | None) -> None:
        with open(self.root / path, "r+b") as file:
            patch(file, offset, data, size)

    def write(self, path: str, data: bytes, mode: str = "wb") -> None:
        with open(self._inside(path), mode) as file:
            file.write(data)

    def copy(self, source: str, target: str) -> None:
        old, new = self.root / source, self.root / target
        if old.is_dir():
            raise IsADirectoryError(errno.EISDIR, "")
        old.stat()
        if new.exists() and new.samefile(old):
            return
        is_new = not new.exists()
        self._inside(target).write_bytes(old.read_bytes())
        if is_new:
            new.chmod(old.stat().st_mode & 0o777)

    def _inside(self, path: str) -> Path:
        """Around a volume there is nothing: no link leads to a file that could be made there."""
        place = self.root / path
        if not Path(os.path.realpath(place)).is_relative_to(os.path.realpath(self.root)):
            raise FileNotFoundError(errno.ENOENT, "")
        return place


def patch(file: Any, offset: int, data: bytes, size: int | None) -> None:
    file.seek(offset)
    file.write(data)
    if size is not None:
        file.truncate(size)


class FilesMachine(RuleBasedStateMachine):
    @initialize()
    def begin(self) -> None:
        self.directory = Path(tempfile.mkdtemp(dir=os.environ["COWFS_CACHE_DIR"]))
        self.model = Model(self.directory)
        self.vol: RWVolume = Volume.new().resolve()
        self.versions: list[tuple[ROVolume, dict[str, Any]]] = []

    def both(self, real: Callable[[], Any], model: Callable[[], Any]) -> None:
        assert outcome(real) == outcome(model)

    def either(self, real: Callable[[], Any], model: Callable[[], Any]) -> None:
        """Which of two bad paths is told of is not said."""
        assert (outcome(real) is None) == (outcome(model) is None)

    @rule(path=PATHS, data=DATA)
    def write(self, path: str, data: bytes) -> None:
        self.both(lambda: self.vol.files.write(path, data), lambda: self.model.write(path, data))

    @rule(path=PATHS, data=DATA)
    def append(self, path: str, data: bytes) -> None:
        self.both(lambda: self.vol.files.append(path, data), lambda: self.model.write(path, data, "ab"))

    @rule(path=PATHS, offset=st.integers(0, 9000), data=DATA, size=st.none() | st.integers(0, 9000))
    def overwrite(self, path: str, offset: int, data: bytes, size: int | None) -> None:
        def real() -> None:
            with self.vol.files.open(path, "r+b") as file:
                patch(file, offset, data, size)

        self.both(real, lambda: self.model.patch(path, offset, data, size))

    @rule(path=PATHS)
    def make_directory(self, path: str) -> None:
        self.both(lambda: self.vol.files.mkdir(path), lambda: os.mkdir(self.directory / path, 0o755))

    @rule(path=PATHS, recursive=st.booleans())
    def remove(self, path: str, *, recursive: bool) -> None:
        self.both(
            lambda: self.vol.files.remove(path, recursive=recursive),
            lambda: self.model.remove(path, recursive=recursive),
        )

    @rule(source=PATHS, to=PATHS)
    def move(self, source: str, to: str) -> None:
        old, new = self.directory / source, self.directory / to
        self.either(lambda: self.vol.files.move(source, to), lambda: os.rename(old, new))

    @rule(source=PATHS, to=PATHS)
    def copy(self, source: str, to: str) -> None:
        self.either(lambda: self.vol.files.copy(source, to), lambda: self.model.copy(source, to))

    @rule(path=PATHS, to=st.sampled_from(["a", "b/c", "../a", "c"]))
    def link(self, path: str, to: str) -> None:
        self.both(lambda: self.vol.files.symlink(path, to), lambda: os.symlink(to, self.directory / path))

    @rule(path=PATHS, mode=st.sampled_from([0o600, 0o755, 0o644]))
    def chmod(self, path: str, mode: int) -> None:
        self.both(lambda: self.vol.files.chmod(path, mode), lambda: os.chmod(self.directory / path, mode))

    @rule(path=PATHS, offset=st.integers(0, 300_000), length=st.none() | st.integers(0, 300_000))
    def read(self, path: str, offset: int, length: int | None) -> None:
        end = None if length is None else offset + length
        self.both(
            lambda: self.vol.files.read(path, offset, length),
            lambda: (self.directory / path).read_bytes()[offset:end],
        )

    @rule()
    def commit(self) -> None:
        version = self.vol.commit()
        assert not self.vol.has_changes()
        self.versions.append((version, self.model.tree()))

    @rule()
    def end_the_session(self) -> None:
        self.end()

    def end(self) -> None:
        if self.vol.is_mounted:  # perhaps by a scratch, which would drop what is not committed
            self.vol.commit()
        self.vol.unmount()

    @rule()
    def go_on_in_a_scratch(self) -> None:
        """Which becomes a volume, and has that volume's files and work."""
        version = self.vol.commit()
        self.end()
        version.mount(scratch=True)
        self.vol = Volume.open(version.commit_scratch().name)

    @precondition(lambda self: not self.vol.is_mounted)
    @rule()
    def mount(self) -> None:
        self.vol.mount()

    @rule()
    def another_object(self) -> None:
        self.vol = Volume.open(self.vol.name)

    @precondition(lambda self: self.versions)
    @rule(which=st.integers(0))
    def look_at_a_version(self, which: int) -> None:
        version, tree = self.versions[which % len(self.versions)]
        assert seen(version.files) == tree

    @invariant()
    def trees_are_equal(self) -> None:
        if hasattr(self, "vol"):
            assert seen(self.vol.files) == self.model.tree()

    def teardown(self) -> None:
        if hasattr(self, "vol"):
            self.end()


def seen(files: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for entry in files.ls(recursive=True):
        content = entry.target if entry.type == "symlink" else files.read(entry) if entry.type == "file" else None
        found[entry.path[1:]] = (content, entry.mode if entry.type != "symlink" else None)
    return dict(sorted(found.items(), key=lambda each: Path(each[0])))


@pytest.mark.mount
@pytest.mark.skipif(os.geteuid() != 0, reason="the model is a directory whose permissions bind others than root")
def test_files_are_those_of_a_directory(place: Path) -> None:
    (place / "c").mkdir()
    run_state_machine_as_test(FilesMachine, settings=settings(max_examples=8, stateful_step_count=25))
