# mypy: ignore-errors
"""A program under Flyte: create, read, add by a fork, checkpoint while training, eight shards in
parallel, publish a locator, consume it without any input.

Run it twice: `python flyte_program.py` (flyte >= 2.11, no server).
"""

import asyncio

import flyte

from cowfs import ROVolume, RWVolume, Volume

env = flyte.TaskEnvironment(name="cowfs-program")


@env.task
async def make() -> RWVolume:
    volume = Volume.new(name="set")
    (await volume.mount() / "greeting.txt").write_text("hello\n")
    return volume  # committed, unmounted; the next task gets a version


@env.task
async def read(version: ROVolume) -> str:
    return ((await version.mount()) / "greeting.txt").read_text()


@env.task
async def extend(version: ROVolume) -> ROVolume:
    branch = await version.fork(name="set-2")
    (await branch.mount() / "extra.txt").write_text("later\n")
    return await branch.finalize(message="extra.txt")


@env.task
async def train(base: ROVolume) -> ROVolume:
    run = await base.fork(name="run")
    path = await run.mount()
    for epoch in range(30):
        (path / "epoch").write_text(str(epoch))
        if epoch % 10 == 0:
            await run.commit(message=f"epoch {epoch}")
    return await run.finalize(message="done")


@env.task
async def shard(base: ROVolume, number: int) -> ROVolume:
    branch = await base.fork(name=f"shard-{number}")
    (await branch.mount() / f"shard-{number}.bin").write_bytes(bytes([number]))
    return await branch.finalize(message=f"shard {number}")


@env.task
async def consume(address: str) -> int:
    version = await Volume.from_locator(address)
    return len(list((await version.mount()).glob("**/*")))


@env.task
async def main() -> list[int]:
    first = await make()
    assert await read(first) == "hello\n"
    second = await extend(first)
    trained = await train(second)
    shards = await asyncio.gather(*(shard(trained, number) for number in range(8)))
    return list(await asyncio.gather(*(consume(each.locator) for each in shards)))


if __name__ == "__main__":
    flyte.init()
    outputs = flyte.run(main).outputs()
    assert list(outputs[0]) == [4] * 8, outputs  # greeting, extra, epoch, its shard
