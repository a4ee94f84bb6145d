"""Memory that malloc keeps is returned: in a process of its own, since arenas are the whole
process's."""

from __future__ import annotations

import subprocess
import sys

LEFT_BYTES = 60 << 20
PROGRAM = """
import threading
from cowfs.session import heap

heap.limit_arenas()
keeper = heap.Heap()
keeper.release()
before = heap._private_bytes()
kept = []
all_at_once = threading.Barrier(16)

def work():
    blocks = [bytearray(b"x" * 300_000) for _ in range(40)]
    all_at_once.wait()
    kept.append(bytearray(b"x" * 1_000_000))  # fits into no hole, so that the arena's end stays in use
    all_at_once.wait()

bytearray(4_000_000)  # freed, it raises the size from which blocks are mapped
threads = [threading.Thread(target=work) for _ in range(16)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
held = heap._private_bytes() - before
print(held, keeper.release(), keeper.release(), heap._private_bytes() - before)
"""


def test_free_memory_is_returned() -> None:
    run = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    held, first, second, left = run.stdout.split()
    assert second == "False"
    assert first == "True" or int(held) < LEFT_BYTES
    assert int(left) < LEFT_BYTES, "16 of 208 MB are in use"


LARGE = """
from cowfs.session import heap

heap.map_large_blocks(4 << 20)
before = heap._private_bytes()
for size in (30 << 20, 16 << 20, 5 << 20):
    block = bytearray(b"x" * size)
    between = bytearray(100_000)
    del block
    assert heap._private_bytes() - before < 4 << 20, size
"""


def test_large_blocks_are_returned_at_once() -> None:
    subprocess.run([sys.executable, "-c", LARGE], check=True)


CYCLES = """
from cowfs.session import heap

heap.collect_seldom()
keeper = heap.Heap()
keeper.release()
before = heap._private_bytes()
for _ in range(10):
    cycle = [bytearray(b"x" * 8_000_000)]
    cycle.append(cycle)
del cycle
held = heap._private_bytes() - before
print(held, keeper.release(), heap._private_bytes() - before)
"""


def test_what_cycles_of_objects_hold_is_returned() -> None:
    """As of errors that know their tracebacks, with packs in them."""
    run = subprocess.run([sys.executable, "-c", CYCLES], capture_output=True, text=True, check=True)
    held, was_released, left = run.stdout.split()
    assert int(held) > LEFT_BYTES, "Python does not look by itself"
    assert was_released == "True"
    assert int(left) < 8_000_000
