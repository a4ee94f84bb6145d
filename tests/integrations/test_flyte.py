"""Volumes as arguments and results of tasks of the real flyte, which needs no server for it."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import flyte
import flyte.errors
import pytest
from click.testing import CliRunner
from flyte._internal.runtime import convert
from flyte._persistence._db import LocalDB
from flyte.types import TypeEngine
from flyteidl2.core import literals_pb2
from flyteidl2.task import common_pb2

import cowfs
from cowfs import blocking
from cowfs.errors import AccessDeniedError, NotFoundError, UnavailableError
from cowfs.integrations import flyte_volumes
from cowfs.integrations.flyte import register
from cowfs.integrations.flyte_commands import cowfs as cowfs_commands
from cowfs.mounts import status
from tests.forwarding import forward
from tests.integrations import flyte_tasks as tasks
from tests.seaweedfs import SeaweedFS
from tests.store.scripted_server import Answer, Request, ScriptedServer

pytestmark = [
    pytest.mark.filterwarnings("ignore::pydantic.warnings.PydanticDeprecatedSince20"),  # of flyte itself
]
KINDS = (cowfs.ROVolume, cowfs.RWVolume, blocking.ROVolume, blocking.RWVolume)


@pytest.fixture(autouse=True)
def known(place: Path) -> Iterator[None]:
    """Flyte's database is in the home of the test that has opened it, and open until now."""
    register()
    register()
    flyte.init()
    flyte_volumes._content_ids.clear()
    tasks.calls.clear()
    yield
    database: Any = LocalDB
    asyncio.run(database.close())


def mounted() -> list[str]:
    return [each.volume for each in status().mounts]


def run(task: Any, *arguments: Any) -> Any:
    return flyte.run(task, *arguments).outputs()


def make_version(text: str = "hello") -> blocking.ROVolume:
    volume = blocking.Volume.new("given")
    (volume.mount() / "a").write_text(text)
    return volume.finalize()


def to_literal(value: Any, kind: Any, output: str | None = None) -> literals_pb2.Literal:
    """As a result if `output` is its name."""
    token = convert._output_name_var.set(output)
    try:
        return asyncio.run(TypeEngine.to_literal(value, kind, TypeEngine.to_literal_type(kind)))
    finally:
        convert._output_name_var.reset(token)


# -- types


@pytest.mark.parametrize("kind", KINDS)
def test_flyte_guesses_a_version(kind: Any) -> None:
    def guess(declared: Any) -> Any:
        return TypeEngine.guess_python_type(TypeEngine.to_literal_type(declared))

    assert guess(kind) is cowfs.ROVolume
    assert get_args(guess(list[kind])) == (cowfs.ROVolume,)
    assert get_args(guess(dict[str, kind])) == (str, cowfs.ROVolume)
    assert guess(kind | None) == cowfs.ROVolume | None
    assert TypeEngine.to_literal_type(kind) == TypeEngine.to_literal_type(cowfs.ROVolume)


def test_fields_of_models_and_dataclasses_are_described() -> None:
    for kind in (tasks.Model, tasks.Record):
        described = TypeEngine.to_literal_type(kind).metadata["properties"]["data"]
        assert (described["type"], described["format"]) == ("string", "cowfs-volume")
        guessed: Any = TypeEngine.guess_python_type(TypeEngine.to_literal_type(kind))
        assert guessed.__annotations__["data"] is cowfs.ROVolume


# -- values


def test_values_of_every_shape_pass_between_tasks_of_both_kinds() -> None:
    assert run(tasks.pass_everything)[0] == "hello" * 4
    assert mounted() == []


def test_a_result_names_its_run_and_output() -> None:
    version = run(tasks.make, "x")[0]
    assert type(version) is cowfs.ROVolume
    found = blocking.Volume.version(version.locator).produced_by
    assert found["system"] == "flyte"
    assert found["output"] == "o0"
    assert found["run"]
    assert found["action"]


def test_a_literal_becomes_a_version_without_a_request(place: Path) -> None:
    version = make_version()
    literal = to_literal(version, blocking.ROVolume)
    assert literal.hash == version.content_id()
    assert literal.scalar.blob.uri == version.locator
    (place / "store").rename(place / "elsewhere")
    found = asyncio.run(TypeEngine.to_python_value(literal, cowfs.ROVolume))
    assert (found.name, found.id) == (version.name, version.id)
    again = to_literal(found, cowfs.ROVolume)  # with the content id of the literal
    assert again == literal


def test_an_argument_is_committed_and_stays_mounted() -> None:
    assert run(tasks.use_writer_as_argument)[0] == "1 2 True"
    assert mounted() == []


def test_text_that_is_given_for_a_volume_is_looked_up() -> None:
    version = make_version()
    assert run(tasks.read, "given")[0] == "hello"
    assert run(tasks.read_blocking, version.locator)[0] == "hello"
    with pytest.raises(NotFoundError):
        run(tasks.read, "missing")


