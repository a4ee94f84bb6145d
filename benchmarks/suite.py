"""`make bench`: the whole suite, with everything there is to compare with, into docs/benchmarks.

    make bench [BENCH="--rounds 1 --minutes 5 --only local --only cowfs …"] [PASSTHROUGH_HP=…/example/passthrough_hp]

JuiceFS comes from the virtual environment, the do-nothing server from the native build; libfuse's
passthrough_hp takes part when its path is given: it is built from libfuse's source (`meson setup
build && ninja -C build example/passthrough_hp`). Takes about `--minutes` (12) on a machine of two
idle cores: later rounds leave out what would not fit. As root where possible: only root may drop
the kernel's caches. For io_uring: `echo Y > /sys/module/fuse/parameters/enable_uring` before.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks import page, runner

ROOT = Path(__file__).resolve().parents[1]
PATHS = {
    "juicefs": str(Path(sys.executable).with_name("juicefs")),
    "passthrough_hp": os.environ.get("PASSTHROUGH_HP"),
    "do_nothing": str(ROOT / "native/target/release/examples/do_nothing"),
}


def main() -> None:
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that nothing stays mounted
    options = _options()
    output = options.pop("output")
    results = runner.run(**options, paths=PATHS, say=lambda text: print(text, file=sys.stderr, flush=True))
    found = results.to_json()
    print(page.tables(found))
    page.write(found, output)
    for failure in results.failures:
        print(f"FAILED: {failure['system']}, {failure['group']}: {failure['message']}", file=sys.stderr)
    sys.exit(bool(results.failures))


def _options() -> dict[str, Any]:
    """Those of runner.run, and where the page goes."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("directory", type=Path, nargs="?", default=Path(tempfile.gettempdir()))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--minutes", type=float, default=12.0)
    parser.add_argument("--store")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", dest="systems", action="append", default=[])
    parser.add_argument("--group", dest="groups", action="append", default=[])
    parser.add_argument("--note", default="")
    parser.add_argument("--output", type=Path, default=ROOT / "docs" / "benchmarks")
    return vars(parser.parse_args())


if __name__ == "__main__":
    main()
