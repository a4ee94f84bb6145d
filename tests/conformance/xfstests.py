"""xfstests' generic tests on mounts of cowfs, by hand:

    python -m tests.conformance.xfstests CHECKOUT [TESTS]

as root; TESTS as `check` takes them: generic/001, -g auto. CHECKOUT is xfstests, built, on a
machine with the users that its README asks for. It comes from git alone, and takes half an hour: so
`make test` does without.

Two volumes of a store of their own are its two devices. `mount` finds a helper that mounts a
volume, `df` shows it as the type that xfstests knows. A read-only mount of a volume that has no
version yet is a writable one, remounted. All of it lies in namespaces of its own: another process
that copies the mount namespace would keep a mount in use that is unmounted here, and what a test
leaves running ends with the process namespace.

Each test's outcome is printed. The exit status is 1 if one failed that `exclusions.toml` does not
explain, or passed that it does. COWFS_FAST_LANE=0 and COWFS_TRANSPORT choose what answers, as
always.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import subprocess
import sys
import tempfile
import tomllib
from collections import Counter
from pathlib import Path

HERE = Path(__file__).parent
TIMEOUT_S = 300
VOLUMES = {"TEST": "xfstests", "SCRATCH": "xfstests-scratch"}

_COWFS = Path(sys.executable).with_name("cowfs")
_HELPER = f"""#!/bin/bash
device=$1 directory=$2; shift 2
{_COWFS} mount "${{device#cowfs:}}" "$directory" >> "$COWFS_XFSTESTS_LOG" 2>&1 || {{ tail -n 2 "$COWFS_XFSTESTS_LOG" >&2; exit 32; }}
case ",${{*// /,}}," in *,ro,*) exec mount -i -o remount,ro "$directory" ;; esac
"""
_DF = """#!/bin/bash
set -o pipefail
/bin/df "$@" | sed 's/fuse\\.cowfs/fuse      /'
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", type=Path)
    parser.add_argument("tests", nargs=argparse.REMAINDER, help="as `check` takes them (-g generic/quick)")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="cowfs-xfstests-") as scratch:
        run = _Run(given.checkout.absolute(), Path(scratch))
        try:
            return run.all(given.tests or ["-g", "generic/quick"])
        finally:
            for name in VOLUMES:
                subprocess.run(["umount", "--quiet", f"{scratch}/{name}"], check=False)


class _Run:
    def __init__(self, checkout: Path, scratch: Path) -> None:
        self._checkout, self._scratch = checkout, scratch
        self._environment = self._prepared()

    def all(self, tests: list[str]) -> int:
        known: dict[str, str] = tomllib.loads((HERE / "exclusions.toml").read_text())["xfstests"]
        shown = self._check("-n", *tests)
        counts: Counter[str] = Counter()
        wrong = []
        for test in sorted({*re.findall(r"^generic/\d+", shown, re.MULTILINE)}):
            outcome = self._one(test)
            print(f"{test}: {outcome}", flush=True)
            kind = outcome.partition(":")[0]
            counts[kind] += 1
            if (kind == "passed" and test in known) or (kind in ("failed", "stopped") and test not in known):
                wrong.append(f"{test}: {outcome}")
        print(*(f"{count} {kind}" for kind, count in sorted(counts.items())), sep=", ")
        if not counts:
            wrong = [f"no tests found: {shown}"]
        print(*(wrong or ["Each failure is explained."]), sep="\n")
        return 1 if wrong else 0

    def _prepared(self) -> dict[str, str]:
        """The environment of `check`."""
        for name in ("bin", "sbin", "home", "run", *VOLUMES):
            (self._scratch / name).mkdir()
        for path, text in (("sbin/mount.fuse.cowfs", _HELPER), ("bin/df", _DF)):
            (self._scratch / path).write_text(text)
            (self._scratch / path).chmod(0o755)
        mounted = f"lowerdir={self._scratch}/sbin:/usr/sbin"
        subprocess.run(["mount", "-t", "overlay", "overlay", "-o", mounted, "/usr/sbin"], check=True)
        environment = {
            **os.environ,
            "PATH": os.pathsep.join((f"{self._scratch}/bin", os.environ["PATH"], "/usr/sbin", "/sbin")),
            "PYTHONPATH": str(HERE.parents[1]),
            "HOME": f"{self._scratch}/home",
            "XDG_RUNTIME_DIR": f"{self._scratch}/run",
            "COWFS_STORE": f"{self._scratch}/store",
            "COWFS_XFSTESTS_LOG": f"{self._scratch}/log",
            "HOST_OPTIONS": f"{self._scratch}/config",
        }
        config = ["FSTYP=fuse", "FUSE_SUBTYP=.cowfs"]
        for kind, volume in VOLUMES.items():
            subprocess.run([_COWFS, "create", volume], check=True, env=environment, capture_output=True)
            directory = "TEST_DIR" if kind == "TEST" else "SCRATCH_MNT"
            config += [f"{kind}_DEV=cowfs:{volume}", f"{directory}={self._scratch}/{kind}"]
        (self._scratch / "config").write_text("".join(f"export {line}\n" for line in config))
        return environment

    def _one(self, test: str) -> str:
        said = self._check(test)
        if not said:
            return f"stopped: after {TIMEOUT_S} s"
        if found := re.search(r"\[not run\] *(.*)", said):
            return f"not run: {found[1]}"
        if not re.search(r"^Failures:", said, re.MULTILINE):
            return "passed" if "Passed all 1 tests" in said else f"failed: {said.splitlines()[-1]}"
        difference = self._checkout / "results" / f"{test}.out.bad"
        if not difference.exists():
            return f"failed: see {difference.with_suffix('').with_suffix('.full')}"
        if "cannot modify limit: Operation not permitted" in difference.read_text(errors="replace"):
            return "not run: this machine lets nobody raise limits"
        return f"failed: see {difference}"

    def _check(self, *arguments: str) -> str:
        """What it says; "" when it has not ended in time."""
        with subprocess.Popen(
            ["./check", *arguments],
            cwd=self._checkout,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        ) as process:
            try:
                return process.communicate(timeout=TIMEOUT_S)[0]
            except subprocess.TimeoutExpired:
                assert os.getpid() == 1
                os.kill(-1, signal.SIGKILL)  # all else of the namespace
                for name in VOLUMES:
                    subprocess.run(["umount", "--quiet", "--lazy", self._scratch / name], check=False)
                return ""


if __name__ == "__main__":
    if "COWFS_XFSTESTS_APART" not in os.environ:
        os.environ["COWFS_XFSTESTS_APART"] = "1"
        module = ["-m", "tests.conformance.xfstests", *sys.argv[1:]]
        apart = ["--mount", "--propagation", "private", "--pid", "--fork", "--mount-proc", "--kill-child"]
        os.execvp("unshare", ["unshare", *apart, sys.executable, *module])
    sys.exit(main())