def test_a_parameter_must_be_a_version() -> None:
    volume = blocking.Volume.new("x")
    volume.resolve()
    with pytest.raises(TypeError, match=r"Declare it as an ROVolume, and fork it"):
        run(tasks.take_writer, volume)


def test_a_writer_that_the_task_has_finalized_is_its_version() -> None:
    volume, version = run(tasks.finalize_first)
    assert type(volume) is type(version) is blocking.ROVolume
    assert volume == version


def test_a_writer_in_a_list_twice_is_published_once() -> None:
    one, other = run(tasks.return_twice)[0]
    assert one == other
    assert len(blocking.Volume.open("twice").history()) == 1
    assert mounted() == []


# -- the cache


def test_the_cache_compares_contents() -> None:
    same, of_another_task, touched, *misses = run(tasks.compare_contents)[0]
    assert [same, of_another_task, touched] == [1, 1, 1]
    assert misses == [2, 3, 4]  # a byte, a mode, a name


# -- failures


def test_work_of_a_failed_task_can_be_resumed(caplog: pytest.LogCaptureFixture, place: Path) -> None:
    with pytest.raises(flyte.errors.RuntimeUserError, match="midway"):
        run(tasks.fail)
    assert mounted() == []
    assert blocking.Volume.open("failing").history() == []
    command = re.search(r"`?(cowfs mount failing PATH)`?", caplog.text)
    assert command is not None
    path = place / "mnt" / "resumed"
    subprocess.run([sys.executable, "-m", "cowfs.cli", *command[1].split()[1:3], str(path)], check=True)
    assert (path / "a").read_text() == "half"
    subprocess.run([sys.executable, "-m", "cowfs.cli", "unmount", str(path), "--commit"], check=True)
    assert len(blocking.Volume.open("failing").history()) == 1


def test_a_cancelled_task_leaves_its_work() -> None:
    assert run(tasks.cancel)[0] == "cancelled"
    assert mounted() == []
    volume = blocking.Volume.open("cancelled")
    assert volume.history() == []
    assert (volume.mount() / "a").read_text() == "half"
    volume.discard()


def test_a_result_that_cannot_be_published_is_an_error_of_flyte() -> None:
    with pytest.raises(flyte.errors.RuntimeUserError) as caught:
        run(tasks.lose_volume)
    assert caught.value.code != "RuntimeUserError"
    assert "hint:" in str(caught.value)
    assert mounted() == []
    assert [(each.volume, each.has_uncommitted) for each in status().working_copies] == [("lost", True)]


def test_only_an_unavailable_store_is_an_error_of_the_system() -> None:
    hint = "Do this."
    for error, kind in (
        (UnavailableError("no answer", hint=hint), flyte.errors.RuntimeSystemError),
        (AccessDeniedError("no", hint=hint), flyte.errors.RuntimeUserError),
        (OSError("disk"), flyte.errors.RuntimeUserError),
    ):
        found = flyte_volumes.to_flyte_error(error)
        assert type(found) is kind
        assert found.code == type(error).__name__
        assert isinstance(error, OSError) or hint in str(found)


def test_an_attempt_sees_what_those_before_it_have_left() -> None:
    version = run(tasks.retry)[0]
    with blocking.Volume.version(version.locator) as found:
        assert (found / "seen").read_text() == "a1 a2"
    assert mounted() == []


@pytest.mark.parametrize("task", [tasks.return_writer_in_record, tasks.return_writer_in_model])
def test_a_mounted_writer_in_a_record_is_refused(task: Any) -> None:
    with pytest.raises(Exception, match=r"return it from a @cowfs.task, or commit it"):
        run(task)
    for each in status().mounts:
        blocking.Volume.open(each.volume).discard(force=True)


def test_a_writer_in_a_record_of_a_decorated_task_is_published() -> None:
    model = run(tasks.return_writer_in_model_of_task)[0]
    assert type(model.data) is cowfs.ROVolume
    assert mounted() == []


def test_only_the_first_rank_publishes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLYTE_CLUSTERED_WORKER", "1")
    monkeypatch.setenv("RANK", "1")
    volume = blocking.Volume.new("ranked")
    (volume.mount() / "a").write_text("1")
    literal = to_literal(volume, blocking.RWVolume, "o0")
    assert (literal.hash, literal.scalar.blob.uri) == ("", "")
    assert mounted() == []
    assert blocking.Volume.open("ranked").history() == []
    monkeypatch.setenv("RANK", "0")
    assert to_literal(volume, blocking.RWVolume, "o0").hash


