"""The supervisor of a test's runtime directory."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from cowfs.supervisor import client


def pid_of(runtime: Path) -> int | None:
    """None: none runs. runtime: what XDG_RUNTIME_DIR names."""
    connection = client.find(str(runtime / "cowfs"))
    if connection is None:
        return None
    with connection:
        return client.peer(connection)[0]


def end(runtime: Path) -> None:
    """Kills it, so that no daemon is started again."""
    if (pid := pid_of(runtime)) is not None:
        os.kill(pid, signal.SIGKILL)
