"""Fetches the versions of declared volumes into this machine's cache."""

from __future__ import annotations

import os

from cowfs.api import hints
from cowfs.api.declared import fitting, found_files, plan, targets
from cowfs.api.declared.model import Declaration
from cowfs.api.declared.mounting import HearsOutcome, Outcome
from cowfs.api.transfers import warming
from cowfs.api.transfers.warming import WarmReport
from cowfs.version.commit import ProgressListener


def warm(
    declared: Declaration,
    *,
    cache_dir: str | os.PathLike[str] | None,
    cache_size: int | str | None,
    progress: ProgressListener | None,
    hears: HearsOutcome,
) -> list[WarmReport]:
    """See `Declared.warm`."""
    found_files.require_allowed(declared, mounts=False)
    fitting.require_fitting(declared)
    found = [each for each in targets.find(declared, {}) if each.declared.read_only]
    for target in found:
        plan.require_usable(target)
    reports = []
    for target in found:
        if target.trouble is not None:
            hears(Outcome("skipped", target.volume, target.path, error=target.trouble))
            continue
        with hints.of_store(target.store_url):
            version = targets.locate(declared, target)
            reports.append(warming.warm(version, "/", cache_dir, cache_size, None, progress))
    return reports
