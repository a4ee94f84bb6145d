"""cowfs du --stored: what versions and volumes need of a store, alone and together."""

from __future__ import annotations

from pathlib import Path

from cowfs.blocking import ROVolume, Store, StoredBytes
from cowfs.format.pack import parse_pack
from tests.cli.conftest import Run
from tests.cli.test_json import check
from tests.maintain.conftest import BIG, OTHER, first, place, run, second

__all__ = ["first", "place", "run", "second"]


def by_group(found: list[StoredBytes]) -> dict[str, StoredBytes]:
    assert all(each.stored_bytes == each.unique_bytes + each.shared_bytes for each in found)
    return {each.group: each for each in found}


def blob_bytes(store: Path) -> int:
    """Of all packs: here versions name every blob of them."""
    found = 0
    for path in (store / "packs").rglob("*"):
        if path.is_file():
            found += sum(entry.stored_length for entry in parse_pack(path.read_bytes(), what=path.name)[1])
    return found


def test_what_only_one_has_is_unique_and_the_rest_is_shared(place: Path, second: ROVolume, run: Run) -> None:
    (whole,) = Store().stored_bytes(by="store").groups
    assert (whole.version_count, whole.shared_bytes) == (2, 0)
    assert whole.stored_bytes == blob_bytes(place / "store")
    versions = by_group(Store().stored_bytes("data").groups)
    assert versions.keys() == {second.id, second.parents[0]}
    assert len(BIG) < versions[second.parents[0]].shared_bytes < whole.stored_bytes
    assert len(OTHER) <= versions[second.id].unique_bytes < len(OTHER) + 100_000
    assert versions[second.parents[0]].unique_bytes < 100_000, "index blocks alone"
    fork = second.fork("fork")
    fork.files.write("own", OTHER[::-1])
    fork.finalize()
    volumes = by_group(Store().stored_bytes().groups)
    assert volumes.keys() == {"data", "fork"}
    assert len(OTHER) <= volumes["fork"].unique_bytes < len(OTHER) + 100_000
    assert volumes["fork"].version_count == 2
    assert volumes["fork"].shared_bytes > len(BIG) + len(OTHER)
    (owner,) = Store().stored_bytes(by="owner").groups
    assert owner.unique_bytes == owner.stored_bytes == Store().stored_bytes(by="store").groups[0].stored_bytes
    said = run("du", "--stored", "--json")
    check("du --stored", said.json)
    assert {each["group"] for each in said.json["groups"]} == {"data", "fork"}
    text = run("du", "--stored", f"data@{second.id}").out
    assert second.id[:12] in text
    assert len(text.splitlines()) == 2
    assert run("du", "--stored", "--by", "store").code == 0
    assert (run("du").code, run("du", "data", "--by", "owner").code, run("du", "data:dir", "--stored").code) == (
        2,
        2,
        2,
    )


def test_deleted_volumes_are_marked(place: Path, second: ROVolume, run: Run) -> None:
    """Also where a fork has their versions."""
    second.fork("fork").resolve()
    assert run("delete", "data", "-y").code == 0
    found = run("du", "--stored", "--json").json
    check("du --stored", found)
    assert {each["group"]: each["is_deleted"] for each in found["groups"]} == {"data": True, "fork": False}
    assert [line.split()[-2:] for line in run("du", "--stored").out.splitlines()[1:]] == [
        ["data", "(deleted)"],
        ["1", "fork"],
    ]
    assert not any(each["is_deleted"] for each in run("du", "--stored", "--by", "owner", "--json").json["groups"])
    assert run("undelete", "data").code == 0
    assert not any(each["is_deleted"] for each in run("du", "--stored", "--json").json["groups"])
