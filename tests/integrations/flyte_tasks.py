"""Tasks of the tests of Flyte. They are in a module of their own, as Flyte's cache and pods need
them."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import threading
from collections.abc import Callable
from typing import Any

import flyte
from pydantic import BaseModel

import cowfs
from cowfs import ROVolume, RWVolume, Volume, blocking

env = flyte.TaskEnvironment("cowfs-tests")
Decorator = Callable[[Callable[..., Any]], Any]
calls: dict[str, int] = {}
has_stalled = threading.Event()


def task(**options: Any) -> Decorator:
    """Callers pass volumes where a version is declared, which only Flyte converts."""
    decorator: Decorator = env.task(**options)
    return decorator


def count(name: str) -> int:
    calls[name] = calls.get(name, 0) + 1
    return calls[name]


class Model(BaseModel):
    data: ROVolume
    more: dict[str, ROVolume] = {}
    number: int = 1


@dataclasses.dataclass
class Record:
    data: ROVolume
    more: list[ROVolume]
    sync: blocking.ROVolume
    maybe: ROVolume | None = None
    number: int = 1


@dataclasses.dataclass
class Writers:
    data: RWVolume


class WriterModel(BaseModel):
    data: RWVolume


# -- both kinds, containers, records


@task()
async def make(text: str) -> RWVolume:
    volume = Volume.new("made")
    (await volume.mount() / "a").write_text(text)
    return volume


@task()
def make_blocking(text: str) -> blocking.RWVolume:
    volume = blocking.Volume.new("made")
    (volume.mount() / "a").write_text(text)
    return volume


@task()
async def read(version: ROVolume) -> str:
    assert type(version) is ROVolume
    async with version:
        return (version / "a").read_text()


@task()
def read_blocking(version: blocking.ROVolume) -> str:
    assert type(version) is blocking.ROVolume
    with version:
        return (version / "a").read_text()


@task()
async def pass_on(
    one: ROVolume, several: list[ROVolume], named: dict[str, ROVolume], none: ROVolume | None
) -> tuple[list[ROVolume], dict[str, ROVolume], ROVolume | None, ROVolume | None]:
    return [one, *several], named, none, one


@task()
async def fork(base: ROVolume | None) -> RWVolume | None:
    assert base is not None
    volume = await base.fork("forked")
    (await volume.mount() / "b").write_text("more")
    return volume


@task()
async def either(value: str | ROVolume) -> str:
    return type(value).__name__


@task()
async def change_model(model: Model) -> Model:
    assert type(model.data) is type(model.more["k"]) is ROVolume
    return Model(data=model.more["k"], number=model.number + 1)


@task()
async def change_record(record: Record) -> Record:
    assert [type(each) for each in record.more] == [ROVolume, ROVolume]
    assert type(record.sync) is blocking.ROVolume
    assert record.maybe is None
    return Record(record.data, [record.data], record.sync, record.data, record.number + 1)


@task()
async def pass_everything() -> str:
    made, other = await make("hello"), await make_blocking.aio("hello")
    assert type(made) is ROVolume
    assert type(other) is blocking.ROVolume
    several, named, none, one = await pass_on(made, [made], {"k": made}, None)
    assert [type(each) for each in (*several, *named.values(), one)] == [ROVolume] * 4
    assert none is None
    forked = await fork(made)
    assert forked is not None
    assert forked.parents == [made.id]
    model = await change_model(Model(data=made, more={"k": made}))
    assert (model.data, model.number) == (made, 2)
    record = await change_record(Record(made, [made, made], other))
    assert (record.data, record.maybe, record.sync, record.number) == (made, made, other, 2)
    assert [await either(made), await either("text")] == ["ROVolume", "str"]
    return "".join([await read(made), await read_blocking.aio(other), await read(other), await read_blocking.aio(made)])


@task()
async def use_writer_as_argument() -> str:
    volume = Volume.new("argument")
    path = await volume.mount()
    (path / "a").write_text("1")
    first = await read(volume)
    (path / "a").write_text("2")
    second = await read(volume)
    is_mounted = volume.is_mounted
    await volume.finalize()
    return f"{first} {second} {is_mounted}"


@task()
async def take_writer(volume: RWVolume) -> str:
    return volume.name


# -- the cache


@task(cache="auto")
async def cached(version: ROVolume) -> int:
    return count("cached")


@task()
async def compare_contents() -> list[int]:
    changes: tuple[Callable[[Any], object], ...] = (
        lambda path: os.utime(path / "a", (1, 1)),
        lambda path: (path / "a").write_text("SAME"),
        lambda path: (path / "a").chmod(0o600),
        lambda path: (path / "a").rename(path / "b"),
    )
    first, second = await make("same"), await make("same")
    assert first.id != second.id
    found = [await cached(first), await cached(second)]
    volume = await second.fork("changed")
    path = await volume.mount()
    for change in changes:
        change(path)
        found.append(await cached(await volume.commit()))
    await volume.discard()
    return found


# -- failures


@task()
@cowfs.task
async def fail() -> RWVolume:
    volume = await Volume.open("failing", create=True)
    (await volume.mount() / "a").write_text("half")
    raise RuntimeError("midway")


@task()
@cowfs.task
async def stall() -> None:
    volume = await Volume.open("cancelled", create=True)
    (await volume.mount() / "a").write_text("half")
    has_stalled.set()
    await asyncio.sleep(60)


@task()
async def cancel() -> str:
    running = asyncio.ensure_future(stall())
    await asyncio.to_thread(has_stalled.wait, 60)
    running.cancel()
    try:
        await running
    except asyncio.CancelledError:
        return "cancelled"
    return "ended"


@task()
async def lose_volume() -> RWVolume:
    volume = Volume.new("lost")
    path = await volume.mount()
    (path / "a").write_text("work")
    await cowfs.Store().delete("lost", force=True)
    return volume


@task(retries=2)
@cowfs.task
async def retry() -> RWVolume:
    attempt = count("retry")
    volume = Volume.open("retried", create=True)
    path = await volume.mount()
    before = sorted(os.listdir(path))
    (path / f"a{attempt}").write_text("half")
    if attempt < 3:
        raise ValueError(f"attempt {attempt} saw {before}")
    (path / "seen").write_text(" ".join(before))
    return volume


@task()
async def return_writer_in_record() -> Writers:
    volume = Volume.new("in-record")
    await volume.mount()
    return Writers(volume)


@task()
async def return_writer_in_model() -> WriterModel:
    volume = Volume.new("in-model")
    await volume.mount()
    return WriterModel(data=volume)


@task()
@cowfs.task
async def return_writer_in_model_of_task() -> Model:
    volume = Volume.new("of-task")
    (await volume.mount() / "a").write_text("1")
    return Model.model_construct(data=volume, more={}, number=3)


@task()
def finalize_first() -> tuple[blocking.RWVolume, blocking.ROVolume]:
    volume = blocking.Volume.new("finalized")
    (volume.mount() / "a").write_text("1")
    return volume, volume.finalize()


@task()
async def return_twice() -> list[RWVolume]:
    volume = Volume.new("twice")
    (await volume.mount() / "a").write_text("1")
    return [volume, volume]
