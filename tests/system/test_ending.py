"""A program may end while threads of it are in native code: Python ends such a thread where it
comes back, and the system's unwinder goes through our frames then."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import threading, time
from cowfs import _native

data = b"some text " * 100_000

def work():
    while True:
        _native.compressed(data)

for _ in range(8):
    threading.Thread(target=work, daemon=True).start()
time.sleep(0.1)
"""


def test_a_program_ends_whose_threads_are_in_native_code() -> None:
    for _ in range(5):
        done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, "")
