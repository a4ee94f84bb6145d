"""cowfs: a versioned copy-on-write file system on object storage.

    from cowfs import Volume                 async, under asyncio and trio; `from cowfs.blocking import Volume` blocks

Importing this is cheap: each name is loaded when it is first used. `HOMES` is the table of public
names; type checkers read `__init__.pyi` and `blocking.pyi`, which `python -m tests.api.stubs`
generates from it.
"""

HOMES = {
    "Advice": "cowfs.api.mounts.advice",
    "BrokenPath": "cowfs.maintain.check.verify_report",
    "Change": "cowfs.api.versions.changes",
    "Changes": "cowfs.api.versions.changes",
    "Check": "cowfs.api.doctor.check",
    "Checkpoints": "cowfs.api.tasks.checkpoints",
    "Conflict": "cowfs.version.merge.conflicts",
    "CopyReport": "cowfs.api.transfers.copying",
    "DamagedPack": "cowfs.maintain.check.verify_report",
    "DamagedRecord": "cowfs.maintain.check.verify_report",
    "Declared": ("cowfs.api.declared.asynchronous", "cowfs.api.declared.declared"),
    "DeclaredStore": "cowfs.api.declared.declared_store",
    "DeclaredVolume": "cowfs.api.declared.model",
    "Diff": "cowfs.api.versions.named_comparisons",
    "DirectoryUsage": "cowfs.api.access.looking",
    "EditReport": "cowfs.api.versions.editing",
    "Entry": "cowfs.api.files",
    "ForkReport": "cowfs.api.versions.forking",
    "FoundEntry": "cowfs.api.access.looking",
    "GcPlan": "cowfs.api.upkeep.collecting",
    "GcReport": "cowfs.api.upkeep.collect_report",
    "IndexFile": "cowfs.api.versions.index_files",
    "Listing": "cowfs.api.access.looking",
    "Locator": "cowfs.format.locator",
    "MergeReport": "cowfs.api.versions.merge_report",
    "MergedPath": "cowfs.api.versions.merge_report",
    "MountOptions": "cowfs.control.options",
    "MountSummary": "cowfs.api.mounts.summaries",
    "PackRepair": "cowfs.maintain.repairs.repair_plan",
    "PlannedVersion": "cowfs.api.upkeep.pruning",
    "ProgramRun": "cowfs.api.tasks.program",
    "ProgramVolume": "cowfs.api.tasks.program",
    "Progress": "cowfs.version.commit",
    "PrunePlan": "cowfs.api.upkeep.pruning",
    "PurgePlan": "cowfs.api.upkeep.purging",
    "PurgeReport": "cowfs.api.upkeep.purge_report",
    "PurgedVersion": "cowfs.api.upkeep.purge_report",
    "PushReport": "cowfs.maintain.copy.push_report",
    "ROFiles": ("cowfs.api.asynchronous", "cowfs.api.files"),
    "ROVolume": ("cowfs.api.asynchronous", "cowfs.api.ro_volume"),
    "RWFiles": ("cowfs.api.asynchronous", "cowfs.api.files"),
    "RWVolume": ("cowfs.api.asynchronous", "cowfs.api.rw_volume"),
    "RepairPlan": "cowfs.maintain.repairs.repair_plan",
    "RestoreReport": "cowfs.api.versions.restoring",
    "Stats": "cowfs.format.manifest",
    "Store": ("cowfs.api.asynchronous", "cowfs.api.store"),
    "StoreOverview": "cowfs.api.upkeep.store_overview",
    "StoredBytes": "cowfs.maintain.stored_report",
    "StoredReport": "cowfs.api.upkeep.counting",
    "Tag": "cowfs.api.versions.tagging",
    "TaskVolume": "cowfs.api.tasks.task_volume",
    "TransferReport": "cowfs.api.transfers.transfer_report",
    "Usage": "cowfs.api.access.looking",
    "VerifyReport": "cowfs.maintain.check.verify_report",
    "VersionLog": ("cowfs.api.asynchronous", "cowfs.api.versions.version_log"),
    "VersionNames": "cowfs.api.versions.version_log",
    "VersionTree": "cowfs.api.versions.version_tree",
    "Volume": ("cowfs.api.asynchronous", "cowfs.api.volume"),
    "VolumeChanges": ("cowfs.api.asynchronous", "cowfs.api.versions.head_changes"),
    "VolumeDetails": "cowfs.api.versions.details",
    "VolumeInTree": "cowfs.api.upkeep.store_overview",
    "VolumeSummary": "cowfs.api.mounts.overview",
    "WarmReport": "cowfs.api.transfers.warming",
    "WhyReport": "cowfs.api.upkeep.collect_report",
    "WorkingCopySummary": "cowfs.api.mounts.summaries",
    "checkpoints": "cowfs.api.tasks.checkpoints",
    "current": "cowfs.api.tasks.task",
    "list_twins": "cowfs.api.twins.pairs",
    "map": "cowfs.api.tasks.mapping",
    "run_program": "cowfs.api.tasks.program",
    "task": "cowfs.api.tasks.task",
    "volume": ("cowfs.api.asynchronous", "cowfs.api.volume"),
}
"""The module of each public name. A pair: the first has the async class, the second the blocking
one."""

MODULES = ("blocking", "errors", "mounts", "storage")
"""Public modules, which are there without an import of their own."""

__all__ = list(HOMES)
__all__ += ["__version__", "errors"]


def __getattr__(name: str) -> object:
    from importlib import import_module

    if name in MODULES:
        return import_module(f"cowfs.{name}")
    if name == "__version__":
        from importlib import metadata

        try:
            return metadata.version("cowfs-volumes")
        except metadata.PackageNotFoundError:  # a checkout that is not installed
            return "0+unknown"
    if name in HOMES:
        home = HOMES[name]
        return getattr(import_module(home if isinstance(home, str) else home[0]), name)
    raise AttributeError(f"module 'cowfs' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *MODULES})
