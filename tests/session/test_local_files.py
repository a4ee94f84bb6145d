"""Directories of this machine: what a link may lead to, and which small files are taken as they
are."""

from __future__ import annotations

import errno
import os
from contextlib import closing
from pathlib import Path

import pytest

from cowfs.base import clock
from cowfs.format.codec import Codec, compress, hash_of
from cowfs.native.local import open_beneath
from cowfs.transfer.local_files import LocalFiles

TICK_S = 0.05  # twice of what the kernel's clock needs to tell a change


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "text").write_bytes(b"many words " * 100)
    (tmp_path / "a" / "noise").write_bytes(os.urandom(1000))
    (tmp_path / "a" / "empty").touch()
    (tmp_path / "a" / "link").symlink_to("text")
    (tmp_path / "out").symlink_to("a")
    os.mkfifo(tmp_path / "a" / "pipe")
    with open(tmp_path / "a" / "sparse", "wb") as sparse:
        sparse.truncate(50_000)
    clock.sleep_s(TICK_S)
    return tmp_path


def test_small_files_are_what_python_would_store(tree: Path) -> None:
    names = [b"empty", b"link", b"missing", b"noise", b"pipe", b"sparse", b"text"]
    with LocalFiles(os.fsencode(tree)) as local:
        found = dict(zip(names, local.read_small(b"a", names, 60_000, None, True), strict=True))
        assert [name for name in names if found[name] is None] == [b"link", b"missing", b"pipe", b"sparse"]
        for name, codec in ((b"empty", Codec.RAW), (b"noise", Codec.RAW), (b"text", Codec.ZSTD)):
            small, raw = found[name], (tree / "a" / os.fsdecode(name)).read_bytes()
            assert small is not None
            stamp, blob = small
            assert (blob.name, blob.codec) == (hash_of(raw), codec)
            assert blob.stored == (compress(raw)[1] if raw else b"")
            with closing(local.open_file(b"a/" + name)) as opened:
                assert stamp == opened.stamp()
        assert local.read_small(b"a", [b"text"], 1099, None, True) == [None], "it is larger"


def test_a_file_that_was_just_written_is_looked_at_closer(tree: Path) -> None:
    with LocalFiles(os.fsencode(tree)) as local:
        os.utime(tree / "a" / "text")
        assert local.read_small(b"a", [b"text"], 60_000, None, True) == [None]


@pytest.mark.parametrize(
    ("path", "code"),
    [
        (b"out", {errno.ENOTDIR, errno.ELOOP}),
        (b"out/b", {errno.ENOTDIR, errno.ELOOP}),
        (b"a/..", {errno.EXDEV, 0}),
        (b"../x", {errno.EXDEV}),
        (b"a/text", {errno.ENOTDIR}),
        (b"a/missing", {errno.ENOENT}),
    ],
)
def test_a_directory_is_opened_beneath_the_root_and_behind_no_link(tree: Path, path: bytes, code: set[int]) -> None:
    root = os.open(tree, os.O_RDONLY)
    try:
        os.close(open_beneath(root, path, os.O_RDONLY | os.O_DIRECTORY))
        found = 0
    except OSError as error:
        found = error.errno or 0
    finally:
        os.close(root)
    assert found in code
