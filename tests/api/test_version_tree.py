"""The upper part of a version's tree."""

from __future__ import annotations

from pathlib import Path

import pytest

from cowfs.blocking import IndexFile, ROVolume, Volume
from cowfs.errors import InvalidInputError
from cowfs.index import Index
from tests.api.conftest import place

__all__ = ["place"]


@pytest.fixture
def version(place: Path) -> ROVolume:
    volume = Volume.open("v", create=True)
    volume.files.mkdir("a/deep/deeper", parents=True)
    volume.files.mkdir("b")
    for number in range(20):
        volume.files.write(f"b/{number:02}", b"x" * number)
    volume.files.write("a/deep/deeper/file", b"x")
    volume.files.symlink("c", "b/00")
    return volume.commit()


def test_levels_and_directories_share_the_limit(version: ROVolume) -> None:
    whole = version.tree(depth=9)
    assert [each.path for each in whole.entries[:5]] == ["/a", "/a/deep", "/a/deep/deeper", "/a/deep/deeper/file", "/b"]
    assert (len(whole.entries), whole.cut) == (26, frozenset())
    assert [each.path for each in whole.entries] == [each.path for each in version.files.ls(recursive=True)]
    assert str(version.tree(limit=7)) == (
        "/\n├── a/\n│   └── deep/\n├── b/\n│   ├── 00  0 B\n│   ├── 01  1 B\n│   ├── 02  2 B\n│   └── …\n└── c -> b/00"
    )
    assert str(version.tree(depth=1)) == "/\n├── a/\n├── b/\n└── c -> b/00"
    assert str(version.tree(limit=2)) == "/\n├── a/\n│   └── …\n├── b/\n│   └── …\n└── …"
    assert str(version.tree(limit=0)) == "/\n└── …"
    assert str(version.tree("b", limit=1)) == "/b\n├── 00  0 B\n└── …"


def test_paths_are_those_of_the_folder(version: ROVolume, tmp_path: Path) -> None:
    folder = Volume.from_locator(f"{version.locator}/a")
    assert str(folder.tree()) == "/\n└── deep/\n    └── deeper/"
    assert str(folder.tree("deep")) == "/deep\n└── deeper/\n    └── file  1 B"
    assert [each.path for each in version.tree("c").entries] == ["/c"]
    with pytest.raises(FileNotFoundError):
        version.tree("missing")
    with pytest.raises(InvalidInputError):
        version.tree(depth=0)
    version.export_index(tmp_path / "index")
    with IndexFile(tmp_path / "index") as file:
        assert str(file.tree(limit=7)) == str(version.tree(limit=7))


def test_no_directory_is_read_that_is_not_shown(version: ROVolume, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    before = Index._directory_page

    def count(self: Index, *given: object) -> object:
        read.append(1)
        return before(self, *given)  # type: ignore[arg-type]

    monkeypatch.setattr(Index, "_directory_page", count)
    for depth, limit, wanted in ((1, 200, 1), (2, 200, 3), (3, 200, 4), (2, 2, 1), (2, 0, 0), (9, 4, 2)):
        read.clear()
        version.tree(depth=depth, limit=limit)
        assert len(read) == wanted, (depth, limit)
