"""The async classes are made from the blocking ones and are one type with them; both have every
mount option; the stubs say the same to type checkers."""

from __future__ import annotations

import functools
import inspect
import pickle
import subprocess
import sys
from typing import Any

import anyio
import pytest

import cowfs
from cowfs import blocking, errors
from cowfs.api.declared import asynchronous as declared
from cowfs.api.declared.cleaning import CleanPlan
from cowfs.api.declared.plan import Plan
from cowfs.api.twins.twin import ONE_BY_ONE, PLAIN, Twin, as_async, async_return
from cowfs.control import MountOptions
from cowfs.errors import InvalidInputError, InvalidStateError
from cowfs.machine import applied
from tests.api import stubs

pytestmark = pytest.mark.quick

NOWHERE = "file:///nowhere"
PAIRS = [pytest.param(*pair, id=pair[0].__name__) for pair in cowfs.list_twins()]


def blocking_objects() -> list[Any]:
    """One of each class that is ever instantiated."""
    version = blocking.ROVolume(cowfs.Locator.parse(f"cowfs+{NOWHERE}/-/v@" + "0" * 64))
    volume = blocking.Volume.open("x", store=NOWHERE)
    declaration = blocking.Declared(volumes=[cowfs.DeclaredVolume(name="data", path="/data")])
    plan = Plan(declaration, applied.Applied("/f", ()), (), ())
    log = blocking.VersionLog("v", [version], {})
    return [version, volume, version.files, volume.files, blocking.Store(NOWHERE), declaration, plan, log]


OBJECTS = [pytest.param(each, id=type(each).__name__) for each in blocking_objects()]


def test_stubs_are_current() -> None:
    for path, text in stubs.files().items():
        assert path.read_text() == text, "run: python -m tests.api.stubs"


# -- one type


@pytest.mark.parametrize(("awaited", "blocks"), PAIRS)
def test_twins_are_subclasses_of_each_other(awaited: type, blocks: type) -> None:
    assert issubclass(awaited, blocks)
    assert issubclass(blocks, awaited)
    others = {each for pair in cowfs.list_twins() for each in pair} - {awaited, blocks}
    related = {"ROFiles", "RWFiles"}
    for other in others:
        assert issubclass(other, blocks) == issubclass(other, awaited)
        assert not issubclass(other, blocks) or {other.__name__, blocks.__name__} == related


@pytest.mark.parametrize("given", OBJECTS)
def test_an_object_is_an_instance_of_both(given: Any) -> None:
    twin = as_async(given)
    assert isinstance(twin, Twin)
    for kind in (type(given), type(twin)):
        assert isinstance(given, kind)
        assert isinstance(twin, kind)
        assert not isinstance(object(), kind)
    match twin:
        case blocking.RWFiles() | blocking.RWVolume():
            assert "RW" in type(given).__name__
        case _:
            assert "RW" not in type(given).__name__


def test_files_of_a_volume_are_files_in_both_kinds() -> None:
    ro: tuple[type, ...] = (cowfs.ROFiles, blocking.ROFiles)
    rw: tuple[type, ...] = (cowfs.RWFiles, blocking.RWFiles)
    for base in ro:
        for derived in rw:
            assert issubclass(derived, base)
            assert not issubclass(base, derived)


@pytest.mark.parametrize(("base", "twin"), [(cowfs.Store, blocking.Store), (blocking.Store, cowfs.Store)])
def test_a_class_of_a_program_is_a_type_of_its_own(base: Any, twin: Any) -> None:
    derived = type("Derived", (base,), {})
    assert issubclass(derived, twin)
    assert not issubclass(twin, derived)
    assert isinstance(derived(NOWHERE), twin)
    assert not isinstance(twin(NOWHERE), derived)


