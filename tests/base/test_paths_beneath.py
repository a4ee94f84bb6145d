"""Modules that work in trees of others hand no path below such a tree to the kernel.

`cowfs.base.beneath`, and calls with a descriptor (`dir_fd`, `*_fd`), are their only way there. A
call by path is listed in ALLOWED with its reason. The rule looks at the syntax: every call of
`os.*` that takes a path, the methods of `pathlib.Path` that go to the disk, `open`, `shutil` and
`tempfile`.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import cowfs

pytestmark = pytest.mark.quick

MODULES = (
    "store/backends/directory/directory_store",
    "store/backends/directory/incoming",
    "store/backends/directory/strange_entries",
    "store/origin/directory",
    "transfer/local_files",
    "folders/folder_changes",
    "folders/filling",
    "transfer/upload/folder_stamps",
    "machine/folders/folder",
    "machine/folders/record",
    "machine/folders/removal",
    "machine/folders/mapped_stores",
    "machine/folders/stamps",
)
ALLOWED = {
    ("store/backends/directory/directory_store", "create_root"): "makes the root of the store, which the caller names",
    (
        "store/backends/directory/directory_store",
        "_no_directory",
    ): "says which part of the root's own path is in the way",
    ("store/backends/directory/directory_store", "_sync_directory"): "of `create_root`",
    ("store/backends/directory/directory_store", "open_root"): "looks at the root of the store, which the caller names",
    ("transfer/local_files", "__init__"): "opens the directory that the caller names",
    ("machine/folders/folder", "remove"): "the mount table is asked by the resolved path",
    ("machine/folders/folder", "remove_unchanged"): "as `remove`",
    ("machine/folders/folder", "suspend"): "records, in the state directory",
    ("machine/folders/folder", "_owner"): "of the record, in the state directory",
    ("machine/folders/record", "load"): "the record, in the state directory",
    ("machine/folders/removal", "open_to_owner"): "/proc/self/fd of an O_PATH descriptor, which fchmod does not take",
    ("machine/folders/mapped_stores", "are_noted"): "an open descriptor",
    ("machine/folders/mapped_stores", "_is_noted"): "/dev/zero",
    ("machine/folders/stamps", "_read"): "stamps, in the state directory",
    ("transfer/local_files", "_open_up"): "/proc/self/fd of an O_PATH descriptor, which fchmod does not take",
}
BY_PATH = re.compile(
    "access|chdir|chmod|chown|chroot|getxattr|lchown|link|listdir|listxattr|lstat|makedirs|mkdir|mkfifo|mknod|open"
    "|readlink|remove|removedirs|removexattr|rename|renames|replace|rmdir|scandir|setxattr|stat|statvfs|symlink"
    "|truncate|unlink|utime|walk"
)
ON_DISK = re.compile(
    "chmod|exists|glob|is_dir|is_file|is_symlink|iterdir|lchmod|lstat|mkdir|open|owner|read_bytes|read_text|readlink"
    "|rglob|rmdir|samefile|symlink_to|hardlink_to|touch|unlink|write_bytes|write_text"
)
FIRST_IS_FD = {
    "listdir",
    "scandir",
    "chmod",
    "chown",
    "stat",
    "utime",
    "getxattr",
    "listxattr",
    "setxattr",
    "removexattr",
}
FDS = {"fd", "directory", "at", "fileno()"}


def calls_by_path(source: str) -> list[tuple[str, int, str]]:
    """(function, line, call)."""
    found: list[tuple[str, int, str]] = []

    def visit(node: ast.AST, function: str) -> None:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            function = node.name
        if isinstance(node, ast.Call) and _is_by_path(node):
            found.append((function, node.lineno, ast.unparse(node.func)))
        for child in ast.iter_child_nodes(node):
            visit(child, function)

    visit(ast.parse(source), "")
    return found


def _is_by_path(call: ast.Call) -> bool:
    name = ast.unparse(call.func)
    if name == "open" or name.startswith(("shutil.", "tempfile.")):
        return True
    if name.startswith("os.path."):
        return name in {
            f"os.path.{each}" for each in ("exists", "lexists", "isdir", "isfile", "islink", "getsize", "realpath")
        }
    above, _, method = name.rpartition(".")
    if above == "os":
        has_fd = any(keyword.arg is not None and keyword.arg.endswith("dir_fd") for keyword in call.keywords)
        first = ast.unparse(call.args[0]) if call.args else ""
        return (
            bool(BY_PATH.fullmatch(method))
            and not has_fd
            and not (method in FIRST_IS_FD and first.split(".")[-1] in FDS)
        )
    return (
        bool(ON_DISK.fullmatch(method))
        and above.split(".")[-1] in {"path", "_path", "root", "found"}
        and above != "root"
    )


@pytest.mark.parametrize("module", MODULES)
def test_no_path_below_the_root_goes_to_the_kernel(module: str) -> None:
    source = (Path(cowfs.__file__).parent / f"{module}.py").read_text()
    found = [each for each in calls_by_path(source) if (module, each[0]) not in ALLOWED]
    assert found == [], f"{module}: open it beneath the root, or by dir_fd"


@pytest.mark.parametrize(
    "line",
    [
        "os.unlink(entry.path)",
        "os.scandir(self._root / name)",
        "open(path, 'rb')",
        "os.open(path, os.O_RDONLY)",
        "os.chmod(path, 0o777)",
        "os.path.isdir(path)",
        "path.read_bytes()",
        "shutil.rmtree(where)",
    ],
)
def test_the_rule_finds_a_call_by_path(line: str) -> None:
    assert calls_by_path(f"def f():\n    {line}\n")


@pytest.mark.parametrize("line", ["os.unlink(name, dir_fd=fd)", "os.scandir(fd)", "root.stat(path)", "os.close(fd)"])
def test_the_rule_leaves_descriptors_alone(line: str) -> None:
    assert calls_by_path(f"def f():\n    {line}\n") == []
