"""What a newcomer types first, and what it says when it is not quite right."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

import cowfs
from cowfs.api.twins.one_type import twin_of
from cowfs.api.twins.twin import as_async
from cowfs.blocking import Locator, ROVolume, RWVolume, Store, Volume
from cowfs.errors import InvalidInputError, NotFoundError
from tests.api.conftest import place
from tests.docs.reference import CLASSES, _members

__all__ = ["place"]

NOWHERE = "file:///nowhere"
VERSION = ROVolume(Locator.parse(f"cowfs+{NOWHERE}/-/v@" + "0" * 64))
WRITER = Volume.open("x", store=NOWHERE)


def test_public_modules_are_there_without_an_import_of_their_own() -> None:
    program = "import cowfs; print(cowfs.storage.Local, cowfs.blocking.Volume, cowfs.errors.CowfsError, cowfs.mounts)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "Local" in done.stdout
    assert {"storage", "blocking"} <= set(dir(cowfs))


def test_python_m_cowfs_is_cowfs() -> None:
    for module in ("cowfs", "cowfs.cli"):
        done = subprocess.run([sys.executable, "-m", module, "--version"], capture_output=True, text=True, check=True)
        assert "cowfs" in done.stdout


def test_a_volume_is_not_made_by_its_class() -> None:
    with pytest.raises(TypeError, match=r"Volume\.open\(NAME\)"):
        Volume("a")
    with pytest.raises(TypeError, match=r"Volume\.open\(NAME\)"):
        cowfs.Volume("a")


def test_texts_and_bytes(place: Path) -> None:
    files = Volume.new("texts").files
    files.write_text("/a", "Grüße\n")
    assert files.read("/a") == "Grüße\n".encode()
    assert files.read_text("/a") == "Grüße\n"
    files.write_text("/b", "ü", encoding="latin-1")
    assert files.read_text("/b", "latin-1") == "ü"
    with pytest.raises(UnicodeDecodeError):
        files.read_text("/b")
    assert files.read_text("/b", errors="replace") == "\ufffd"
    for write in (files.write, files.append):
        with pytest.raises(TypeError, match=r"write_text\(\)"):
            write("/a", "text")  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="int"):
            write("/a", 5)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="bytes is no text"):
        files.write_text("/a", b"x")  # type: ignore[arg-type]
    assert files.read_text("/a") == "Grüße\n"


@pytest.mark.parametrize("given", [Volume, Store(NOWHERE), VERSION, VERSION.files, WRITER, WRITER.files], ids=repr)
def test_completion_shows_documented_names_only(given: Any) -> None:
    """In both kinds, of the class and of an object."""
    kind = given if isinstance(given, type) else type(given)
    documented = {title.strip("`") for each in kind.__mro__ if each in CLASSES for title, _ in _members(each)}
    twin = twin_of(kind)
    for each in (kind, given, twin, twin if given is kind else as_async(given)):
        assert {name for name in dir(each) if not name.startswith("_")} == documented


def test_changes_of_an_async_store_are_awaited(place: Path) -> None:
    async def main() -> bytes:
        volume = await cowfs.Volume.open("changed", create=True)
        changes = await cowfs.Store().changes("changed")
        changes.add([b"file"], lambda files: files.write("/file", b"new"))
        await changes.publish("by a change")
        return await volume.files.read("/file")

    assert anyio.run(main) == b"new"


@pytest.mark.parametrize("mode", ["w", "w+", "x", "a", "wt"])
def test_text_is_written_as_open_writes_it(place: Path, mode: Any) -> None:
    files = Volume.new("texts").files
    given: dict[str, dict[str, Any]] = {
        "plain": {},
        "latin": {"encoding": "latin-1"},
        "bom": {"encoding": "utf-16"},
        "dos": {"newline": "\r\n"},
        "lossy": {"encoding": "ascii", "errors": "replace"},
    }
    for name, options in given.items():
        for opened in (
            files.open(name, mode, **options),
            open(place / name, mode, **{"encoding": "utf-8", **options}),  # noqa: SIM115
        ):
            with opened as file:
                assert file.write("Grüße\n") == 6
                print("zwei", 2, file=file)
                assert file.mode == mode
        assert files.read(name) == (place / name).read_bytes()
        found = options.get("encoding", "utf-8")
        with files.open(name, "r", encoding=found) as file, open(place / name, encoding=found) as local:
            assert list(file) == list(local)
    assert files.read_text("plain") == "Grüße\nzwei 2\n"


def test_text_modes_follow_each_other(place: Path) -> None:
    files = Volume.new("texts").files
    with files.open("log", "a") as file:
        file.write("one\n")
    with files.open("log", "a") as file:
        file.write("two\n")
    with files.open("log", "r+") as file:
        assert file.readline() == "one\n"
        file.seek(0)
        file.write("ONE")
    with pytest.raises(FileExistsError):
        files.open("log", "x")
    with files.open("log") as file:  # binary, as ever
        assert file.read() == b"ONE\ntwo\n"
    unclosed = files.open("log", "w")
    unclosed.write("x" * 10)
    unclosed.flush()
    assert files.read("log") == b"x" * 10


@pytest.mark.parametrize(
    ("mode", "options"),
    [
        ("wb", {"encoding": "utf-8"}),
        ("wb", {"newline": ""}),
        ("w", {"encoding": "no-such"}),
        ("w", {"errors": "no-such"}),
        ("w", {"newline": "\t"}),
        ("w", {"encoding": 5}),
    ],
)
def test_wrong_arguments_of_text_are_refused_before_a_file_is_emptied(place: Path, mode: str, options: Any) -> None:
    files = Volume.new("texts").files
    files.write("/kept", b"kept")
    with pytest.raises(InvalidInputError) as caught:
        files.open("/kept", mode, **options)
    assert caught.value.hint
    assert files.read("/kept") == b"kept"


def test_async_files_of_text(place: Path) -> None:
    async def main() -> list[str]:
        files = cowfs.Volume.new("texts").files
        async with await files.open("log", "w") as file:
            await file.write("ä\nb\n")
        async with await files.open("log", "r") as text:
            return [line async for line in text]

    assert anyio.run(main) == ["ä\n", "b\n"]


def test_versions_are_given_by_name(place: Path) -> None:
    def committed(volume: RWVolume, name: str) -> ROVolume:
        volume.files.write(name, name.encode())
        return volume.finalize(name)

    base = committed(Volume.new("base"), "a")
    committed(base.fork("one"), "b")
    two = committed(base.fork("two"), "c")
    two.tag("done")
    three = committed(base.fork("three"), "d")
    base_again = Volume.open("base")
    assert base_again.merge("one").merged_locators == [Volume.version("one").locator]
    assert len(base_again.merge(["two@done", three.locator]).merged_locators) == 2
    assert not Store().merge("base", ["one", two, f"three@{three.id[:8]}"]).is_new
    merged = Volume.version("base")
    assert [each.path for each in merged.files.ls()] == ["/a", "/b", "/c", "/d"]
    assert [each.path for each in merged.diff("base@{1}")] == [each.path for each in merged.diff(merged.history()[1])]
    assert [each.path for each in base_again.diff("one")] == ["/c", "/d"]
    assert Store().rollback("base", "one").is_new
    assert [each.path for each in Volume.version("base").files.ls()] == ["/a", "/b"]
    Store().restore("base", "two@done:c")
    assert Volume.version("base").files.read("c") == b"c"
    with pytest.raises(NotFoundError):
        base_again.merge("nosuch")
    with pytest.raises(InvalidInputError, match="5 is no version"):
        base_again.merge([5])  # type: ignore[list-item]

    async def main() -> bool:
        report = await cowfs.Volume.open("base").merge(["one", two, as_async(three)])
        return report.is_new

    assert anyio.run(main) is False
