"""Volumes in the data of other libraries: fields of pydantic models, dask's tokens, what Airflow
keeps. Reading a text makes no request; a writer with work in it is refused."""

from __future__ import annotations

import json
import os
import pickle
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import anyio
import dask
import pytest
from dask.base import tokenize
from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError

import cowfs
from cowfs import blocking
from cowfs.api import stores
from cowfs.errors import InvalidInputError, InvalidStateError, NotFoundError, UnsupportedFormatError

pytestmark = pytest.mark.usefixtures("place")

REFUSED = "return it from a @cowfs.task, or commit it"


class Config(BaseModel):
    data: blocking.ROVolume
    out: blocking.RWVolume | None = None


class AsyncConfig(BaseModel):
    data: cowfs.ROVolume
    out: cowfs.RWVolume | None = None


def version(name: str = "v", text: str = "text") -> blocking.ROVolume:
    volume = blocking.Volume.open(name, create=True)
    volume.files.mkdir("/dir", parents=True, exist_ok=True)
    volume.files.write("/dir/a", text.encode())
    return volume.commit()


@pytest.fixture
def no_store(monkeypatch: pytest.MonkeyPatch) -> None:
    """No store answers."""

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a store was opened")

    for name in ("open_store", "open_located", "open_located_asking", "open_or_initialize", "open_asking"):
        monkeypatch.setattr(stores, name, refuse)


LOCATOR = f"cowfs+s3://bucket/p/-/v@{'ab' * 32}"


@pytest.mark.parametrize("model", [Config, AsyncConfig])
@pytest.mark.parametrize(
    "text", [LOCATOR, f"{LOCATOR}/dir/a", "name", "name@tag", "name@{3}", "name:/dir", "near/name"]
)
def test_a_text_in_a_config_is_a_volume_and_nothing_is_requested(model: Any, text: str, no_store: None) -> None:
    by_python, by_json = model(data=text), model.model_validate_json(json.dumps({"data": text, "out": "name"}))
    for each in (by_python, by_json):
        assert type(each.data) is model.model_fields["data"].annotation
        assert repr(each.data).startswith(f"ROVolume({text.split('/dir')[0]!r}"[:-1])
    assert isinstance(by_json.out, cowfs.RWVolume)
    assert by_json.out.name == "name"


@pytest.mark.parametrize("text", ["", "name@", "a b/c d", "cowfs+s3://bucket/-/v@ab", "s3://bucket/name", "name:../x"])
def test_a_text_that_names_nothing_is_refused(text: str) -> None:
    for kind in (blocking.ROVolume, cowfs.ROVolume, blocking.RWVolume, cowfs.RWVolume):
        with pytest.raises(ValidationError):
            TypeAdapter(kind).validate_python(text)


@pytest.mark.parametrize("value", [1, None, b"name", Path("name"), {"locator": "name"}])
def test_only_texts_and_volumes_are_accepted(value: object) -> None:
    with pytest.raises(ValidationError, match="locator, or the name of a volume"):
        Config(data=value)  # type: ignore[arg-type]


def test_a_writer_is_no_version() -> None:
    with pytest.raises(ValidationError, match="not a writer"):
        Config(data=blocking.Volume.new("v"))  # type: ignore[arg-type]


def test_objects_of_either_class_become_the_declared_one() -> None:
    made = version()
    found = AsyncConfig(data=made, out=blocking.Volume.open("v"))  # type: ignore[arg-type]
    assert (type(found.data), type(found.out)) == (cowfs.ROVolume, cowfs.RWVolume)
    assert type(Config.model_validate({"data": found.data}).data) is blocking.ROVolume
    assert found.model_dump()["data"] == made


def test_a_model_is_written_as_locators_and_read_elsewhere() -> None:
    made = version()
    for model in (Config, AsyncConfig):
        written = model(data="v", out="v").model_dump_json()  # type: ignore[arg-type]
        assert json.loads(written) == {"data": made.locator, "out": made.locator}
        version(text="another")
        again: Any = model.model_validate_json(written)
        assert again.data == made
        assert isinstance(again.out, cowfs.ROVolume), "a writer is read as what it had committed"
        blocking.Volume.open("v").commit()
        made = blocking.Volume.version("v")


def test_the_schema_says_what_a_form_may_ask_for() -> None:
    for model in (Config, AsyncConfig):
        for mode in ("validation", "serialization"):
            properties = model.model_json_schema(mode=mode)["properties"]
            assert properties["data"] == {"type": "string", "format": "cowfs-volume"} | {
                key: value for key, value in properties["data"].items() if key == "title"
            }


def test_a_name_is_looked_up_once_when_it_is_first_used() -> None:
    first = version()
    lazy = Config.model_validate({"data": "v"}).data
    early = Config.model_validate({"data": "v:/dir"}).data
    assert (early.folder, early.files.read("/a")) == ("dir", b"text")
    second = version(text="another")
    assert lazy == second
    version(text="a third")
    assert (lazy.id, lazy.locator, hash(lazy)) == (second.id, second.locator, hash(second))
    assert pickle.loads(pickle.dumps(lazy)) == second
    assert lazy.files.read("/dir/a") == b"another"
    assert early.id == first.id