def test_without_the_hook_of_flyte_a_result_is_an_argument(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delattr(convert, "current_output_name")
    flyte_volumes._find_hook.cache_clear()
    try:
        with caplog.at_level(logging.WARNING):
            volume = blocking.Volume.new("unhooked")
            (volume.mount() / "a").write_text("1")
            for _ in range(2):
                assert to_literal(volume, blocking.ROVolume, "o0").hash
        assert volume.is_mounted
        assert caplog.text.count("Put @cowfs.task below") == 1
        volume.finalize()
    finally:
        flyte_volumes._find_hook.cache_clear()


SIZE_MIB = 24
MIB_PER_S = 16


@pytest.fixture
def throttled(seaweedfs: SeaweedFS, place: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A default store whose network is slow."""

    def answer(request: Request) -> Answer:
        time.sleep(len(request.body) / (MIB_PER_S << 20))
        return forward(seaweedfs, request)

    for name, value in seaweedfs.credentials.items():
        monkeypatch.setenv(name, value)
    with ScriptedServer(answer) as proxy:
        url = f"s3://{seaweedfs.bucket};endpoint={proxy.endpoint};region=us-east-1/flyte/{place.name}"
        monkeypatch.setenv("COWFS_STORE", url)
        yield


@pytest.mark.s3
@pytest.mark.usefixtures("throttled")
def test_the_event_loop_runs_while_a_result_is_published() -> None:
    async def convert_beside() -> int:
        volume = blocking.Volume.new("large")
        (volume.mount() / "bytes").write_bytes(os.urandom(SIZE_MIB << 20))
        ticks = 0

        async def tick() -> None:
            nonlocal ticks
            while True:
                await asyncio.sleep(0.001)
                ticks += 1

        convert._output_name_var.set("o0")
        ticking = asyncio.create_task(tick())
        await TypeEngine.to_literal(volume, blocking.RWVolume, TypeEngine.to_literal_type(blocking.RWVolume))
        ticking.cancel()
        return ticks

    assert asyncio.run(convert_beside()) > 10
    assert mounted() == []


# -- flyte cowfs show


def test_the_command_line_shows_versions_of_a_local_run(place: Path) -> None:
    flyte.init(local_persistence=True)
    version = run(tasks.make, "x")[0]
    shown = CliRunner().invoke(cowfs_commands, ["show", version.produced_by["run"]])
    assert (shown.exit_code, shown.output.count(version.locator)) == (0, 1)
    assert "1 file, 1 B" in shown.output
    assert version.produced_by["action"] in shown.output
    assert version.locator in CliRunner().invoke(cowfs_commands, ["show", version.produced_by["run"], "make"]).output


def test_the_command_line_explores_the_version_of_a_local_run(place: Path) -> None:
    flyte.init(local_persistence=True)
    name = run(tasks.make, "x")[0].produced_by["run"]
    database: Any = LocalDB
    asyncio.run(database.close())
    for chosen in ([name, "make"], [name, "--output", "o0"]):
        explored = explore(*chosen)
        assert explored.returncode == 0, explored.stderr
        assert "── a" in explored.stdout  # no terminal: the tree is printed
    missing = explore(name, "--output", "o7")
    assert (missing.returncode, "flyte cowfs show" in missing.stderr) == (1, True)


def explore(*arguments: str) -> subprocess.CompletedProcess[str]:
    flyte_program = Path(sys.executable).with_name("flyte")
    return subprocess.run(
        [flyte_program, "cowfs", "explore", *arguments],
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )


def test_the_command_line_shows_versions_of_an_action(place: Path) -> None:
    version = make_version()
    outputs = place / "action" / "outputs.pb"
    outputs.parent.mkdir()
    record = to_literal(tasks.Model.model_validate({"data": version, "more": {"k": version}}), tasks.Model)
    named = [
        common_pb2.NamedLiteral(name=f"o{number}", value=value)
        for number, value in enumerate((to_literal(version, blocking.ROVolume), record))
    ]
    outputs.write_bytes(common_pb2.Outputs(literals=named).SerializeToString())
    for path in (outputs, outputs.parent):
        shown = CliRunner().invoke(cowfs_commands, ["show", str(path)])
        assert shown.output.splitlines()[0] == f"action  {version.locator}"
    several = {"first": version, "second": make_version("other")}
    named = [
        common_pb2.NamedLiteral(name=f"o{n}", value=to_literal(v, blocking.ROVolume))
        for n, v in enumerate(several.values())
    ]
    (place / "several.pb").write_bytes(common_pb2.Outputs(literals=named).SerializeToString())
    refused = CliRunner().invoke(cowfs_commands, ["explore", str(place / "several.pb")])
    assert refused.exit_code == 1
    assert all(f"--output o{n}  {v.locator}" in refused.output for n, v in enumerate(several.values()))
    assert explore(str(place / "several.pb"), "--output", "o1").returncode == 0
    (place / "store").rename(place / "elsewhere")
    assert "cannot be read" in CliRunner().invoke(cowfs_commands, ["show", str(outputs)]).output
    outputs.write_bytes(b"no protobuf")
    shown = CliRunner().invoke(cowfs_commands, ["show", str(outputs)])
    assert shown.exit_code == 1
    assert CliRunner().invoke(cowfs_commands, ["show", "missing"]).exit_code == 1
