"""Runs what docs/guide/containers.md shows with podman. By hand, as root, since an image comes from
a registry:

    make dist
    .venv/bin/python -m tests.docs.containers dist/*.whl [--base IMAGE] [-- options of podman run and kube play]

Builds the guide's image with the wheel, then

    the guide's `run` line                       commits
    kill -9 in the middle, a new container       goes on at once with the work
    stop in the middle, a new container          the same; the task ended within the time it was given
    the guide's pod, killed with -9              its next container goes on with the work
    the guide's helper, no privilege             commits; after a kill -9 goes on

with the store and the state in directories. base: stands in for the Dockerfile's FROM. Options:
`--network host` where there is no bridge. What `make test` runs without podman is
tests/mount/test_containers.py.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from cowfs.machine import mount_table

GUIDE = Path(__file__).parents[2] / "docs/guide/containers.md"
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
IMAGE = "localhost/cowfs-guide"
PRIVILEGE = ["--device", "/dev/fuse", "--cap-add", "SYS_ADMIN", "--security-opt", "apparmor=unconfined"]
PATIENCE_S = 120
NAME = "cowfs-guide"


class Guide:
    """The page's blocks, and a directory for what they need."""

    def __init__(self, place: Path, options: list[str]) -> None:
        blocks = BLOCK.findall(GUIDE.read_text(encoding="utf-8"))
        self.dockerfile, self.pod = (
            next(text for language, text in blocks if language == kind) for kind in ("dockerfile", "yaml")
        )
        self.task, self.helper, self.handed_in = (text for _, text in blocks if text.startswith("import"))
        self.place, self.options = place, options
        for name in ("store", "state", "image", "outside/mounts"):
            (place / name).mkdir(parents=True)
        self.volumes = [f"-v={place}/store:/store", f"-v={place}/state:/state", "-eCOWFS_STORE=/store"]

    def build(self, wheel: Path, base: str | None) -> None:
        text = self.dockerfile if base is None else re.sub(r"(?m)^FROM .*", f"FROM {base}", self.dockerfile)
        (self.place / "image/Dockerfile").write_text(text)
        (self.place / "image/task.py").write_text(self.task)
        shutil.copy(wheel, self.place / "image")
        podman("build", "--no-cache", *self.options, "-t", IMAGE, str(self.place / "image"))

    def run(self, *options: str) -> str:
        """A container that ends by itself."""
        return podman("run", "--rm", *self.options, *self.volumes, *options, IMAGE)

    def start(self, program: str, *options: str) -> None:
        """A container named cowfs-guide that has written, and sleeps in the middle of its work."""
        (self.place / "slow.py").write_text(program)
        slow = f"-v={self.place}/slow.py:/task.py:ro"
        podman("run", "-d", f"--name={NAME}", *self.options, *self.volumes, slow, *options, IMAGE)
        self.wait_until_said(NAME, "wrote")

    def kill(self) -> None:
        podman("kill", "--signal=KILL", NAME)
        podman("wait", NAME)
        podman("rm", "--volumes", NAME)

    def wait_until_said(self, container: str, text: str) -> None:
        end_s = time.monotonic() + PATIENCE_S
        while text not in podman("logs", container):
            assert time.monotonic() < end_s, podman("logs", container)
            time.sleep(0.2)

    def count(self) -> int:
        """Lines of the volume's last version: how often a task has written."""
        said = podman("run", "--rm", *self.options, *self.volumes, IMAGE, "cowfs", "cat", "results:numbers.txt")
        return said.count("one more\n")


