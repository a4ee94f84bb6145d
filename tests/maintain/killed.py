"""One collection in a process of its own, which COWFS_FAILPOINT kills: `python -m
tests.maintain.killed STORE HOME`. The grace period of deleted volumes is an hour."""

from __future__ import annotations

import sys
from pathlib import Path

from cowfs.maintain.collect.collecting import Collection
from cowfs.maintain.collect.planning import Survey
from cowfs.store import load_record, open_store
from cowfs.store.refs.holder import current_holder


def main() -> None:
    store = open_store(sys.argv[1])
    load_record(store)
    survey = Survey(store, Path(sys.argv[2]), grace_s=3600)
    Collection(survey, current_holder("killed"), wait_s=0).apply(survey.plan())
    store.close()


if __name__ == "__main__":
    main()
