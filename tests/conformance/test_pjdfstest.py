"""crates.io's pjdfstest on a writable mount beside ext4, in one run: no case fails on cowfs that
passes on ext4.

Each case's verdict is read from the program's own report. Cases that remount the file system
read-only run where that is possible (four of them keep a file open meanwhile, which the kernel
refuses on ext4 too: not compared); cases across two file systems use a second one beside the first.
"""

from __future__ import annotations

import os
import re
import subprocess
import tomllib
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.conformance.reference_disk import reference_disk
from tests.conformance.tools import find_tool
from tests.system.machine import Machine

HERE = Path(__file__).parent
VERDICT = re.compile(r"^(?P<name>\w+(?:::\w+)+)\s+(?P<verdict>ok|skipped|FAILED)$")
SUMMARY = re.compile(r"^Summary: (\d+) failed, (\d+) skipped, (\d+) passed, (\d+) expected failures, (\d+) total$")


@dataclass(frozen=True)
class Report:
    verdicts: dict[str, str]
    details: dict[str, str]

    def with_verdict(self, verdict: str) -> set[str]:
        return {name for name, found in self.verdicts.items() if found == verdict}


def parse_report(text: str) -> Report:
    """Reads the program's report; one that is cut short or does not add up is an error."""
    verdicts: dict[str, str] = {}
    details: dict[str, str] = {}
    name = ""
    total = None
    for line in text.splitlines():
        if found := VERDICT.match(line):
            name = found["name"]
            assert name not in verdicts, f"two reports of {name}"
            verdicts[name] = found["verdict"]
            details[name] = ""
        elif found := SUMMARY.match(line):
            failed, skipped, passed, expected, total = map(int, found.groups())
            counts = [list(verdicts.values()).count(verdict) for verdict in ("FAILED", "skipped", "ok")]
            assert counts == [failed, skipped, passed], f"{counts} counted, but {line}"
            assert expected == 0
        elif name:
            details[name] += line + "\n"
    assert total == len(verdicts), f"the report is not whole:\n{text[-2000:]}"
    return Report(verdicts, details)


def run_pjdfstest(path: Path, second: Path, scratch: Path, *, remount: bool) -> Report:
    """Runs every case once. Cases remount by mount(8), here without its helpers: FUSE's can start
    mounts, not change them."""
    configuration = scratch / f"pjdfstest-{path.name}.toml"
    settings = (HERE / "pjdfstest.toml").read_text()
    settings = settings.replace("[settings]\n", f"[settings]\nallow_remount = {str(remount).lower()}\n")
    configuration.write_text(settings)
    programs = scratch / "programs"
    programs.mkdir(exist_ok=True)
    (programs / "mount").write_text('#!/bin/sh\nexec /bin/mount -i "$@"\n')
    (programs / "mount").chmod(0o755)
    done = subprocess.run(
        [find_tool("pjdfstest"), "-c", configuration, "-p", path, "-s", second],
        capture_output=True,
        text=True,
        timeout=900,
        env={**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"},
    )
    report = parse_report(done.stdout)
    assert (done.returncode == 0) == (not report.with_verdict("FAILED")), done.stderr
    return report


@pytest.mark.quick
def test_report_is_read_whole() -> None:
    text = (
        f"{'chmod::a':77} ok\n{'link::exdev_target':72} skipped\n\tNo secondary file-system\n{'open::b':73} FAILED\n\twhy\n"
        "\nSummary: 1 failed, 1 skipped, 1 passed, 0 expected failures, 3 total\n"
    )
    report = parse_report(text)
    assert report.verdicts == {"chmod::a": "ok", "link::exdev_target": "skipped", "open::b": "FAILED"}
    assert report.details["open::b"].strip() == "why"
    with pytest.raises(AssertionError, match="not whole"):
        parse_report(text.rpartition("\nSummary")[0])
    with pytest.raises(AssertionError, match="counted"):
        parse_report(text.replace("FAILED", "skipped"))


@pytest.mark.conformance
@pytest.mark.mount
@pytest.mark.slow
def test_no_case_fails_that_passes_on_ext4(machine: Machine) -> None:
    machine.create("conformance")
    mounted = machine.mount("conformance")
    scratch = machine.root / "local"
    scratch.chmod(0o755)  # the cases switch to other users
    with reference_disk(scratch) as disk:
        local = run_pjdfstest(disk.path, Path("/dev/shm"), scratch, remount=disk.can_remount)
        ours = run_pjdfstest(mounted, Path("/dev/shm"), scratch, remount=disk.can_remount)
    assert ours.verdicts.keys() == local.verdicts.keys()
    assert len(local.with_verdict("ok")) >= 380, "the reference ran too few cases to compare with"

    lists: dict[str, dict[str, str]] = tomllib.loads((HERE / "exclusions.toml").read_text())
    is_slow = os.environ.get("COWFS_FAST_LANE") == "0"
    excluded, by_chance = lists["pjdfstest"], lists["pjdfstest_by_chance"] if is_slow else {}
    passed = local.with_verdict("ok")
    worse = {name for name in passed if ours.verdicts[name] != "ok"} - excluded.keys() - by_chance.keys()
    stale = {name for name in excluded if ours.verdicts.get(name) == "ok"}
    print(f"pjdfstest: ext4 {len(passed)} ok, cowfs {len(ours.with_verdict('ok'))} ok, {len(excluded)} excluded")
    assert not worse, "\n".join(f"{name} {ours.verdicts[name]}\n{ours.details[name]}" for name in sorted(worse))
    assert not stale, f"excluded, but passes: {sorted(stale)}"
    machine.unmount(mounted)
