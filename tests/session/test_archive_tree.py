"""What an archive becomes: what GNU tar and unzip would unpack, from one pass over its bytes."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import random
import struct
import tarfile
import time
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import zstandard

from cowfs.errors import InvalidInputError
from cowfs.store.origin.archive import Damaged, input, tar_archive
from tests.archives import Bytes, on_disk, opened, plain, run, unpacked

Add = Callable[..., object]


def tar_of(fill: Callable[[Add], object], **options: Any) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w", **options) as archive:

        def add(name: str, data: bytes = b"", **fields: Any) -> None:
            member = tarfile.TarInfo(name)
            member.size = len(data)
            for field, value in fields.items():
                setattr(member, field, value)
            archive.addfile(member, io.BytesIO(data))

        fill(add)
    return made.getvalue()


def zip_of(*entries: tuple[zipfile.ZipInfo | str, bytes]) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for entry, data in entries:
            archive.writestr(entry, data)
    return made.getvalue()


@pytest.fixture
def source(tmp_path: Path) -> Path:
    root = tmp_path / "source"
    (root / "dir" / "none").mkdir(parents=True)
    (root / "empty").mkdir(mode=0o700)
    (root / "dir" / "é ü\n").write_bytes(b"name")
    (root / "dir" / ("n" * 250)).write_bytes(b"long")
    deep = root.joinpath(*(["d" * 60] * 5))
    deep.mkdir(parents=True)
    (deep / "deep").write_bytes(b"deep")
    (root / "big").write_bytes(random.Random(1).randbytes(5_000_000))
    os.chmod(root / "big", 0o750)
    os.utime(root / "big", ns=(0, 981_173_106_789_000_001))
    os.link(root / "big", root / "dir" / "same")
    (root / "link").symlink_to("dir/é ü\n")
    (root / "dangling").symlink_to("/nowhere")
    os.mkfifo(root / "pipe")
    with (root / "sparse").open("wb") as file:
        for offset in range(0, 4_000_000, 400_000):
            file.seek(offset)
            file.write(b"data")
        file.truncate(5_000_000)
    return root


# -- tar


@pytest.mark.parametrize(
    "options",
    [
        ("--format=gnu",),
        ("--format=posix",),
        ("--format=gnu", "--sparse"),
        ("--format=posix", "--sparse"),
        ("--format=posix", "--sparse", "--sparse-version=0.1"),
        ("--format=posix", "--sparse", "--sparse-version=0.0"),
        ("--gzip",),
        ("--bzip2",),
        ("--xz",),
        ("--zstd",),
        ("--lzma",),
    ],
    ids=" ".join,
)
def test_a_tar_is_what_tar_unpacks(source: Path, tmp_path: Path, options: tuple[str, ...]) -> None:
    run("tar", *options, "-C", source, "-cf", tmp_path / "a", ".")
    (tmp_path / "made").mkdir()
    run("tar", "-C", tmp_path / "made", "-xpf", tmp_path / "a")
    assert unpacked("tar", (tmp_path / "a").read_bytes()) == on_disk(tmp_path / "made")


def test_names_are_those_of_tar_and_the_later_of_two_members_counts() -> None:
    def fill(add: Add) -> None:
        add("/a", b"absolute")
        add("./b//c/./d", b"dots")
        add("twice", b"first")
        add("other", type=tarfile.LNKTYPE, linkname="twice")
        add("./twice", b"second")
        add("self", b"kept")
        add("self", type=tarfile.LNKTYPE, linkname="./self")
        add("turns", b"a file")
        add("turns", type=tarfile.DIRTYPE, mode=0o700)
        add("turns/in", b"in")
        add("turns", type=tarfile.DIRTYPE, mode=0o711)
        add("null", type=tarfile.CHRTYPE)

    found = unpacked("tar", tar_of(fill))
    assert plain(found) == {
        b"a": ("file", b"absolute"),
        b"b": ("directory", b""),
        b"b/c": ("directory", b""),
        b"b/c/d": ("file", b"dots"),
        b"twice": ("file", b"second"),
        b"other": ("file", b"first"),
        b"self": ("file", b"kept"),
        b"turns": ("directory", b""),
        b"turns/in": ("file", b"in"),
        b"null": ("device", b""),
    }
    assert found[b"turns"][1] == 0o711


@pytest.mark.parametrize(
    ("members", "said"),
    [
        ([("a/../../b", {})], "'a/../../b' has a path that no file can have"),
        ([("x" * 256, {})], "has a path that no file can have"),
        ([("l", {"type": tarfile.SYMTYPE, "linkname": "/etc"}), ("l/passwd", {})], "is below 'l'"),
        ([("f", {}), ("f/x", {})], "is below 'f'"),
        ([("d/x", {}), ("d", {})], "would replace a directory"),
        ([("later", {"type": tarfile.LNKTYPE, "linkname": "f"}), ("f", {})], "hard link to 'f'"),
        ([("out", {"type": tarfile.LNKTYPE, "linkname": "../f"})], "hard link to '../f'"),
        ([("l", {"type": tarfile.SYMTYPE, "linkname": ""})], "leads nowhere"),
        ([("m", {"type": b"M"})], "goes on from another archive"),
    ],
)
def test_what_a_tar_cannot_give_is_named(members: list[tuple[str, dict[str, Any]]], said: str) -> None:
    data = tar_of(lambda add: [add(name, **fields) for name, fields in members])
    with pytest.raises(InvalidInputError) as caught:
        unpacked("tar", data)
    assert said in caught.value.message
    assert "--exclude" in caught.value.hint


def three() -> bytes:
    return tar_of(lambda add: [add(name, name.encode() * 3000) for name in "abc"])


def test_a_damaged_header_and_a_cut_end_of_a_plain_tar_are_refused() -> None:
    whole = three()
    assert len(unpacked("tar", whole)) == 3
    second = 512 + 3072
    for offset in (*range(0, 257, 16), 300, 511):  # any byte of a header
        damaged = bytearray(whole)
        damaged[second + offset] ^= 0x10
        with pytest.raises(Damaged, match="header"):
            unpacked("tar", bytes(damaged))
    for length in range(600, 3 * (512 + 3072) + 1, 512):
        with pytest.raises(Damaged, match="cut"):
            unpacked("tar", whole[:length])
    for start, end in ((second, second + 512), (second, second + 1024)):
        with pytest.raises(Damaged):
            unpacked("tar", whole[:start] + bytes(end - start) + whole[end:])
    with pytest.raises(Damaged, match="follows its end mark"):
        unpacked("tar", whole + whole)


PACKED: list[tuple[str, Callable[[bytes], bytes]]] = [
    ("gzip", gzip.compress),
    ("bzip2", bz2.compress),
    ("xz", lzma.compress),
    ("zstd", lambda data: zstandard.ZstdCompressor(write_checksum=True).compress(data)),
]


@pytest.mark.parametrize(("name", "pack"), PACKED, ids=[name for name, _ in PACKED])
def test_streams_one_behind_the_other_and_padding_are_read_and_nothing_else_is(
    name: str, pack: Callable[[bytes], bytes]
) -> None:
    whole = three()
    right = unpacked("tar", whole)
    packed = pack(whole[:5000]) + bytes(1000) + pack(whole[5000:]) + bytes(512)
    assert unpacked("tar", packed) == right
    for cut in (pack(whole)[:-1], packed[:-513], packed + b"\0x", packed + pack(b"x"), pack(whole) + b"garbage"):
        with pytest.raises(Damaged):
            unpacked("tar", cut)


def test_frames_that_readers_of_zstd_skip_are_skipped() -> None:
    skipped = b"\x52*M\x18" + struct.pack("<L", 5) + b"index"
    packed = zstandard.ZstdCompressor().compress(three())
    assert unpacked("tar", skipped + packed + skipped) == unpacked("tar", three())


@pytest.mark.parametrize("data", [b"", b"<html>404</html>", b"x" * 5000])
def test_what_is_no_archive_is_called_so(data: bytes) -> None:
    for kind in ("tar", "zip"):
        with pytest.raises(InvalidInputError, match=f"is not a {kind} archive"):
            unpacked(kind, data)


def test_a_header_takes_no_more_memory_than_is_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tar_archive, "HEADER_BYTES", 1 << 20)
    data = tar_of(lambda add: [add(name) for name in ("a", "b" * (2 << 20))], format=tarfile.GNU_FORMAT)
    with pytest.raises(Damaged, match="a header has more than"):
        unpacked("tar", data)


# -- one pass


def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(input, "PIECE_BYTES", 64 << 10)


@pytest.mark.parametrize("kind", ["tar", "zip"])
def test_an_archive_is_read_once(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    small_pieces(monkeypatch)
    names = [f"{number:04}" for number in range(2000)]
    random.Random(5).shuffle(names)
    members = [(name, random.Random(name).randbytes(2000)) for name in names]
    data = zip_of(*members) if kind == "zip" else gzip.compress(tar_of(lambda add: [add(*each) for each in members]), 1)
    origin = Bytes(data)
    assert len(unpacked(kind, origin)) == 2000
    assert origin.read_bytes <= 1.1 * len(data) + 4 * input.PIECE_BYTES


def test_contents_that_nobody_takes_are_checked_as_well() -> None:
    whole = bytearray(zip_of(("a", random.Random(2).randbytes(100_000)), ("b", b"b")))
    whole[50_000] ^= 1
    archive = opened("zip", bytes(whole))
    with pytest.raises(Damaged):
        list(archive.members())
    archive.close()


# -- zip


def test_a_zip_counts_its_members_in_16_bits() -> None:
    """As some writers do that know no Zip64."""
    whole = zip_of(*((str(number), b"") for number in range(65_537)))
    at = whole.rindex(b"PK\6\6")
    _, _, size, start = struct.unpack_from("<4Q", whole, at + 24)
    archive = opened("zip", whole[:at] + struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 1, 1, size, start, 0))
    assert sum(1 for _ in archive.foresee()) == 65_537
    archive.close()


def test_a_zip_is_what_unzip_unpacks(source: Path, tmp_path: Path) -> None:
    (source / "pipe").unlink()
    (source / "dir" / "é ü\n").rename(source / "dir" / "é ü")  # unzip drops control characters
    run("zip", "-q", "-r", "-y", tmp_path / "a.zip", ".", cwd=source)
    (tmp_path / "made").mkdir()
    run("unzip", "-q", tmp_path / "a.zip", "-d", tmp_path / "made", LC_ALL="C.UTF-8")
    right = on_disk(tmp_path / "made")
    found = unpacked("zip", (tmp_path / "a.zip").read_bytes())
    assert plain(found) == plain(right)
    assert {path: each[1] for path, each in found.items() if each[0] != "link"} == {
        path: each[1] for path, each in right.items() if each[0] != "link"
    }
    assert {path: each[2] for path, each in found.items() if each[0] == "file"} == {
        path: each[2] for path, each in right.items() if each[0] == "file"
    }


def unicode_path(raw: bytes, name: str, *, wrong: int = 0) -> bytes:
    said = struct.pack("<BL", 1, zlib.crc32(raw) ^ wrong) + name.encode()
    return struct.pack("<HH", 0x7075, len(said)) + said


@pytest.mark.parametrize(
    ("raw", "flags", "extra", "name"),
    [
        (b"\x82.txt", 0, b"", "é.txt"),  # code page 437
        ("é.txt".encode(), 0, b"", "é.txt"),  # macOS: UTF-8 without the flag
        ("é.txt".encode(), 0x800, b"", "é.txt"),
        (b"?.txt", 0, unicode_path(b"?.txt", "é.txt"), "é.txt"),
        (b"?.txt", 0, unicode_path(b"?.txt", "é.txt", wrong=1), "?.txt"),
        (b"\x82.txt", 0, struct.pack("<HH", 0x9999, 2) + b"xx" + unicode_path(b"\x82.txt", "ü"), "ü"),
    ],
)
def test_a_name_of_a_zip_is_the_first_that_is_given(raw: bytes, flags: int, extra: bytes, name: str) -> None:
    entry = zipfile.ZipInfo("N" * len(raw))
    entry.extra = extra
    data = zip_of((entry, b"x")).replace(b"N" * len(raw), raw)
    if flags:
        at = data.index(b"PK\1\2") + 8
        for offset in (6, at):
            data = data[:offset] + struct.pack("<H", flags) + data[offset + 2 :]
    assert [*unpacked("zip", data)] == [name.encode()]


@pytest.mark.parametrize(
    ("system", "names"),
    [(0, [b"dir", b"dir/f"]), (11, [b"dir", b"dir/f"]), (3, [b"dir\\f"])],
    ids=["FAT", "NTFS", "Unix"],
)
def test_backslashes_separate_names_of_archives_made_on_windows(system: int, names: list[bytes]) -> None:
    entry = zipfile.ZipInfo("dir\\f")
    entry.create_system = system
    assert sorted(unpacked("zip", zip_of((entry, b"x")))) == names


@pytest.fixture
def in_new_york(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("in_new_york")
def test_times_of_a_zip_are_those_of_its_field_else_local() -> None:
    for month, shift_h in ((1, 5), (7, 4)):
        local = zipfile.ZipInfo("local", (2024, month, 3, 8, 30, 12))
        stamped = zipfile.ZipInfo("stamped", (2024, month, 3, 8, 30, 12))
        stamped.extra = struct.pack("<HHBl", 0x5455, 5, 1, 1_704_285_011)
        found = unpacked("zip", zip_of((local, b"x"), (stamped, b"x")))
        seconds = int(time.mktime((2024, month, 3, 8, 30, 12, 0, 0, -1)))
        assert found[b"local"][2] == seconds * 10**9
        assert time.gmtime(seconds).tm_hour == 8 + shift_h
        assert found[b"stamped"][2] == 1_704_285_011 * 10**9


def test_what_a_zip_says_that_is_not_so_is_damage() -> None:
    data = zip_of(("a", b"a" * 5000), ("b", b"b" * 5000), ("empty/", b""))
    assert plain(unpacked("zip", data))[b"empty"] == ("directory", b"")
    second = data.index(b"PK\1\2", data.index(b"PK\1\2") + 1)
    third = data.index(b"PK\1\2", second + 1)
    end = data.index(b"PK\5\6")

    def put(offset: int, form: str, value: int) -> bytes:
        return data[:offset] + struct.pack(form, value) + data[offset + struct.calcsize(form) :]

    for damaged in (
        put(end + 10, "<H", 2),  # entries, at the end
        put(second + 24, "<L", 4999),  # size
        put(second + 24, "<L", 5001),
        put(second + 42, "<L", 0),  # where it is
        put(second + 16, "<L", 1),  # CRC
        put(second + 20, "<L", 1 << 20),  # compressed size
        data[:second] + data[third:],
        data[: end + 8] + bytes(8) + data[end + 16 :],  # an empty directory
        data + b"\0",
        data[:-1],
        put(end + 20, "<H", 1),
    ):
        with pytest.raises(Damaged):
            unpacked("zip", damaged)


@pytest.mark.parametrize(
    ("change", "said"),
    [({"flag_bits": 1}, "is encrypted"), ({"compress_type": 93}, "method 93"), ({"compress_type": 9}, "method 9")],
)
def test_what_a_zip_holds_that_cannot_be_read_is_named_at_once(change: dict[str, int], said: str) -> None:
    data = bytearray(zip_of(("plain", b"x"), ("other", b"y" * 100)))
    at = data.index(b"PK\1\2", data.index(b"PK\1\2") + 1)
    offset, value = (8, change["flag_bits"]) if "flag_bits" in change else (10, change["compress_type"])
    struct.pack_into("<H", data, at + offset, value)
    archive = opened("zip", bytes(data))
    foreseen = [*archive.foresee()]
    archive.close()
    assert [member.fault for member in foreseen if member.path == b"plain"] == [""]
    assert [said in member.fault for member in foreseen if member.path == b"other"] == [True]
