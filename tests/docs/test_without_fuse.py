"""README's program runs unchanged where there is no FUSE, and makes the same version."""

from __future__ import annotations

import hashlib
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from cowfs.blocking import Volume
from tests.api.conftest import place
from tests.docs.test_guide import BLOCK, ROOT

__all__ = ["place"]

FILE = shlex.quote(sys.executable)
NO_CAPABILITIES = "setpriv --bounding-set=-all --inh-caps=-all --ambient-caps=-all"
MACHINES = {
    "fuse": "sh -c",
    "a device that is an empty file": "unshare --mount sh -c",
    "a user namespace": "unshare --user --map-root-user sh -c",
    "a user namespace without capabilities": f"unshare --user --map-root-user {NO_CAPABILITIES} sh -c",
}
HIDE = 'mount -t tmpfs none "$HOME/empty" && touch "$HOME/empty/fuse" && mount --bind "$HOME/empty/fuse" /dev/fuse && '


@pytest.mark.mount
@pytest.mark.skipif(os.geteuid() != 0, reason="hides /dev/fuse by a mount")
def test_the_readme_makes_the_same_version_without_fuse(place: Path) -> None:
    digests: dict[str, str] = {}
    for name, machine in MACHINES.items():
        home = place / "home" / str(len(digests))
        for directory in (home / "empty", home / "run"):
            directory.mkdir(parents=True, mode=0o700)
        locator, said = run(machine, home, hides="file" in name)
        digests[name] = digest(locator)
        assert ("cannot mount" in said) is (name != "fuse"), said
        assert said.count("WARNING") <= 1
        assert not (home / "cowfs" / "my-dataset").exists()
    assert len(set(digests.values())) == 1, digests


def run(machine: str, home: Path, *, hides: bool) -> tuple[str, str]:
    """The locator that the program prints, and what it says on standard error."""
    text = next(text for language, text in BLOCK.findall((ROOT / "README.md").read_text()) if language == "python")
    (home / "program.py").write_text(text)
    environ = {key: value for key, value in os.environ.items() if not key.startswith(("COWFS_", "XDG_", "AWS_"))}
    done = subprocess.run(
        [*shlex.split(machine), f"{HIDE if hides else ''}{FILE} {home}/program.py"],
        env={**environ, "HOME": str(home), "XDG_RUNTIME_DIR": str(home / "run")},
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip(), done.stderr


def digest(locator: str) -> str:
    """Of names, kinds, permissions and contents."""
    found = hashlib.sha256()
    files = Volume.from_locator(locator).files
    for entry in files.ls(recursive=True):
        content = files.read(entry) if entry.type == "file" else b""
        found.update(repr((entry.path, entry.type, entry.mode, entry.target, content)).encode())
    return found.hexdigest()