def test_a_name_that_leads_nowhere_says_so_at_each_use() -> None:
    version()
    lazy = Config.model_validate({"data": "w"}).data
    for use in (lambda: lazy.locator, lazy.content_id, lazy.resolve, lazy.unmount, lambda: pickle.dumps(lazy)):
        with pytest.raises(NotFoundError, match="w"):
            use()
    version("w")
    assert lazy.files.read("/dir/a") == b"text"


@pytest.mark.mount
def test_a_version_by_name_is_mounted() -> None:
    version()

    async def body() -> bytes:
        async with AsyncConfig.model_validate({"data": "v"}).data as mounted:
            return await anyio.Path(mounted / "dir" / "a").read_bytes()

    assert anyio.run(body) == b"text"
    lazy = Config.model_validate({"data": "v"}).data
    assert not Config.model_validate({"data": "v"}).data.is_mounted
    with lazy:
        assert (lazy / "dir" / "a").read_bytes() == b"text"
        assert Config(data=lazy).model_dump(mode="json")["data"] == lazy.locator, "and not where it is mounted"


def worked() -> blocking.RWVolume:
    volume = blocking.Volume.open("w", create=True)
    volume.files.write("/a", b"a")
    return volume


WRITERS: list[Callable[[], Any]] = [
    lambda: blocking.Volume.new("w"),
    lambda: blocking.Volume.open("w", create=True),
    lambda: blocking.Volume.open("w", create=True).resolve(),
    worked,
    lambda: (worked(), cowfs.RWVolume.deserialize({"locator": "w"}))[1],
]


@pytest.mark.parametrize("at", range(len(WRITERS)))
def test_a_writer_with_work_or_without_a_version_is_refused(at: int) -> None:
    volume = WRITERS[at]()
    with pytest.raises(InvalidStateError, match=REFUSED):
        volume.serialize()
    with pytest.raises(InvalidStateError, match=REFUSED):
        tokenize(volume)
    with pytest.raises(PydanticSerializationError, match=REFUSED):
        AsyncConfig(data=LOCATOR, out=volume).model_dump_json()  # type: ignore[arg-type]
    if at < 2:
        with pytest.raises(NotFoundError):  # it was not made
            blocking.Volume.open("w").resolve()


@pytest.mark.mount
def test_a_mounted_writer_is_refused() -> None:
    with blocking.Volume.new("m") as volume:
        for each in (volume, cowfs.RWVolume.deserialize({"locator": "m"})):
            with pytest.raises(InvalidStateError, match=f"is mounted: {REFUSED}"):
                each.serialize()


# -- dask


def test_tokens_are_equal_for_equal_versions() -> None:
    made = version()
    objects = [made, blocking.Volume.from_locator(made.locator), pickle.loads(pickle.dumps(made))]
    objects.append(cowfs.ROVolume.deserialize({"locator": made.locator}))
    objects.append(blocking.ROVolume.deserialize({"locator": "v"}))
    with dask.config.set({"tokenize.ensure-deterministic": True}):
        assert len({tokenize(each) for each in objects}) == 1
        folder = blocking.Volume.from_locator(f"{made.locator}/dir")
        before = tokenize(blocking.Volume.open("v"))
        assert tokenize(folder) != tokenize(made) != tokenize(version(text="another"))
        assert tokenize(blocking.Volume.open("v")) != before, "the volume has another version now"


def test_a_token_needs_no_request(no_store: None) -> None:
    assert blocking.ROVolume.deserialize({"locator": LOCATOR}).__dask_tokenize__() == (
        "cowfs",
        "s3://bucket/p",
        "ab" * 32,
        "",
    )


# -- Airflow


def kept_by_airflow(value: Any) -> Any:
    """As its `serde` does: the class by its qualified name, data as JSON, and the class's
    version."""
    kind = type(value)
    record = json.dumps([f"{kind.__module__}.{kind.__qualname__}", kind.__version__, value.serialize()])
    name, of_data, data = json.loads(record)
    module, _, attribute = name.rpartition(".")
    return getattr(import_module(module), attribute).deserialize(data, of_data)


def test_what_airflow_keeps_is_the_same_version() -> None:
    made = version()
    for each in (made, cowfs.ROVolume.deserialize({"locator": made.locator}), blocking.Volume.open("v")):
        kept = kept_by_airflow(each)
        assert kept == made
        assert type(kept) is (type(each) if isinstance(each, cowfs.ROVolume) else blocking.ROVolume)


def test_data_of_a_newer_cowfs_and_other_data_are_refused() -> None:
    with pytest.raises(UnsupportedFormatError):
        blocking.ROVolume.deserialize({"locator": "v"}, 2)
    for data in ({}, "v", None, {"locator": 1}):
        with pytest.raises(InvalidInputError, match="no serialized volume"):
            blocking.ROVolume.deserialize(data)  # type: ignore[arg-type]


def test_a_mounted_version_is_a_path_still() -> None:
    assert issubclass(cowfs.ROVolume, os.PathLike)
