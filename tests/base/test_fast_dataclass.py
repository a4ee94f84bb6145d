"""Classes of `cowfs.base.fast_dataclass` behave as those of `dataclasses`; public ones are frozen
at run time."""

import ast
import dataclasses
import importlib
import pickle
from collections.abc import Hashable
from dataclasses import FrozenInstanceError, field
from pathlib import Path
from typing import Any, ClassVar

import pytest

import cowfs.blocking
from cowfs.base import fast_dataclass


@fast_dataclass.dataclass(frozen=True, slots=True)
class Inner:
    kind: ClassVar[str] = "inner"
    name: str
    secret: str = field(default="", repr=False)
    extra: dict[str, int] = field(default_factory=dict, hash=False, kw_only=True)


@fast_dataclass.dataclass(frozen=True)
class Outer(Inner):
    position: int = field(default=0, compare=False)


def twins(**flags: Any) -> list[type]:
    """One class, made by `values` and by `dataclasses`."""
    return [
        make(**flags)(type("Twin", (), {"__annotations__": {"a": int, "b": str}, "b": "x", "__module__": __name__}))
        for make in (fast_dataclass.dataclass, dataclasses.dataclass)
    ]


@pytest.mark.parametrize(
    "flags", [{}, {"frozen": True}, {"eq": False}, {"slots": True}, {"frozen": True, "slots": True}, {"kw_only": True}]
)
def test_as_a_dataclass(flags: dict[str, bool]) -> None:
    ours, theirs = twins(**flags)
    values_of = [
        (
            repr(made(a=1)),
            made(a=1) == made(a=1),
            made(a=1) == made(a=2),
            made(a=1) == 1,
            isinstance(made(a=1), Hashable),
            dataclasses.asdict(made(a=1, b="z")),
            dataclasses.asdict(dataclasses.replace(made(a=1), a=3)),
            [each.name for each in dataclasses.fields(made)],
            hasattr(made(a=1), "__dict__"),
        )
        for made in (ours, theirs)
    ]
    assert values_of[0] == values_of[1]
    assert ours(a=1) != theirs(a=1)


def test_what_fields_say() -> None:
    value = Outer("n", "s3cret", 7, extra={"a": 1})
    assert repr(value) == "Outer(name='n', extra={'a': 1}, position=7)"
    assert value == Outer("n", "s3cret", 8, extra={"a": 1})
    assert value != Outer("n", "s3cret", 7)
    assert hash(value) == hash(Outer("n", "s3cret", 7))
    assert value != Inner("n", "s3cret", extra={"a": 1})
    assert len({value, Outer("n", "s3cret", 9, extra={"a": 1})}) == 1
    assert pickle.loads(pickle.dumps(value)) == value


def test_own_methods_stay() -> None:
    @fast_dataclass.dataclass(frozen=True)
    class Own:
        a: int

        def __eq__(self, other: object) -> bool:
            return True

        def __hash__(self) -> int:
            return 5

        def __repr__(self) -> str:
            return "own"

    assert (repr(Own(1)), hash(Own(1)), Own(1) == 3) == ("own", 5, True)


@pytest.mark.parametrize("module", ["cowfs", "cowfs.blocking", "cowfs.storage"])
def test_what_is_public_is_frozen(module: str) -> None:
    public = importlib.import_module(module)
    kinds = [getattr(public, name) for name in public.__all__]
    checked = [kind for kind in kinds if isinstance(kind, type) and dataclasses.is_dataclass(kind)]
    for kind in checked:
        value = object.__new__(kind)
        with pytest.raises(FrozenInstanceError):
            setattr(value, dataclasses.fields(kind)[0].name, 1)
    assert checked or module == "cowfs.storage"


def test_few_are_made_the_slow_way() -> None:
    """Those that the public API hands out, and their neighbours; and the web's, which no command
    waits for. Read from the source, so that the answer is the same whichever modules other tests
    have imported."""
    root = Path(cowfs.__file__).parent
    slow = {
        "cowfs." + ".".join(path.relative_to(root).with_suffix("").parts)
        for path in root.rglob("*.py")
        if not path.is_relative_to(root / "web")
        and any(
            isinstance(node, ast.ImportFrom)
            and node.module == "dataclasses"
            and any(name.name == "dataclass" for name in node.names)
            for node in ast.walk(ast.parse(path.read_bytes()))
        )
    }
    public = {getattr(cowfs.blocking, name).__module__ for name in cowfs.blocking.__all__}
    assert slow <= public | {
        "cowfs.api.upkeep.accepting",
        "cowfs.api.upkeep.encryption",
        "cowfs.api.storage.definition",
        "cowfs.store.contract",
        "cowfs.store.store_names",
        "cowfs.base.fast_dataclass",
    }