def podman(*arguments: str) -> str:
    done = subprocess.run(["podman", *arguments], stdout=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 0, f"podman {arguments[0]} exits with {done.returncode}: {done.stdout}"
    return done.stdout


def asleep(program: str, where: str) -> str:
    """The program, stopped after it has written `where`: it tells how many lines there are, and
    waits to be killed."""
    before, last, after = program.rpartition("print(")
    indent = "    " if where.startswith("volume") else ""
    steps = ["import time", f"print('wrote', {where}.read_text().count('one more'), flush=True)", "time.sleep(600)"]
    return before + "".join(f"{indent}{step}\n" for step in steps) + last + after


def check_privileged(guide: Guide) -> None:
    guide.run(*PRIVILEGE)
    slow = asleep(guide.task, 'volume.path.joinpath("numbers.txt")')
    guide.start(slow, *PRIVILEGE)
    guide.kill()
    guide.run(*PRIVILEGE)
    assert guide.count() == 3
    guide.start(slow, *PRIVILEGE)
    podman("stop", NAME)
    assert podman("inspect", "-f={{.State.ExitCode}}", NAME) == "143\n", "the task did not end by SIGTERM"
    podman("rm", NAME)
    guide.run(*PRIVILEGE)
    assert guide.count() == 5


def check_pod(guide: Guide, options: list[str]) -> None:
    """Its task sleeps in the block. It is killed, and started again by the pod's restart policy."""
    text = guide.pod.replace("image: IMAGE", f"image: {IMAGE}:latest").replace("s3://bucket/prefix", "/store")
    for name, source, target in (("store", "store", "/store"), ("slow", "slow.py", "/task.py")):
        mount, volume = (
            f"{{name: {name}, mountPath: {target}}}",
            f"{{name: {name}, hostPath: {{path: {guide.place}/{source}}}}}",
        )
        text = text.replace("volumeMounts:\n", f"volumeMounts:\n        - {mount}\n")
        text = text.replace("  volumes:\n", f"  volumes:\n    - {volume}\n")
    path = guide.place / "pod.yaml"
    path.write_text(text)
    podman("kube", "play", *options, str(path))
    try:
        guide.wait_until_said("task-task", "wrote 6")
        os.kill(int(podman("inspect", "-f={{.State.Pid}}", "task-task")), signal.SIGKILL)
        guide.wait_until_said("task-task", "wrote 7")
    finally:
        podman("pod", "stop", "--time=60", "task")  # as Kubernetes does; `down` kills
        podman("kube", "down", str(path))


def check_handed_in(guide: Guide) -> None:
    seen = guide.place / "outside"
    subprocess.run(["mount", "--bind", seen, seen], check=True)
    subprocess.run(["mount", "--make-shared", seen], check=True)
    data = seen / "mounts/data"
    helper = subprocess.Popen([sys.executable, "-c", guide.helper, seen / "socket", data])
    try:
        time.sleep(1)
        below = f"-v={seen}:/run/task:rslave"
        (guide.place / "handed_in.py").write_text(guide.handed_in)
        task = f"-v={guide.place}/handed_in.py:/task.py:ro"
        guide.run(below, task)
        guide.start(asleep(guide.handed_in, '(path / "numbers.txt")'), below)
        guide.kill()
        guide.run(below, task)
        assert guide.count() == 8, "5 before, 3 now; the pod's work went with its emptyDir"
    finally:
        helper.kill()
        helper.wait()
        subprocess.run(["umount", "--lazy", *([data] if mount_table.mount_at(str(data)) else []), seen], check=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wheel", type=Path)
    parser.add_argument("--base", help="an image that stands in for the Dockerfile's FROM")
    parser.add_argument("options", nargs="*", help="of podman, behind --")
    chosen = parser.parse_args()
    place = Path(tempfile.mkdtemp(prefix="cowfs-guide-"))
    try:
        guide = Guide(place, chosen.options)
        guide.build(chosen.wheel, chosen.base)
        check_privileged(guide)
        check_pod(guide, chosen.options)
        check_handed_in(guide)
    finally:
        subprocess.run(["podman", "rm", "--force", "--ignore", "--volumes", NAME], check=False)
        subprocess.run(["podman", "rmi", "--force", IMAGE], check=False)
        shutil.rmtree(place, ignore_errors=True)
    print("the guide is true")


if __name__ == "__main__":
    main()
