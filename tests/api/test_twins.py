"""The async classes are what the blocking ones say, and both say what a mount may be told."""

from __future__ import annotations

import inspect

import pytest

import cowfs
from cowfs import blocking
from cowfs.api.declared import asynchronous, plan
from cowfs.control import MountOptions
from cowfs.errors import InvalidInputError, InvalidStateError
from tests.api import async_twin

pytestmark = pytest.mark.quick

NOT_ASYNC = {*async_twin.LEFT_OUT, "from_locator"}


def test_generated_files_are_current() -> None:
    for path, text in async_twin.files().items():
        assert path.read_text() == text, "run: python -m tests.api.async_twin"


def test_errors_come_through() -> None:
    with pytest.raises(InvalidStateError):
        _ = blocking.Volume.open("x", store="file:///nowhere").locator


def test_an_async_volume_in_a_plain_block_names_the_blocking_one() -> None:
    with pytest.raises(TypeError, match=r"cowfs\.blocking"), cowfs.Volume.open("x", store="file:///nowhere"):
        pass


@pytest.mark.parametrize("name", ["RWVolume", "ROVolume"])
def test_names_are_the_same(name: str) -> None:
    asynchronous = {each for each in dir(getattr(cowfs, name)) if not each.startswith("_")}
    blocks = {each for each in dir(getattr(blocking, name)) if not each.startswith("_")}
    assert asynchronous == blocks - NOT_ASYNC


def test_declarations_have_the_same_names() -> None:
    twins = [(cowfs.Declared, blocking.Declared), (asynchronous.Plan, plan.Plan)]
    for awaited, blocks in twins:
        ours = [each for each in blocks.__mro__ if each.__module__.startswith("cowfs.api.declared")]
        members = {name for each in ours for name in vars(each) if not name.startswith(("_", "model_"))}
        fields = {name for each in ours for name in each.__annotations__}
        public = {each for each in members | fields if not each.startswith("_")}
        assert {each for each in dir(awaited) if not each.startswith("_")} == public - NOT_ASYNC


@pytest.mark.parametrize("owner", [cowfs.RWVolume, blocking.RWVolume, cowfs.ROVolume, blocking.ROVolume])
def test_the_signature_of_mount_names_every_option(owner: type) -> None:
    said = set(inspect.signature(owner.mount).parameters)  # type: ignore[attr-defined]
    writable_only = {"meta_dir", "take_over", "accept_unsafe_store"}
    options = set(MountOptions.__dataclass_fields__)
    assert said >= options - writable_only
    assert (said >= writable_only) is (owner.__name__ == "RWVolume")


def test_a_read_only_mount_has_no_options_of_writers() -> None:
    version = blocking.ROVolume(cowfs.Locator.parse("cowfs+file:///nowhere/-/v@" + "0" * 64))
    for option in ({"take_over": True}, {"accept_unsafe_store": True}, {"meta_dir": "/m"}):
        with pytest.raises(InvalidInputError, match="read-only"):
            version.mount("/nowhere", **option)


@pytest.mark.parametrize("wrong", [None, 7, b"cowfs+file:///x"])
def test_what_is_no_locator_is_refused(wrong: object) -> None:
    with pytest.raises(InvalidInputError, match="a locator is text") as caught:
        blocking.Volume.from_locator(wrong)  # type: ignore[arg-type]
    assert f"hint: {caught.value.hint}" in caught.value.__notes__, "a traceback shows what to do"
