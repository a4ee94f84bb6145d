"""The formulas that speak of sizes nobody has measured, against volumes that can be."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import scale
from cowfs.base.ids import VersionId
from cowfs.blocking import Volume
from cowfs.store import open_store
from cowfs.version.history import open_version
from tests.api.conftest import place

__all__ = ["place"]

PAGE = Path(__file__).parents[2] / "docs/benchmarks/scale.md"


@pytest.mark.parametrize("count", [2_000, 8_000])
def test_index_and_manifest_are_as_large_as_the_formulas_say(place: Path, count: int) -> None:
    for number in range(count):
        directory = place / f"tree/d{number // 500}"
        directory.mkdir(parents=True, exist_ok=True)
        (directory / f"file-{number:07}").write_bytes(b"%d" % number)
    Volume.new("data").files.upload(place / "tree")
    predicted = scale.Volume(count, 10, name_bytes=12)
    found = open_version(open_store((place / "store").as_uri()), VersionId.from_hex(Volume.version("data").id))
    section = found.index
    stored = sum(path.stat().st_size for path in (place / "store/packs").glob("*/*")) - found.stats.added_bytes
    assert section.pages == pytest.approx(predicted.pages, rel=0.1, abs=8)
    assert len(section.segments) == predicted.segments
    assert sum(each.chunks for each in section.catalogues) == predicted.chunks
    [manifest] = (place / "store/versions").glob("*/*")
    assert manifest.stat().st_size == pytest.approx(predicted.manifest_bytes, rel=0.3)
    directory_bytes = 64 * count  # of the data packs
    expected = predicted.stored_index_bytes + predicted.stored_catalogue_bytes + directory_bytes
    assert stored == pytest.approx(expected, rel=0.3)


def test_the_page_is_what_the_formulas_give() -> None:
    assert PAGE.read_text(encoding="utf-8") == scale.page(), "python -m benchmarks.scale > docs/benchmarks/scale.md"
