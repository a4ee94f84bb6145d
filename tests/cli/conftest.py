"""The command line run in this process, on directories of its own."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from cowfs.base.hints import SLOT
from cowfs.cli import main


@dataclass(frozen=True)
class Said:
    """What a command left behind: exit code, stdout, stderr."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Run = Callable[..., Said]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("COWFS_CACHE_DIR", str(tmp_path / "c"))
    monkeypatch.setenv("COWFS_STATE_DIR", str(tmp_path / "c" / "state"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))
    monkeypatch.setenv("COWFS_STORE", (tmp_path / "store").as_uri())
    for variable in ("XDG_CONFIG_HOME", "XDG_DATA_HOME"):
        monkeypatch.delenv(variable, raising=False)
    return tmp_path


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def runner(*arguments: str) -> Said:
        capsys.readouterr()
        code = main._run(list(arguments), as_json="--json" in arguments)
        done = capsys.readouterr()
        assert "Traceback" not in done.out + done.err
        assert f"{SLOT}`" not in done.out + done.err
        return Said(code, done.out, done.err)

    return runner
