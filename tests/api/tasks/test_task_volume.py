"""The notation SOURCE[:PATH][:MODE]."""

from __future__ import annotations

import pytest

import cowfs
from cowfs import TaskVolume
from cowfs.errors import InvalidInputError

pytestmark = pytest.mark.quick

LOCATOR = "cowfs+file:///srv/x/-/n@" + "0" * 64
ON_S3 = "cowfs+s3://b;endpoint=http%3A%2F%2F127.0.0.1%3A8333/p/-/n@" + "0" * 64


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("base", TaskVolume("base")),
        ("base:/data", TaskVolume("base", "/data")),
        ("base:/data:fork", TaskVolume("base", "/data", "fork")),
        ("base::fork", TaskVolume("base", None, "fork")),
        ("base:rw", TaskVolume("base", None, "rw")),
        ("base:~/d:shared", TaskVolume("base", "~/d", "shared")),
        ("base:../d", TaskVolume("base", "../d")),
        ("base@v1:/train:/data:ro", TaskVolume("base@v1:/train", "/data")),
        ("base@{2026-11-20T12:00}:/data", TaskVolume("base@{2026-11-20T12:00}", "/data")),
        ("near/base:/data:scratch", TaskVolume("near/base", "/data", "scratch")),
        (LOCATOR, TaskVolume(LOCATOR)),
        (f"{LOCATOR}:/data:fork", TaskVolume(LOCATOR, "/data", "fork")),
        (ON_S3, TaskVolume(ON_S3)),
        (f"{ON_S3}::scratch", TaskVolume(ON_S3, None, "scratch")),
    ],
)
def test_what_a_text_means(text: str, meant: TaskVolume) -> None:
    assert TaskVolume.parse(text) == meant


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "names no volume"),
        (":/data", "names no volume"),
        ("base:/data:forkk", "no mode 'forkk'"),
        ("base:/data:RW", "no mode 'RW'"),
        ("base:/data:", "no mode ''"),
        ("base@v1::rw", "names a version"),
        (f"{LOCATOR}::shared", "names a version"),
        ("https://example.com/x", "is a URL"),
    ],
)
def test_what_is_no_volume_of_a_task(text: str, said: str) -> None:
    with pytest.raises(InvalidInputError, match=said) as caught:
        TaskVolume.parse(text)
    assert caught.value.hint


def test_mistakes_show_where_the_function_is_decorated() -> None:
    for arguments in (
        {"volumes": ["base:/data:forkk"]},
        {"volumes": "base"},
        {"volumes": ["a:/data", "b:/data:fork"]},
        {"volumes": ["a:/data", "b:/data/"]},
        {"volumes": ["a:/data/b", "b:/data:rw"]},
        {"volumes": ["a:/data:rw", "a::rw"]},
        {"function": ["a"]},
        {"on_error": "publish"},
        {"on_stop": "abort"},
        {"returns": "path"},
        {"wait": "soon"},
    ):
        with pytest.raises(InvalidInputError) as caught:
            cowfs.task(**arguments)(lambda: None)
        assert caught.value.hint
    with pytest.raises(InvalidInputError, match="no fork to be named"):
        TaskVolume("a", fork_name="b")
    with pytest.raises(InvalidInputError, match="merges nothing"):
        TaskVolume("a", mode="fork", strategy="union")
    with pytest.raises(InvalidInputError, match="no way to resolve"):
        TaskVolume("a", mode="shared", strategy={"log": "unoin"})
    cowfs.task(volumes=["a:/data", "a:/data-2:rw"])


def test_a_generator_is_no_task() -> None:
    def items() -> object:
        yield 1

    with pytest.raises(InvalidInputError, match="cannot be a task"):
        cowfs.task(items)
