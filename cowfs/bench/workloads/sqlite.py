"""SQLite: one row a transaction, WAL, synchronous=NORMAL; counted and checked through a second
connection."""

from __future__ import annotations

from cowfs.bench.trial import Trial


def run(trial: Trial) -> None:
    outcome = trial.work("sqlite", path=str(trial.root / "rows.db"), count=trial.sizes.transactions)
    trial.record("sqlite", trial.sizes.transactions / outcome.seconds)
