"""`cowfs.checkpoints`: what a version holds, what waits, where errors are raised."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

import cowfs
from cowfs.api.tasks import checkpoints as module
from cowfs.blocking import Checkpoints, RWVolume, Volume, checkpoints
from cowfs.errors import ConflictError, InvalidInputError, InvalidStateError
from cowfs.version.commit import Progress
from tests.api.conftest import place

__all__ = ["place"]

pytestmark = pytest.mark.usefixtures("place")


@pytest.fixture
def run(place: Path) -> Iterator[RWVolume]:
    volume = Volume.new("run")
    volume.mount()
    yield volume
    if not volume.is_over:
        volume.discard(force=True)


class Held:
    """Commits of a volume wait here once they are frozen, until `release`."""

    def __init__(self, volume: RWVolume, monkeypatch: pytest.MonkeyPatch) -> None:
        self._gate = threading.Event()
        commit = volume.commit

        def held(*given: object, progress: Callable[[Progress], None], **named: object) -> object:
            def report(event: Progress) -> None:
                progress(event)
                self._gate.wait(60)

            return commit(*given, progress=report, **named)  # type: ignore[arg-type]

        monkeypatch.setattr(volume, "commit", held)

    def release(self) -> None:
        self._gate.set()


def test_steps_and_metrics_are_labels(run: RWVolume) -> None:
    with checkpoints(run, labels={"job": "a"}) as saver:
        for step in range(3):
            (run / "model").write_text(str(step))
            assert saver.save(step, loss=1 / (step + 1), best=step == 2, note="x", norm=np.float32(0.5), n=np.int64(7))
    assert saver.last is not None
    found = [(each.message, each.labels["step"], each.labels["loss"]) for each in saver.last.history()]
    assert found == [("step 2", "2", "0.3333333333333333"), ("step 1", "1", "0.5"), ("step 0", "0", "1.0")]
    rest = {"job": "a", "best": "true", "note": "x", "norm": "0.5", "n": "7"}
    assert rest.items() <= dict(saver.last.labels).items()


def test_what_is_written_after_save_is_not_in_the_version(run: RWVolume, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also while the commit still uploads."""
    held = Held(run, monkeypatch)
    with checkpoints(run) as saver:
        (run / "model").write_bytes(b"a" * 3_000_000)
        (run / "step").write_text("1")
        saver.save(1)
        assert saver.is_saving
        (run / "model").write_bytes(b"b" * 3_000_000)
        (run / "step").write_text("2")
        assert saver.last is None
        held.release()
        version = saver.wait()
    assert version is not None
    assert version.files.read("model") == b"a" * 3_000_000
    assert version.files.read("step") == b"1"


def test_a_save_during_a_commit_waits_for_it(run: RWVolume, monkeypatch: pytest.MonkeyPatch) -> None:
    held = Held(run, monkeypatch)
    with checkpoints(run) as saver:
        (run / "model").write_text("1")
        saver.save(1)
        (run / "model").write_text("2")
        second = threading.Thread(target=saver.save, args=(2,))
        second.start()
        second.join(0.3)
        assert second.is_alive()
        held.release()
        second.join()
        last = saver.wait()
    assert last is not None
    assert [each.files.read("model") for each in last.history()] == [b"2", b"1"]


def test_a_save_during_a_commit_can_be_skipped(run: RWVolume, monkeypatch: pytest.MonkeyPatch) -> None:
    held = Held(run, monkeypatch)
    with checkpoints(run, busy="skip") as saver:
        (run / "model").write_text("1")
        assert saver.save(1)
        (run / "model").write_text("2")
        assert not saver.save(2)
        held.release()
        saver.wait()
        assert saver.save(3)
        last = saver.wait()
    assert last is not None
    assert [(each.labels["step"], each.files.read("model")) for each in last.history()] == [("3", b"2"), ("1", b"1")]


