"""A commit streams what it publishes: its memory is some bytes a file, not some objects a file."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

FILES = 50_000
BYTES_A_FILE = 300
CONSTANT_BYTES = 40 << 20  # packs on their way, caches of pages, a page of rows of each kind


def test_a_commit_takes_few_bytes_a_file(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.version.commit_memory", str(FILES), str(tmp_path)]
    done = subprocess.run(command, check=True, capture_output=True, timeout=1200)
    peaks = json.loads(done.stdout)
    limit_bytes = FILES * BYTES_A_FILE + CONSTANT_BYTES
    assert max(peaks.values()) < limit_bytes, f"{peaks}, at most {limit_bytes}"
