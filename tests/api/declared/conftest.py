"""A user without files of their own, and a project's directory to work in."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in list(os.environ):
        if name.startswith("COWFS_"):
            monkeypatch.delenv(name)
    for kind in ("CONFIG", "DATA", "STATE", "CACHE"):
        monkeypatch.setenv(f"XDG_{kind}_HOME", str(tmp_path / "home" / kind.lower()))
    place = tmp_path / "project"
    place.mkdir()
    monkeypatch.chdir(place)
    return place
