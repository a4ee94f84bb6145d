"""The table of backends: what it names exists, and a program can add to it."""

from __future__ import annotations

import importlib
import tomllib
from pathlib import Path

import pytest

from cowfs.errors import InvalidInputError
from cowfs.format import backends
from cowfs.format.backends import Backend
from cowfs.format.locator import Locator
from cowfs.format.store_url import StoreUrl
from cowfs.store.backends.imports import load_address, load_origin_opener, load_store_opener
from cowfs.store.nesting import is_one
from tests.store import plain_store

ROOT = Path(__file__).parents[2]
BUILT_IN = ["abfs", "abfss", "az", "file", "gs", "http", "https", "memory", "s3"]


@pytest.mark.parametrize("protocol", [*BUILT_IN, "unregistered"])
def test_every_entry_names_code_that_is_there(protocol: str) -> None:
    place = StoreUrl(protocol, "", "x")
    for loaded in (load_store_opener(place), load_origin_opener(place), load_address(place).is_same_root):
        assert callable(loaded)


@pytest.mark.quick
@pytest.mark.parametrize("group", ["fsspec.specs", "universal_pathlib.implementations"])
def test_other_libraries_find_cowfs_for_each_protocol(group: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert sorted(project["entry-points"][group]) == ["cowfs", *(f"cowfs+{each}" for each in BUILT_IN)]
    assert {*BUILT_IN} <= {*backends.protocols()}
    assert all(f"`{each}`" in (ROOT / "docs/format/locator.md").read_text() for each in BUILT_IN)


@pytest.mark.quick
def test_each_extra_is_one_of_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = {backends.find(each).extra for each in backends.protocols()} - {""}
    assert extras <= {*project["optional-dependencies"]}


@pytest.mark.quick
def test_a_registered_backend_is_known_everywhere() -> None:
    plain_store.register()
    plain_store.register()  # the same one again is fine
    assert str(StoreUrl.parse("plainer://host/p")) == "plain://host/p"
    assert is_one("plainer://host/p", "plain://host//p/")
    assert Locator.parse(f"cowfs+plain://host/p/-/v@{'0' * 64}").store.protocol == "plain"
    assert backends.of_url("PLAINER://host/p").reach == "process"
    with pytest.raises(InvalidInputError, match="no option"):
        StoreUrl.parse("plain://host;region=x/p")


@pytest.mark.quick
@pytest.mark.parametrize("protocol", ["s3", "s3a", "gcs"])
def test_a_protocol_has_one_backend(protocol: str) -> None:
    with pytest.raises(ValueError, match=protocol):
        backends.register(Backend(protocols=(protocol,)))
    with pytest.raises(ValueError, match=protocol):
        backends.register(Backend(protocols=("fresh",), aliases=(protocol,)))
    assert not backends.is_registered("fresh")


def test_a_missing_client_is_an_error_with_a_hint(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> None:
        raise ImportError("No module named 'client'")

    monkeypatch.setattr(importlib, "import_module", absent)
    with pytest.raises(InvalidInputError, match="is not installed") as caught:
        load_store_opener(StoreUrl("gs", "bucket", ""))
    assert "pip install 'cowfs-volumes[gcs]'" in caught.value.hint
