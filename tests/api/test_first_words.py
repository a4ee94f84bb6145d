"""What a newcomer types first, and what it says when it is not quite right."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import cowfs
from cowfs.blocking import Volume
from tests.api.conftest import place

__all__ = ["place"]


def test_public_modules_are_there_without_an_import_of_their_own() -> None:
    program = "import cowfs; print(cowfs.storage.Local, cowfs.blocking.Volume, cowfs.errors.CowfsError, cowfs.mounts)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "Local" in done.stdout
    assert {"storage", "blocking"} <= set(dir(cowfs))


def test_python_m_cowfs_is_cowfs() -> None:
    for module in ("cowfs", "cowfs.cli"):
        done = subprocess.run([sys.executable, "-m", module, "--version"], capture_output=True, text=True, check=True)
        assert "cowfs" in done.stdout


def test_a_volume_is_not_made_by_its_class() -> None:
    with pytest.raises(TypeError, match=r"Volume\.open\(NAME\)"):
        Volume("a")
    with pytest.raises(TypeError, match=r"Volume\.open\(NAME\)"):
        cowfs.Volume("a")


def test_texts_and_bytes(place: Path) -> None:
    files = Volume.new("texts").files
    files.write_text("/a", "Grüße\n")
    assert files.read("/a") == "Grüße\n".encode()
    assert files.read_text("/a") == "Grüße\n"
    files.write_text("/b", "ü", encoding="latin-1")
    assert files.read_text("/b", "latin-1") == "ü"
    with pytest.raises(UnicodeDecodeError):
        files.read_text("/b")
    assert files.read_text("/b", errors="replace") == "\ufffd"
    for write in (files.write, files.append):
        with pytest.raises(TypeError, match=r"write_text\(\)"):
            write("/a", "text")  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="int"):
            write("/a", 5)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="bytes is no text"):
        files.write_text("/a", b"x")  # type: ignore[arg-type]
    assert files.read_text("/a") == "Grüße\n"
