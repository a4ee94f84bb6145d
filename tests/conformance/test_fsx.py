"""crates.io's fsx on a writable mount beside ext4: random operations on one file, each read
verified.

One case is one mix of operations and one seed; the same cases run on both file systems. Fixed seeds
keep a run comparable with the last; one more seed is drawn each time and printed.
"""

from __future__ import annotations

import os
import random
import subprocess
import tomllib
from pathlib import Path

import pytest

from tests.conformance.tools import find_tool
from tests.effort import share
from tests.system.machine import Machine

HERE = Path(__file__).parent
SEEDS = (1, 20)

# Operations of a full run, and their weights; what a mix does not name has the program's default (reads, writes, mapped
# ones, truncate: 10).
MIXES: dict[str, tuple[int, str]] = {
    "defaults": (4000, ""),
    "reopened": (3000, "[weights]\nclose_open = 5\ninvalidate = 2\nfsync = 2\nfdatasync = 2\n"),
    "many small": (4000, "[opsize]\nmax = 4096\n[weights]\nclose_open = 1\nsendfile = 5\nposix_fadvise = 2\n"),
    "large": (1500, "flen = 8388608\n[opsize]\nmax = 1048576\n[weights]\nclose_open = 1\ncopy_file_range = 10\n"),
    "preallocated": (2000, "[weights]\nposix_fallocate = 5\ntruncate = 10\ninvalidate = 1\n"),
    "not synced": (3000, "nomsyncafterwrite = true\n[weights]\nfsync = 1\n"),
    "holes": (2000, "[weights]\npunch_hole = 5\n"),
}


def run_fsx(directory: Path, mix: str, seed: int, scratch: Path) -> str:
    """Empty when every read was right; else what the program said."""
    operations, settings = MIXES[mix]
    configuration = scratch / "fsx.toml"
    configuration.write_text(settings)
    file = directory / f"{mix.replace(' ', '-')}-{seed}"
    done = subprocess.run(
        [find_tool("fsx"), "-f", configuration, "-N", str(share(operations)), "-S", str(seed), "-P", scratch, file],
        capture_output=True,
        text=True,
        timeout=600,
    )
    if done.returncode == 0:
        assert "All operations completed A-OK!" in done.stdout + done.stderr
        file.unlink()
        return ""
    return f"{mix}, seed {seed}: exit {done.returncode}\n{(done.stdout + done.stderr)[-3000:]}"


@pytest.mark.conformance
@pytest.mark.mount
@pytest.mark.slow
def test_no_mix_fails_that_passes_on_the_local_disk(machine: Machine, tmp_path: Path) -> None:
    machine.create("fsx")
    mounted = machine.mount("fsx")
    local = tmp_path / "local"
    local.mkdir()
    drawn = random.SystemRandom().randrange(1 << 32)
    print(f"drawn seed: {drawn}")
    is_slow = os.environ.get("COWFS_FAST_LANE") == "0"
    exclusions = tomllib.loads((HERE / "exclusions.toml").read_text())
    excluded: dict[str, str] = exclusions["fsx_slow_lane"] if is_slow else {}
    worse, stale = [], []
    for mix in MIXES:
        for seed in (*SEEDS[: share(len(SEEDS))], drawn):
            if run_fsx(local, mix, seed, tmp_path):
                continue
            failure = run_fsx(mounted, mix, seed, tmp_path)
            if failure and mix not in excluded:
                worse.append(failure)
            if not failure and mix in excluded:
                stale.append(f"{mix}, seed {seed}")
    assert not worse, "\n\n".join(worse)
    assert not stale, f"excluded, but passes: {stale}"
    machine.unmount(mounted)
