"""Ctrl-C at any moment: one line, or one JSON document, and exit code 130."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

INTERRUPTING = """
import os, signal, sys
class Finder:
    '''Interrupts this process when the named module is about to be loaded.'''
    def find_spec(self, name, path=None, target=None):
        if name == WANTED:
            os.kill(os.getpid(), signal.SIGINT)
WANTED = sys.argv.pop(1)
sys.meta_path.insert(0, Finder())
from cowfs.cli.start import main
main()
"""

MODULES = ["cowfs.cli.main", "click", "cowfs.errors", "cowfs.cli.ls", "cowfs.api.overview", "cowfs.store"]


@pytest.mark.parametrize("module", MODULES)
@pytest.mark.parametrize("as_json", [False, True])
def test_an_interrupt_shows_no_traceback(module: str, as_json: bool, tmp_path: Path) -> None:
    environment = {
        **os.environ,
        "COWFS_STORE": str(tmp_path),
        "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path)),
    }
    command = [sys.executable, "-c", INTERRUPTING, module, "ls", *(["--json"] if as_json else [])]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 130, done.stderr
    assert "Traceback" not in done.stderr
    if as_json:
        assert json.loads(done.stdout)["error"]["kind"] == "interrupted"
    else:
        assert done.stderr.lstrip("\n") == "cowfs: interrupted\n"  # click ends the line that shows ^C
