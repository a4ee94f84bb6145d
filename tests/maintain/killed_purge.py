"""One purge in a process of its own, which COWFS_FAILPOINT kills: `python -m
tests.maintain.killed_purge STORE HOME VOLUME PATH`."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from cowfs.maintain.purge.planning import Planner
from cowfs.maintain.purge.purging import Purge
from cowfs.maintain.purge.target import Target
from cowfs.store import load_record, open_store
from cowfs.store.refs.holder import current_holder


def main() -> None:
    store = open_store(sys.argv[1])
    load_record(store)
    home = Path(sys.argv[2])
    plan = Planner(store, home).plan(Target(sys.argv[3], path=os.fsencode(sys.argv[4]) or None))
    Purge(store, home, current_holder("killed"), wait_s=0).apply(plan)
    store.close()


if __name__ == "__main__":
    main()
