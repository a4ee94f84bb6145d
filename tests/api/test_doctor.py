"""What doctor says of a machine's settings."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from cowfs.api.doctor import machine
from cowfs.machine import kernel

pytestmark = pytest.mark.quick


@pytest.mark.parametrize(("setting", "state"), [("0\n", "warn"), ("200000\n", "ok"), ("", "ok"), (None, "ok")])
def test_halt_polling(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, setting: str | None, state: str) -> None:
    path = tmp_path / "guest_halt_poll_ns"
    if setting is not None:
        path.write_text(setting)
    monkeypatch.setattr(kernel, "GUEST_HALT_POLL_NS", path)
    check = machine.halt_polling()
    assert check.state == state
    assert (str(path) in check.hint) is (state == "warn")


def test_the_other_server_is_needed_only_where_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without libfuse3 the import of pyfuse3 fails."""
    monkeypatch.setitem(sys.modules, "pyfuse3", None)
    monkeypatch.delenv("COWFS_FAST_LANE", raising=False)
    assert machine.pyfuse3().state == "ok"
    monkeypatch.setenv("COWFS_FAST_LANE", "0")
    check = machine.pyfuse3()
    assert (check.state, check.kind) == ("fail", "mount_failed")
    assert "cowfs[pyfuse3]" in check.hint
