"""Where the conformance programs are; a missing one is a failure."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

ROOT = Path(__file__).parents[2]
VERSIONS = {"pjdfstest": "0.2.2", "fsx": "0.3.2"}


def find_tool(name: str) -> str:
    """The program that `make tools` installed, or the one in $COWFS_TOOLS or on PATH."""
    places = [os.environ.get("COWFS_TOOLS", ""), str(ROOT / ".tools" / "bin"), os.environ.get("PATH", "")]
    found = shutil.which(name, path=os.pathsep.join(filter(None, places)))
    assert found, f"{name} {VERSIONS[name]} is not installed: run `make tools`"
    return found
