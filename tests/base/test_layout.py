"""The rooms of the package: which module may use which, how many stand in one folder, what they are
called. docs/architecture.md has the reasons.

`layout_exceptions.json` lists what is not yet so. It may only shrink: a line that is no longer true
fails the test, too.
"""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path

import pytest

from tests.base import layout

pytestmark = pytest.mark.quick

EXCEPTIONS: dict[str, list[str]] = json.loads(Path(__file__).with_name("layout_exceptions.json").read_text())
PUBLIC = {"cowfs", "cowfs.blocking", "cowfs.storage", "cowfs.errors", "cowfs.mounts", "cowfs.rendering", "cowfs.bench"}
PUBLIC |= {
    "cowfs.integrations.kubernetes",
    "cowfs.integrations.kubernetes_manifests",
    "cowfs.tui.app",
    "cowfs.web.serving",
    "cowfs.web.users",
}
BASE_OF_WEB = {"cowfs.base.clock", "cowfs.base.config", "cowfs.base.interruptible", "cowfs.base.private_directories"}
OBJECTS = {"cowfs.api.volume", "cowfs.api.rw_volume", "cowfs.api.ro_volume"}
MAY_USE_OBJECTS = {
    *OBJECTS,
    "cowfs.api.store",
    "cowfs.api.asynchronous",
    "cowfs.api.mounts.targets",
    "cowfs.api.tasks.arguments",
    "cowfs.api.tasks.call",
    "cowfs.api.tasks.checkpoints",
    "cowfs.api.tasks.mapping",
}
CIRCLE_FILES = 3
SIBLINGS = 25
SAME_NAMES = 2
ROOT = {"blocking", "errors", "storage"}
KINDS_OF_MOUNT = 10


def test_no_circle_of_imports_has_more_than_three_files() -> None:
    assert [circle for circle in layout.circles() if len(circle) > CIRCLE_FILES] == []


def test_no_folder_has_more_than_twenty_five_modules() -> None:
    below = {folder: len(names) for folder, names in layout.siblings().items() if folder != "cowfs"}
    assert {folder: count for folder, count in below.items() if count > SIBLINGS} == {}


def test_the_root_has_packages_and_import_paths_of_users() -> None:
    files = {path.stem for path in layout.PACKAGE.glob("*.py")}
    assert files - {"__init__", "__main__"} == ROOT


def test_a_base_name_stands_at_most_twice() -> None:
    found = defaultdict(list)
    for folder, names in layout.siblings().items():
        if not folder.startswith("cowfs.cli"):
            for name in names:
                found[name].append(folder)
    assert {name: folders for name, folders in found.items() if len(folders) > SAME_NAMES} == {}


def test_kinds_of_mounts_are_told_apart_in_one_place() -> None:
    lines = [
        line
        for path in layout.modules().values()
        for line in path.read_text().splitlines()
        if "is_copy" in line or "is_scratch" in line
    ]
    assert len(lines) <= KINDS_OF_MOUNT


def test_helpers_of_api_do_not_know_the_objects_that_use_them() -> None:
    found = [
        f"{module} -> {used}"
        for module in layout.modules()
        if module.startswith("cowfs.api.") and module not in MAY_USE_OBJECTS
        for used in sorted(layout.imports(module) & OBJECTS)
    ]
    assert sorted(found) == EXCEPTIONS["objects"]


@pytest.mark.parametrize("package", ["cowfs.cli", "cowfs.integrations", "cowfs.tui", "cowfs.web"])
def test_front_ends_use_what_a_program_of_a_user_can(package: str) -> None:
    found = [
        f"{module} -> {used}"
        for module in layout.modules()
        if module.startswith(package)
        for used in layout.imports(module)
        if used not in PUBLIC | (BASE_OF_WEB if package == "cowfs.web" else set()) and not used.startswith(package)
    ]
    assert sorted(found) == EXCEPTIONS[package]


def test_private_members_stay_in_the_module_of_their_class() -> None:
    assert sorted(f"{module}: {name}" for module, name in layout.foreign_private()) == EXCEPTIONS["private"]
