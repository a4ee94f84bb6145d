"""Declarations under asyncio and trio: planned, applied, mounted and unmounted as the blocking ones
are."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest
from anyio import from_thread

import cowfs
from cowfs import blocking
from cowfs.api.declared.mounting import Outcome
from cowfs.api.declared.plan import Step
from cowfs.blocking import Store, Volume
from cowfs.errors import InvalidInputError, NotFoundError

BACKENDS = ("asyncio", "trio")
COPY = 'volumes = [{name = "ckpt", path = "MNT/ckpt", read_only = false, mode = "copy"}]\n'


@pytest.fixture
def file(place: Path) -> Path:
    path = place / "cowfs.toml"
    path.write_text(COPY.replace("MNT", str(place / "mnt")))
    return path


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_async_twin_does_likewise(backend: str, file: Path, place: Path) -> None:
    heard: list[tuple[Step, Outcome | None]] = []

    async def body() -> None:
        declared = await cowfs.Declared.load(file)
        assert (declared.file, [each.mount_path for each in declared.volumes]) == (file, [str(place / "mnt" / "ckpt")])
        with pytest.raises(NotFoundError, match="ckpt"):
            await declared.up()
        plan = await declared.plan(mounts=False)
        assert ([step.action for step in plan.steps], plan.has_changes) == (["create"], True)
        assert plan.declared == declared
        await plan.apply(hears=lambda *each: heard.append(each))
        assert [step.action for step, _ in heard] == ["create"]
        assert not (await declared.plan(mounts=False)).has_changes
        assert [each.state for each in await declared.up()] == ["mounted"]
        (place / "mnt" / "ckpt" / "step").write_text("7")
        assert [(each.state, each.has_uncommitted) for each in await declared.down()] == [("unmounted", True)]
        Volume.open("ckpt").discard()
        deletion = await declared.plan_deletion()
        assert [step.action for step in deletion.steps] == ["delete"]
        await deletion.apply()
        assert Store().volumes() == []
        assert declared.emit("sh") == blocking.Declared.load(file).emit("sh")

    anyio.run(body, backend=backend)


@pytest.mark.parametrize("backend", BACKENDS)
def test_it_leaves_the_event_loop_free(backend: str, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`up` waits for something that only the loop can do."""

    async def body() -> None:
        done = anyio.Event()

        def up(declared: blocking.Declared, **given: object) -> list[Outcome]:
            from_thread.run_sync(done.set)
            return []

        monkeypatch.setattr(blocking.Declared, "up", up)
        declared = await cowfs.Declared.load(file)
        with anyio.fail_after(60):
            assert await declared.up() == []
        assert done.is_set()

    anyio.run(body, backend=backend)


def test_what_is_declared_in_python_is_checked_and_compared() -> None:
    volumes = [cowfs.DeclaredVolume(name="data", path="/data")]
    declared = cowfs.Declared(volumes=volumes, stores={"main": "s3://bucket/prefix"})
    assert declared == cowfs.Declared(volumes=volumes, stores={"main": "s3://bucket/prefix"})
    assert declared != cowfs.Declared(volumes=volumes)
    assert (declared.volumes, list(declared.stores), declared.file) == (tuple(volumes), ["main"], None)
    assert declared.is_named("main")
    with pytest.raises(InvalidInputError, match="elsewhere"):
        cowfs.Declared(volumes=[{"name": "data", "path": "/data", "store": "elsewhere"}])

    async def refused() -> None:
        with pytest.raises(InvalidInputError):
            await declared.plan()

    anyio.run(refused)