@pytest.mark.parametrize(("awaited", "blocks"), PAIRS)
def test_dispatch_takes_either_for_the_other_and_prefers_the_exact_one(awaited: type, blocks: type) -> None:
    for registered, other in ((awaited, blocks), (blocks, awaited)):
        name = functools.singledispatch(lambda _: "anything")
        name.register(object, lambda _: "an object")
        name.register(registered, lambda _: "registered")
        assert name.dispatch(other)(None) == name.dispatch(registered)(None) == "registered"
        assert name.dispatch(int)(None) == "an object"
        name.register(other, lambda _: "exact")
        assert name.dispatch(other)(None) == "exact"
        assert name.dispatch(registered)(None) == "registered"


def test_dispatch_prefers_the_more_special_class_of_the_other_kind() -> None:
    for ro, rw, given in (
        (blocking.ROFiles, blocking.RWFiles, cowfs.RWFiles),
        (cowfs.ROFiles, cowfs.RWFiles, blocking.RWFiles),
    ):
        name = functools.singledispatch(lambda _: "anything")
        name.register(ro, lambda _: "ro")
        assert name.dispatch(given)(None) == "ro"
        name.register(rw, lambda _: "rw")
        assert name.dispatch(given)(None) == "rw"


@pytest.mark.parametrize("given", OBJECTS)
def test_twins_are_equal(given: Any) -> None:
    twin = as_async(given)
    assert given == twin
    assert twin == given
    assert twin == as_async(given)
    others = [each for each in blocking_objects() if type(each) is not type(given)]
    assert all(twin != each and given != as_async(each) for each in others)
    if type(given).__hash__ is not None and not isinstance(
        given, blocking.Declared | Plan | blocking.VersionLog
    ):  # they hold dicts
        assert len({given, twin}) == 1


@pytest.mark.parametrize("given", OBJECTS)
def test_pickling_returns_the_twin_that_was_pickled(given: Any) -> None:
    for each in (given, as_async(given)):
        for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
            assert type(pickle.loads(pickle.dumps(each, protocol))) is type(each)


def test_a_process_that_has_loaded_nothing_unpickles_either() -> None:
    store = blocking.Store(NOWHERE)
    code = "import pickle, sys; print([type(each) for each in pickle.load(sys.stdin.buffer)])"
    data = pickle.dumps([as_async(store), store])
    done = subprocess.run([sys.executable, "-c", code], input=data, capture_output=True, check=True)
    assert done.stdout.decode().strip() == str([cowfs.Store, blocking.Store])


def test_functions_pickle() -> None:
    for each in (cowfs.volume, blocking.volume, cowfs.Volume.new, cowfs.Volume.version):
        assert pickle.loads(pickle.dumps(each)) is each


def test_every_pair_of_the_table_is_listed() -> None:
    pairs = [(getattr(cowfs, name), getattr(blocking, name)) for name in cowfs.HOMES]
    classes = {(one, other) for one, other in pairs if one is not other and isinstance(one, type)}
    assert set(cowfs.list_twins()) == {*classes, (declared.Plan, Plan), (declared.CleanPlan, CleanPlan)}


def test_errors_are_one_tree() -> None:
    async def body() -> None:
        with pytest.raises(errors.NotFoundError) as awaited:
            await cowfs.Store(NOWHERE).version("x")
        with pytest.raises(errors.NotFoundError) as blocks:
            blocking.Store(NOWHERE).version("x")
        assert type(awaited.value) is type(blocks.value)
        assert str(awaited.value) == str(blocks.value)

    anyio.run(body)
    assert all(issubclass(each, errors.CowfsError) for each in errors.BY_KIND.values())


# -- the same names, docstrings and signatures


def test_errors_come_through() -> None:
    with pytest.raises(InvalidStateError):
        _ = blocking.Volume.open("x", store=NOWHERE).locator


def test_an_async_volume_in_a_plain_block_names_the_blocking_one() -> None:
    with pytest.raises(TypeError, match=r"cowfs\.blocking"), cowfs.Volume.open("x", store=NOWHERE):
        pass


