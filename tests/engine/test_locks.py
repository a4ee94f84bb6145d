"""Locks of the native classes beside the interpreter lock. Calls run in a child process, so that
one that waits for ever costs a child, not the suite."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PRELUDE = """
import os, sys, threading, time
from pathlib import Path
from cowfs import _native as native
from tests.engine.volumes import CALLER, fresh_engine

engine = fresh_engine(Path(sys.argv[1]))
"""

MISSING = """
inodes = []
for number in range(400):
    attr, fh = engine.create(1, b"%d" % number, 0o644, os.O_RDWR, CALLER)
    engine.write(fh, 0, b"%d" % number * 50)
    engine.release(fh)
    inodes.append(attr.ino)
small = engine.live_small_files(inodes)
catalogues = [(os.urandom(1600), 0)] * 3000
def ask():
    while True:
        small.missing_in(catalogues, [])
threading.Thread(target=ask, daemon=True).start()
for _ in range(200):
    small.count()
    time.sleep(0.001)
"""

ROWS_AND_PLACES = """
rows, places, small = native.FileRows(), native.ChunkPlaces(), engine.live_small_files([])
rounds = [0, 0]
def name():
    while rounds[0] < 50_000:
        places.name(rows)
        rounds[0] += 1
def finish():
    while rounds[1] < 50_000:
        small.finish(places, {}, rows)
        rounds[1] += 1
threads = [threading.Thread(target=work, daemon=True) for work in (name, finish)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""


SAME_ROWS_TWICE = """
rows = native.FileRows()
try:
    engine.layer_small_files(1, 0, 10, [rows, rows])
except ValueError as error:
    assert "twice" in str(error)
else:
    raise AssertionError("not refused")
"""


@pytest.mark.parametrize(
    "work", [MISSING, ROWS_AND_PLACES, SAME_ROWS_TWICE], ids=["missing_in", "rows and places", "the same rows twice"]
)
def test_nobody_waits_for_ever(tmp_path: Path, work: str) -> None:
    code = PRELUDE + work + "\nprint('done', flush=True)\nos._exit(0)\n"
    child = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, timeout=60, check=False
    )
    assert child.stdout == "done\n", child.stderr
