"""Drafting an upload ends when a signal's handler raises, whatever the main thread is at."""

from __future__ import annotations

import subprocess
import sys

ENDED = """
import random, signal, sys, threading, time
from cowfs.transfer.upload import tree_upload
from cowfs.transfer.upload.tree_upload import _Drafting
from cowfs.transfer.upload.upload_reading import Stopped

class Ended(BaseException):
    pass

def end(*_):
    raise Ended

class Drafting(_Drafting):
    "Its own helpers and its own thread; walking and reading are small."

    def __init__(self):
        self._stop, self._hurry = threading.Event(), lambda: None

    def _run(self):
        with tree_upload.Helpers(4, name="read") as self._helpers:
            try:
                while True:
                    [each.result() for each in [self._helpers.submit(self._read_one) for _ in range(20)]]
            except BaseException:
                self._end()
                self._helpers.shutdown(wait=False, cancel_futures=True)
                raise

    def _read_one(self):
        if self._stop.is_set():
            raise Stopped
        time.sleep(0.0005)

signal.signal(signal.SIGALRM, end)
chance = random.Random(int(sys.argv[1]))
for _ in range(200):
    try:
        signal.setitimer(signal.ITIMER_REAL, chance.uniform(2e-4, 6e-3))
        Drafting().run()
    except Ended:
        continue
"""


def test_a_signal_ends_it_at_any_moment() -> None:
    print("seed 6")
    done = subprocess.run([sys.executable, "-c", ENDED, "6"], check=False, timeout=100, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
