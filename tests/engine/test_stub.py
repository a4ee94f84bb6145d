"""`_native.pyi` tells the truth: every name it has exists with these parameters, and nothing exists
that it does not have."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path
from typing import Any

import pytest

import cowfs
from cowfs import native
from cowfs.native import chunks, constants, local, rows

pytestmark = pytest.mark.quick

STUB = ast.parse((Path(cowfs.__file__).parent / "_native.pyi").read_text())
CLASSES = [node for node in STUB.body if isinstance(node, ast.ClassDef)]
FUNCTIONS = [node for node in STUB.body if isinstance(node, ast.FunctionDef)]
ALIASES = {"InodeRow", "ExtentRow"}


def parameters(node: ast.FunctionDef) -> list[tuple[str, bool, bool]]:
    """(name, keyword only, has a default) of each parameter but self."""
    positional = [argument.arg for argument in (*node.args.posonlyargs, *node.args.args) if argument.arg != "self"]
    defaults = [False] * (len(positional) - len(node.args.defaults)) + [True] * len(node.args.defaults)
    found = [(name, False, default) for name, default in zip(positional, defaults, strict=True)]
    keyword_only = zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True)
    return found + [(argument.arg, True, default is not None) for argument, default in keyword_only]


def real_parameters(function: object) -> list[tuple[str, bool, bool]]:
    signature = inspect.signature(function)  # type: ignore[arg-type]
    return [
        (name, parameter.kind is parameter.KEYWORD_ONLY, parameter.default is not parameter.empty)
        for name, parameter in signature.parameters.items()
        if name != "self"
    ]


def is_property(node: ast.FunctionDef) -> bool:
    return any(isinstance(each, ast.Name) and each.id == "property" for each in node.decorator_list)


def named(name: str) -> Any:
    return next(getattr(home, name) for home in (native, chunks, local, rows) if name in home.__all__)


def test_names_of_the_module() -> None:
    annotated = [
        node.target.id for node in STUB.body if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    ]
    names = {node.name for node in CLASSES} | {node.name for node in FUNCTIONS} | set(annotated)
    assert sorted(names - ALIASES) == sorted(
        [*native.__all__, *chunks.__all__, *constants.__all__, *local.__all__, *rows.__all__]
    ), "each has one home"


@pytest.mark.parametrize("node", FUNCTIONS, ids=[node.name for node in FUNCTIONS])
def test_functions(node: ast.FunctionDef) -> None:
    assert real_parameters(named(node.name)) == parameters(node)


@pytest.mark.parametrize("node", CLASSES, ids=[node.name for node in CLASSES])
def test_classes(node: ast.ClassDef) -> None:
    cls = named(node.name)
    functions = {function.name: function for function in node.body if isinstance(function, ast.FunctionDef)}
    properties = {name for name, function in functions.items() if is_property(function)}
    methods = {name: functions[name] for name in functions.keys() - properties}
    fields = properties | {
        field.target.id
        for field in node.body
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
    }
    assert not any(callable(getattr(cls, name)) for name in properties)
    for name, method in methods.items():
        assert real_parameters(cls if name == "__init__" else getattr(cls, name)) == parameters(method), name
    if not issubclass(cls, Exception):  # these get their fields when they are raised
        assert {name for name in vars(cls) if not name.startswith("_")} == (set(methods) - {"__init__"}) | fields
