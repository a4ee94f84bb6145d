"""The pages in docs/format: every example on them is real, and every golden object is shown."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from cowfs.format import canonical, keys
from cowfs.format.locator import Locator
from cowfs.format.manifest import version_id
from tests.format.samples import GOLDEN, SAMPLES

pytestmark = pytest.mark.quick

PAGES = Path(__file__).parents[2] / "docs" / "format"
EXAMPLE = re.compile(r"^```(\w+)(?: golden=(\S+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
OWN_PAGES = (
    "README",
    "store",
    "packs",
    "manifest",
    "blocklist",
    "catalogue",
    "refs",
    "moved",
    "purged",
    "locator",
    "sealing",
    "keys",
)
EXAMPLES = [
    pytest.param(kind, golden, text, id=f"{page}-{golden or kind}")
    for page in OWN_PAGES
    for kind, golden, text in EXAMPLE.findall((PAGES / f"{page}.md").read_text())
]


def from_hex(text: str) -> bytes:
    """Hex bytes to the left of `|`, a comment to the right."""
    return bytes.fromhex(" ".join(line.partition("|")[0] for line in text.splitlines()))


@pytest.mark.parametrize(("kind", "golden", "text"), [e for e in EXAMPLES if e.values[1]])
def test_examples_are_the_golden_objects(kind: str, golden: str, text: str) -> None:
    data = from_hex(text) if kind == "hex" else canonical.encode(json.loads(text))
    assert data == (GOLDEN / golden).read_bytes()


def test_every_format_is_shown() -> None:
    shown = {example.values[1] for example in EXAMPLES}
    # An index pack differs from a data pack in its kinds only, a sealed manifest from a sealed
    # record in its place.
    assert {sample.file for sample in SAMPLES} - shown == {"index.pack", "sealed-manifest.bin", "padded-manifest.bin"}


@pytest.mark.parametrize(("kind", "golden", "text"), [e for e in EXAMPLES if e.values[0] == "locator"])
def test_locators_mean_what_the_page_says(kind: str, golden: str, text: str) -> None:
    examples = [block.splitlines() for block in text.split("\n\n")]
    assert len(examples) == 2
    for line, *parts in examples:
        locator, inside = Locator.parse_with_path(line)
        assert locator.with_path(inside) == line
        store = locator.store
        for part in parts:
            name, _, value = part.partition(" ")
            found = {
                "protocol": store.protocol,
                "authority": store.authority,
                "endpoint": store.endpoint,
                "region": store.region,
                "path": store.path,
                "volume": locator.volume,
                "version": locator.version.hex(),
                "inside": inside.decode(),
            }[name]
            assert found == value.strip()


@pytest.mark.parametrize(("kind", "golden", "text"), [e for e in EXAMPLES if e.values[0] == "keys"])
def test_keys_are_those_of_the_code(kind: str, golden: str, text: str) -> None:
    for line in text.splitlines():
        key, what, number = line.split()
        assert key == {"head": keys.head, "lease": keys.lease}[what]("my-dataset", int(number))


def test_the_version_id_on_the_page_is_the_examples() -> None:
    shown = re.search(r"id of this version is `([0-9a-f]{64})`", (PAGES / "manifest.md").read_text())
    assert shown is not None
    assert shown[1] == version_id((GOLDEN / "manifest.json").read_bytes()).hex()


@pytest.mark.parametrize("page", OWN_PAGES)
def test_links_lead_somewhere(page: str) -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", (PAGES / f"{page}.md").read_text()):
        assert (PAGES / target).exists(), f"{page}.md links to {target}"
