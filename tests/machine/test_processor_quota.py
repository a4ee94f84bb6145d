"""Whether processor time is rationed, as control groups of both versions say it."""

from __future__ import annotations

from pathlib import Path

import pytest

from cowfs.machine.processes import has_processor_quota

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


def test_without_control_groups_nothing_is_limited(tmp_path: Path) -> None:
    assert not has_processor_quota(tmp_path)
