"""Many writers: forks never touch each other, and of those who want one volume exactly one gets
it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.system.machine import Machine
from tests.system.source_tree import make_source_tree
from tests.system.trees import differences, read_tree

pytestmark = [pytest.mark.mount, pytest.mark.slow]

WRITERS = 8
ROUNDS = 8  # each starts eight daemons; `tests/store/test_races.py` has many more, of leases alone
ROUNDS_ON_S3 = 4

FORK_WRITE_COMMIT = """
import hashlib, os, sys
from cowfs.blocking import Volume
locator, number = sys.argv[1], int(sys.argv[2])
fork = Volume.from_locator(locator).fork(f"fork-{number}")
data = fork.mount(os.path.join(sys.argv[3], f"fork-{number}"))
sys.stdin.readline()
(data / f"own-{number}").write_bytes(bytes([number]) * 300_000)
(data / "shared").write_text(f"written by {number}")
(data / "json" / "decoder.py").unlink()
version = fork.finalize(message=f"fork {number}")
print(version.locator)
"""


def test_eight_forks_written_and_committed_at_once(machine: Machine, elsewhere: Machine) -> None:
    machine.create("base")
    mounted = machine.mount("base")
    make_source_tree(mounted / "tree")
    for path in (mounted / "tree").iterdir():
        path.rename(mounted / path.name)
    (mounted / "shared").write_text("the base's")
    base = machine.commit(mounted, "base")
    expected = read_tree(mounted)
    machine.unmount(mounted)

    writers = [machine.python(FORK_WRITE_COMMIT, base, str(n), machine.root / "mnt") for n in range(WRITERS)]
    for number in range(WRITERS):
        machine.mount_point(f"fork-{number}")
    with ThreadPoolExecutor(WRITERS) as pool:
        outcomes = list(pool.map(lambda writer: writer.communicate("go\n", timeout=300), writers))
    for writer, (_, errors) in zip(writers, outcomes, strict=True):
        assert writer.returncode == 0, errors
    locators = [output.strip() for output, _ in outcomes]
    assert len(set(locators)) == WRITERS

    skip = ("own", b"shared", b"json/decoder.py", b"json", b".")
    for number, locator in enumerate(locators):
        version = elsewhere.mount(locator, at=f"v{number}")
        assert (version / f"own-{number}").read_bytes() == bytes([number]) * 300_000
        assert (version / "shared").read_text() == f"written by {number}"
        found = read_tree(version)
        assert {name for name in found if name.startswith(b"own-")} == {f"own-{number}".encode()}
        assert b"json/decoder.py" not in found
        untouched = {name: node for name, node in expected.items() if name not in skip}
        assert differences(untouched, {name: found[name] for name in untouched if name in found}) == []
        elsewhere.unmount(version)
    again = elsewhere.mount(base, at="base")
    assert differences(expected, read_tree(again)) == []


# One process of its own per racer, alive for all rounds; each line on stdin is a round's mount
# point.
RACER = """
import json, os, sys
from cowfs.blocking import Volume
from cowfs.errors import CowfsError
print("ready", flush=True)
for line in sys.stdin:
    volume = Volume.open("raced")
    try:
        path = volume.mount(line.strip())
    except CowfsError as error:
        print(json.dumps({"kind": error.kind, "message": error.message, "details": error.details, "hint": error.hint}), flush=True)
        continue
    (path / "rounds").open("a").write("one round\\n")
    print(json.dumps({"kind": "won"}), flush=True)
    sys.stdin.readline()
    volume.commit()
    volume.unmount()
    print("done", flush=True)
"""


def race(racers: list[subprocess.Popen[str]], machines: list[Machine], rounds: int) -> None:
    for racer in racers:
        assert line_of(racer) == "ready"
    for number in range(rounds):
        for index, (racer, machine) in enumerate(zip(racers, machines, strict=True)):
            tell(racer, str(machine.mount_point(f"r{number % 4}-{index}")))
        answers = [json.loads(line_of(racer)) for racer in racers]
        won = [racer for racer, answer in zip(racers, answers, strict=True) if answer["kind"] == "won"]
        assert len(won) == 1, f"round {number}: {answers}"
        for answer in answers:
            if answer["kind"] != "won":
                assert answer["kind"] == "lease_held", answer
                assert answer["hint"]
                if "another process on this machine" not in answer["message"]:  # which has not signed yet
                    assert {"who", "where", "since"} <= answer["details"].keys(), answer
        tell(won[0], "finish")
        assert line_of(won[0]) == "done"


def line_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    line = process.stdout.readline().strip()
    if not line:
        _, errors = process.communicate(timeout=60)
        raise AssertionError(f"a racer ended with {process.returncode}: {errors}")
    return line


def tell(process: subprocess.Popen[str], line: str) -> None:
    assert process.stdin is not None
    process.stdin.write(line + "\n")
    process.stdin.flush()


def run_race(machines: list[Machine], rounds: int = ROUNDS) -> None:
    machines[0].create("raced")
    racers = [machine.python(RACER) for machine in machines]
    try:
        race(racers, machines, rounds)
    finally:
        for racer in racers:
            racer.kill()
            racer.communicate()
    path = machines[0].mount("raced")
    assert (path / "rounds").read_text() == "one round\n" * rounds


def test_one_of_eight_racing_mounts_wins(machines: Callable[..., Machine]) -> None:
    """Half the racers share a machine (its working copy's lock decides), half have their own (the
    lease does)."""
    first = machines()
    run_race([first] * (WRITERS // 2) + [machines(first.store) for _ in range(WRITERS // 2)])


@pytest.mark.s3
def test_one_of_eight_racing_mounts_wins_on_s3(machines: Callable[..., Machine], s3: dict[str, str]) -> None:
    first = machines(s3["COWFS_STORE"], environment=s3)
    others = [machines(s3["COWFS_STORE"], environment=s3) for _ in range(WRITERS // 2)]
    run_race([first] * (WRITERS // 2) + others, ROUNDS_ON_S3)