@pytest.mark.parametrize(("awaited", "blocks"), PAIRS)
def test_names_are_the_same(awaited: type, blocks: type) -> None:
    ours = [each for each in blocks.__mro__ if each.__module__.startswith("cowfs.")]
    members = {
        name: member for each in ours for name, member in (dict.fromkeys(each.__annotations__) | vars(each)).items()
    }
    public = {
        name
        for name, member in members.items()
        if not name.startswith(("_", "model_")) and not isinstance(member, classmethod)
    }
    assert {each for each in dir(awaited) if not each.startswith("_")} == public


@pytest.mark.parametrize(("awaited", "blocks"), PAIRS)
def test_docstrings_and_arguments_are_the_same(awaited: type, blocks: type) -> None:
    assert awaited.__doc__ == blocks.__doc__
    assert awaited.__name__ == blocks.__name__
    assert inspect.signature(awaited).parameters == inspect.signature(blocks).parameters
    for name in dir(awaited):
        if name.startswith("_"):
            continue
        one, other = inspect.getattr_static(awaited, name), inspect.getattr_static(blocks, name, None)
        assert inspect.getdoc(getattr(awaited, name)) == (inspect.getdoc(getattr(blocks, name)) if other else None)
        if isinstance(one, property):
            assert other is None or isinstance(other, property) or not callable(other)
            continue
        one, other = getattr(awaited, name), getattr(blocks, name)
        assert inspect.signature(one).parameters == inspect.signature(other).parameters
        returns = str(inspect.signature(other).return_annotation)
        is_iterator = async_return(returns).startswith("AsyncIterator[")
        assert inspect.iscoroutinefunction(one) != (is_iterator or f"{awaited.__name__}.{name}" in PLAIN)
        if is_iterator:
            assert inspect.signature(one).return_annotation == async_return(returns)


def test_pieces_of_a_file_are_not_collected() -> None:
    """Of 1 MiB each: hundreds of them would be read before the caller gets the first."""
    members = [(kind.__name__, name, member) for _, kind in cowfs.list_twins() for name, member in vars(kind).items()]
    found = {
        f"{kind}.{name}"
        for kind, name, member in members
        if not name.startswith("_") and getattr(member, "__annotations__", {}).get("return") == "Iterator[bytes]"
    }
    assert "Store.read" in found
    assert found <= ONE_BY_ONE


@pytest.mark.parametrize("owner", [cowfs.RWVolume, blocking.RWVolume, cowfs.ROVolume, blocking.ROVolume])
def test_the_signature_of_mount_names_every_option(owner: type) -> None:
    said = set(inspect.signature(owner.mount).parameters)  # type: ignore[attr-defined]
    writable_only = {"meta_dir", "take_over", "accept_unsafe_store", "uncommitted"}
    options = set(MountOptions.__dataclass_fields__)
    assert said >= options - writable_only
    assert (said >= writable_only) is (owner.__name__ == "RWVolume")


def test_a_read_only_mount_has_no_options_of_writers() -> None:
    version = blocking.ROVolume(cowfs.Locator.parse(f"cowfs+{NOWHERE}/-/v@" + "0" * 64))
    for option in ({"take_over": True}, {"accept_unsafe_store": True}, {"meta_dir": "/m"}, {"uncommitted": "refuse"}):
        with pytest.raises(InvalidInputError, match="read-only"):
            version.mount("/nowhere", **option)


@pytest.mark.parametrize("wrong", [None, 7, b"cowfs+file:///x"])
def test_what_is_no_locator_is_refused(wrong: object) -> None:
    with pytest.raises(InvalidInputError, match="a locator is text") as caught:
        blocking.Volume.from_locator(wrong)  # type: ignore[arg-type]
    assert f"hint: {caught.value.hint}" in caught.value.__notes__, "a traceback shows what to do"
