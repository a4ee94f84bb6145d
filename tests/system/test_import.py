"""`import cowfs` is light: the heavy libraries come when they are needed."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = (
    "trio",
    "pyfuse3",
    "obstore",
    "s3fs",
    "fsspec",
    "aiobotocore",
    "botocore",
    "apsw",
    "click",
    "textual",
    "blake3",
)


@pytest.mark.quick
def test_import_cowfs_loads_nothing_heavy() -> None:
    script = f"import cowfs, sys; print([name for name in {HEAVY!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-I", "-c", script], capture_output=True, text=True)
    assert (done.returncode, done.stdout.strip()) == (0, "[]"), done.stderr


@pytest.mark.quick
def test_public_names_import_without_fuse() -> None:
    """The user's process never needs trio or libfuse; only the daemon does."""
    script = (
        "from cowfs import Volume; import cowfs.blocking, sys; print('trio' in sys.modules, 'pyfuse3' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-I", "-c", script], capture_output=True, text=True)
    assert (done.returncode, done.stdout.strip()) == (0, "False False"), done.stderr
