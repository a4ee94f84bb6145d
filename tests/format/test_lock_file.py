"""Lock files: one text for one lock, and nothing else is taken for one."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cowfs.base.ids import VersionId
from cowfs.errors import CowfsError, InvalidInputError, UnsupportedFormatError
from cowfs.format import lock_file
from cowfs.format.locator import Locator
from cowfs.format.lock_file import LockedVolume, LockFile
from cowfs.format.store_url import StoreUrl
from tests.format.samples import GOLDEN

pytestmark = pytest.mark.quick

PAGE = Path(__file__).parents[2] / "docs" / "format" / "lock-file.md"
VERSION = VersionId(bytes(range(32)))
DIGITS = Locator(StoreUrl.parse("s3://bucket;region=eu-central-1/team"), "digits", VersionId(bytes(32)))
CONTENT = "content-1:" + "0f" * 32
LOCK = LockFile(
    "digits-3fa9c1d2",
    (
        LockedVolume("digits", "main", DIGITS, CONTENT),
        LockedVolume("sd15@v1", None, Locator(StoreUrl.parse("file:///srv/models"), "sd15", VERSION), CONTENT, False),
    ),
)

texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
lines = st.builds(LockedVolume, texts, st.none() | texts, st.just(DIGITS), st.just(CONTENT), is_tagged=st.booleans())
locks = st.builds(LockFile, st.just("project-1"), st.lists(lines, max_size=5).map(tuple))


@given(locks)
def test_a_lock_comes_back_and_order_does_not_count(lock: LockFile) -> None:
    data = lock.encode()
    found = lock_file.decode(data, what="lock")
    assert (found.project, set(found.volumes)) == (lock.project, set(lock.volumes))
    assert LockFile(lock.project, lock.volumes[::-1]).encode() == data
    assert data.count(b"\n") == 5 + len(set(lock.volumes))


def test_the_page_and_the_golden_file_show_what_is_written() -> None:
    (example,) = re.findall(r"```toml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert example.encode() == LOCK.encode() == (GOLDEN / "lock.toml").read_bytes()
    assert lock_file.decode(LOCK.encode(), what="lock") == LOCK


def test_lines_in_any_order_and_unknown_keys_are_read() -> None:
    text = LOCK.encode().decode().splitlines()
    text[4:6] = text[5:3:-1]
    text[4] = text[4].replace("{", "{size = 3, ")
    assert set(lock_file.decode("\n".join(text).encode(), what="lock").volumes) == set(LOCK.volumes)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("format = 1\n", ""),
        ("format = 1", 'format = "1"'),
        ("format = 1", "format = true"),
        ("format = 1", "format = 0"),
        ('project = "digits-3fa9c1d2"', 'project = "a.b"'),
        ('project = "digits-3fa9c1d2"', f'project = "{"x" * 65}"'),
        ('name = "digits"', "name = 1"),
        ('name = "digits", ', ""),
        ('store = "main"', "store = 1"),
        ("tagged = false", 'tagged = "no"'),
        ("content-1:", "content:"),
        ("/-/sd15@", "/-/sd15@0"),
        ("file:///srv/models", "file://name:hunter2@srv/models"),
        ("volumes = [", "volumes = [1,"),
        ("volumes = [", "<<<<<<< HEAD\nvolumes = ["),
        ("volumes = [", "volumes = " + "[" * 5000),
        ("digits", "\udc80"),
    ],
)
def test_anything_else_is_refused(old: str, new: str) -> None:
    data = LOCK.encode().decode().replace(old, new, 1).encode(errors="surrogateescape")
    assert data != LOCK.encode()
    with pytest.raises(InvalidInputError, match=r"the lock.* is not a lock file: ") as raised:
        lock_file.decode(data, what="the lock")
    assert "hunter2" not in str(raised.value)


def test_a_later_format_is_named() -> None:
    with pytest.raises(UnsupportedFormatError, match="format 2"):
        lock_file.decode(b"format = 2\n", what="lock")


@given(st.binary(max_size=200) | st.text(max_size=200).map(lambda text: text.encode(errors="replace")))
def test_any_bytes_are_a_lock_or_an_error_of_ours(data: bytes) -> None:
    with contextlib.suppress(CowfsError):
        lock_file.decode(b"format = 1\nproject = 'p'\nvolumes = [" + data, what="lock")
