"""Whether processor time and memory are limited, as control groups of both versions say it."""

from __future__ import annotations

from pathlib import Path

import pytest

from cowfs.machine.processes import has_processor_quota, memory_limit_bytes

pytestmark = pytest.mark.quick


def machine(root: Path, groups: str, **files: str) -> Path:
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/cgroup").write_text(groups)
    for name, content in files.items():
        path = root / "sys/fs/cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return root


@pytest.mark.parametrize(
    ("groups", "files", "is_limited"),
    [
        ("0::/\n", {}, False),
        ("0::/\n", {"cpu.max": "max 100000\n"}, False),
        ("0::/\n", {"cpu.max": "150000 100000\n"}, True),
        ("0::/a/b\n", {"a/b/cpu.max": "max 100000\n", "a/cpu.max": "50000 100000\n"}, True),
        ("0::/of/the/host\n", {"cpu.max": "50000 100000\n"}, True),
        ("2:cpu,cpuacct:/a\n0::/\n", {"cpu,cpuacct/a/cpu.cfs_quota_us": "-1\n"}, False),
        ("2:cpu,cpuacct:/a\n0::/\n", {"cpu,cpuacct/a/cpu.cfs_quota_us": "50000\n"}, True),
        ("3:cpuset:/a\n", {"cpuset/a/cpu.max": "50000 100000\n"}, False),
        ("0::/\n", {"cpu.max": "\n"}, False),
    ],
)
def test_a_limit_anywhere_above_counts(tmp_path: Path, groups: str, files: dict[str, str], is_limited: bool) -> None:
    assert has_processor_quota(machine(tmp_path, groups, **files)) is is_limited


@pytest.mark.parametrize(
    ("groups", "files", "limit_bytes"),
    [
        ("0::/\n", {}, None),
        ("0::/\n", {"memory.max": "max\n"}, None),
        ("0::/a/b\n", {"a/b/memory.max": "300\n", "a/memory.max": "200\n"}, 200),
        ("4:memory:/a\n0::/\n", {"memory/a/memory.limit_in_bytes": "100\n"}, 100),
        ("4:memory:/a\n", {"memory/a/memory.limit_in_bytes": "9223372036854771712\n"}, None),
        ("2:cpu,cpuacct:/a\n", {"cpu,cpuacct/a/memory.max": "100\n"}, None),
    ],
)
def test_the_least_memory_limit_counts(
    tmp_path: Path, groups: str, files: dict[str, str], limit_bytes: int | None
) -> None:
    assert memory_limit_bytes(machine(tmp_path, groups, **files)) == limit_bytes


def test_without_control_groups_nothing_is_limited(tmp_path: Path) -> None:
    assert not has_processor_quota(tmp_path)
    assert memory_limit_bytes(tmp_path) is None
