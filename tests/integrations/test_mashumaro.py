"""Volumes in dataclasses that mashumaro encodes: always as locators, never as the directory where
one is mounted."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

import cowfs
from cowfs import blocking
from cowfs.errors import InvalidStateError
from cowfs.integrations import mashumaro

pytestmark = pytest.mark.usefixtures("place")

REASON = "comes with flyte, which is not installed"
codecs: Any = pytest.importorskip("mashumaro.codecs.json", reason=REASON)
msgpack: Any = pytest.importorskip("mashumaro.codecs.msgpack", reason=REASON)
mixins: Any = pytest.importorskip("mashumaro.mixins.json", reason=REASON)
jsonschema: Any = pytest.importorskip("mashumaro.jsonschema", reason=REASON)

mashumaro.register()
mashumaro.register()  # changes nothing


@dataclasses.dataclass
class Job:
    data: blocking.ROVolume
    other: cowfs.ROVolume
    out: blocking.RWVolume | None = None
    several: list[cowfs.ROVolume] = dataclasses.field(default_factory=list)
    by_name: dict[str, blocking.ROVolume | int] = dataclasses.field(default_factory=dict)


Model: Any = dataclasses.make_dataclass("Model", [("data", blocking.ROVolume)], bases=(mixins.DataClassJSONMixin,))


def version() -> blocking.ROVolume:
    volume = blocking.Volume.open("v", create=True)
    volume.files.write("/a", b"a")
    return volume.commit()


@pytest.mark.mount
@pytest.mark.parametrize(
    ("encoder", "decoder"),
    [(codecs.JSONEncoder, codecs.JSONDecoder), (msgpack.MessagePackEncoder, msgpack.MessagePackDecoder)],
)
def test_a_mounted_version_is_written_as_its_locator(encoder: Any, decoder: Any) -> None:
    made = version()
    other = cowfs.ROVolume.deserialize({"locator": made.locator})
    with made:
        job = Job(made, other, blocking.Volume.open("v"), [other], {"one": made, "two": 2})
        raw = encoder(Job).encode(job)
        assert str(made.path).encode() not in (raw if isinstance(raw, bytes) else raw.encode())
        assert json.loads(Model(made).to_json()) == {"data": made.locator}
    found = decoder(Job).decode(raw)
    expected: Any = dataclasses.replace(job, out=None)
    expected.out = made
    assert found == expected
    assert [type(each) for each in (found.data, found.other, found.several[0], found.by_name["one"])] == [
        blocking.ROVolume,
        cowfs.ROVolume,
        cowfs.ROVolume,
        blocking.ROVolume,
    ]
    assert Model.from_json('{"data": "v"}').data.files.read("/a") == b"a"


@pytest.mark.mount
def test_a_writer_with_work_is_refused() -> None:
    made = version()
    with blocking.Volume.open("v") as volume:
        job: Any = Job(made, cowfs.ROVolume.deserialize({"locator": "v"}), volume)
        with pytest.raises(InvalidStateError, match=r"return it from a @cowfs\.task, or commit it"):
            codecs.JSONEncoder(Job).encode(job)


def test_the_schema_is_that_of_pydantic() -> None:
    properties = jsonschema.build_json_schema(Job).to_dict()["properties"]
    assert properties["data"] == properties["other"] == {"type": "string", "format": "cowfs-volume"}