def test_an_error_is_raised_by_the_next_call_and_only_there(run: RWVolume, monkeypatch: pytest.MonkeyPatch) -> None:
    errors = [ConflictError("first"), ConflictError("second"), None]
    commit, saver = run.commit, checkpoints(run)

    def fails_twice(*given: object, progress: Callable[[Progress], None], **named: object) -> object:
        progress(Progress("frozen"))
        time.sleep(0.1)
        if (error := errors.pop(0)) is not None:
            raise error
        return commit(*given, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(run, "commit", fails_twice)
    (run / "model").write_text("1")
    assert saver.save(1)
    with pytest.raises(ConflictError, match="first"):
        saver.save(2)
    assert not saver.is_saving
    assert saver.save(2)
    with pytest.raises(ConflictError, match="second"):
        saver.wait()
    assert saver.save(3)
    saver.close()
    assert saver.last is not None
    assert saver.last.labels["step"] == "3"


def test_a_failure_before_the_freeze_is_raised_at_once(run: RWVolume, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also while the thread of the commit is still ending."""
    run_commit = module._Commit.run

    def ends_late(commit: module._Commit) -> None:
        run_commit(commit)
        time.sleep(0.2)

    monkeypatch.setattr(module._Commit, "run", ends_late)
    saver = checkpoints(run)
    run.finalize()
    with pytest.raises(InvalidStateError, match="finalized"):
        saver.save(1)
    saver.close()


def test_the_end_of_a_block_raises_the_last_error_or_notes_it(run: RWVolume, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object, progress: Callable[[Progress], None], **__: object) -> None:
        progress(Progress("frozen"))
        time.sleep(0.1)
        raise ConflictError("not committed")

    monkeypatch.setattr(run, "commit", fails)
    with pytest.raises(ConflictError, match="not committed"), checkpoints(run) as saver:
        saver.save(1)
    with pytest.raises(KeyError) as caught, checkpoints(run) as saver:  # noqa: PT012 - both belong to the block
        saver.save(1)
        raise KeyError("training")
    assert "not committed" in str(caught.value.__notes__)
    with pytest.raises(InvalidStateError, match="closed"):
        saver.save(2)


def test_a_second_freeze_is_an_error(run: RWVolume, monkeypatch: pytest.MonkeyPatch) -> None:
    """The commit was repeated, when the files may have been overwritten."""

    def twice(*_: object, progress: Callable[[Progress], None], **__: object) -> None:
        progress(Progress("frozen"))
        progress(Progress("files"))
        progress(Progress("frozen"))

    monkeypatch.setattr(run, "commit", twice)
    saver = checkpoints(run)
    with pytest.raises(ConflictError, match="step 4 failed halfway"):
        save_and_wait(saver, 4)


def test_a_daemon_that_dies_during_the_commit_publishes_no_torn_checkpoint(
    run: RWVolume, monkeypatch: pytest.MonkeyPatch
) -> None:
    (run / "model").write_text("1")
    saver = checkpoints(run)
    with monkeypatch.context() as patch:
        patch.setattr(module._Commit, "_report", kills_once(run, module._Commit._report))
        with pytest.raises(ConflictError, match="begun again"):
            save_and_wait(saver, 1)
    assert run.history() == []
    run.mount()
    assert (run / "model").read_text() == "1"


def save_and_wait(saver: Checkpoints, step: int) -> None:
    """Whether the commit fails before or after `save` returns."""
    saver.save(step)
    saver.wait()


def kills_once(run: RWVolume, report: Callable[..., None]) -> Callable[..., None]:
    status = run.status()
    assert isinstance(status, cowfs.MountSummary)
    assert status.pid is not None
    pids = [status.pid]

    def reports(self: object, event: Progress) -> None:
        report(self, event)
        if pids:
            os.kill(pids.pop(), signal.SIGKILL)

    return reports


@pytest.mark.parametrize("given", [True, "1", 1.0, None], ids=str)
def test_a_step_is_a_whole_number(run: RWVolume, given: object) -> None:
    with pytest.raises(InvalidInputError, match="step is"):
        checkpoints(run).save(given)  # type: ignore[arg-type]


def test_wrong_arguments_are_refused(run: RWVolume) -> None:
    with pytest.raises(InvalidInputError, match="loss"):
        checkpoints(run).save(1, loss=[1, 2])
    with pytest.raises(InvalidInputError, match="busy is"):
        checkpoints(run, busy="drop")  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match="cannot be written to"):
        checkpoints(run.commit())  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match="labels is"):
        checkpoints(run, labels="x")  # type: ignore[arg-type]


def test_the_async_object_works_too(place: Path) -> None:
    import anyio

    async def train() -> cowfs.ROVolume:
        volume = await cowfs.Volume.new("run")
        async with volume:
            (volume / "model").write_text("1")
            with cowfs.checkpoints(volume) as saver:
                saver.save(1)
            assert await volume.history()
            return (await volume.history())[0]

    assert anyio.run(train).labels["step"] == "1"


def test_resume_brings_back_the_last_checkpoint_and_drops_the_rest(run: RWVolume) -> None:
    with checkpoints(run) as saver:
        assert saver.resume() is None
        (run / "model").write_text("1")
        saver.save(1)
    run.commit("something else", labels={"kind": "note"})
    (run / "model").write_text("2, half wri")
    (run / "checkpoint-2").mkdir()
    (run / "checkpoint-2" / "model").write_text("half")
    with checkpoints(run) as saver:
        last = saver.resume()
        assert last is not None
        assert last.labels["step"] == "1"
        assert saver.last == last
    assert sorted(path.name for path in run.path.iterdir()) == ["model"]
    assert (run / "model").read_text() == "1"
    run.unmount()
    with pytest.raises(InvalidStateError, match="not mounted"):
        checkpoints(run).resume()


def test_a_copy_is_committed_before_save_returns(place: Path) -> None:
    """It cannot be frozen."""
    copy = Volume.new("copy")
    copy.mount(mode="copy")
    with checkpoints(copy) as saver:
        (copy / "model").write_text("1")
        saver.save(1)
        assert not saver.is_saving
        assert saver.last is not None
        (copy / "model").write_text("2")
        with pytest.raises(ConflictError, match="copy"):
            saver.resume()
        found = saver.find_last()
        assert found is not None
        assert found.files.read("model") == b"1"
    copy.discard(force=True)


def test_a_volume_that_is_not_mounted_takes_checkpoints(place: Path) -> None:
    volume = Volume.new("files")
    with checkpoints(volume) as saver:
        for step in (1, 2):
            volume.files.write("model", str(step).encode())
            saver.save(step)
    assert [each.files.read("model") for each in volume.history()] == [b"2", b"1"]


def test_a_forked_child_saves_nothing(run: RWVolume) -> None:
    saver: Checkpoints = checkpoints(run)
    (run / "model").write_text("1")
    saver.save(1)
    if (pid := os.fork()) == 0:
        try:
            saver.close()
            saver.save(2)
        except InvalidStateError:
            os._exit(3)
        finally:
            os._exit(4)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 3
    saver.close()


def test_a_program_that_ends_publishes_its_last_checkpoint(place: Path) -> None:
    program = """
import cowfs
from cowfs.blocking import Volume

run = Volume.new("run")
run.mount()
(run / "model").write_bytes(b"m" * 5_000_000)
cowfs.checkpoints(run).save(1)
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)
    assert Volume.version("run").labels["step"] == "1"
    Volume.open("run").discard(force=True)


PROGRAM = """
import sys
import cowfs
from cowfs.blocking import Volume

run = Volume.open("run", create=True)
run.mount()
saver = cowfs.checkpoints(run)
last = saver.resume()
first = int(last.labels["step"]) + 1 if last else 0
if last:
    assert (run / "step").read_text() == last.labels["step"], "the step and the files differ"
    parts = {(run / f"part{part}").read_bytes()[:8] for part in range(4)}
    assert parts == {b"%8d" % (first - 1)}, f"torn: {parts}"
print("resumed", first, flush=True)
for step in range(first, 1000):
    for part in range(4):
        (run / f"part{part}").write_bytes(b"%8d" % step * 50_000)
    (run / "step").write_text(str(step))
    saver.save(step, loss=1 / (step + 1))
    print("saved", step, flush=True)
"""


@pytest.mark.slow
def test_work_of_others_in_a_shared_mount_is_not_dropped(place: Path) -> None:
    run = Volume.open("run", create=True)
    (run.mount() / "model").write_text("0")
    with checkpoints(run) as mine:
        mine.save(0)
    other = Volume.open("run")
    (other.mount() / "notes").write_text("a day's work")
    with pytest.raises(ConflictError, match=r"other programs share the mount .* 1 file, 12 B"):
        checkpoints(run).resume()
    assert (run.path / "notes").read_text() == "a day's work"
    other.unmount()
    with checkpoints(run) as mine:
        assert mine.resume() is not None
    assert os.listdir(run.path) == ["model"]
    run.discard()


def test_a_run_that_is_killed_resumes_from_its_last_checkpoint(place: Path) -> None:
    """Twenty times, at a random moment."""
    seed = int(os.environ.get("COWFS_MODEL_SEED", random.randrange(1 << 32)))
    print(f"COWFS_MODEL_SEED={seed}")
    moments, reached, resumed = random.Random(seed), 0, 0
    for _ in range(20):
        with subprocess.Popen([sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            begun = process.stdout.readline().split()
            assert begun[:1] == ["resumed"], "it did not resume"
            resumed = int(begun[1])
            # A commit that was begun is published by the mount's daemon, or it is not.
            assert resumed >= reached - 1
            time.sleep(moments.uniform(0, 0.6))
            process.kill()
            steps = [
                int(line.split()[1]) for line in process.stdout if line.startswith("saved") and line.endswith("\n")
            ]
            reached = max([resumed, *(step + 1 for step in steps)])
    assert reached > 5
    Volume.open("run").discard(force=True)
