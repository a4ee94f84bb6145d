"""Each test that docs/threats.md names exists, and each party names one."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/threats.md").read_text()
NAMED = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)`")


def test_every_test_that_the_page_names_exists() -> None:
    missing = [
        f"{path}::{name}"
        for path, name in NAMED.findall(PAGE)
        if not (ROOT / path).exists() or f"def {name}(" not in (ROOT / path).read_text()
    ]
    assert missing == []


def test_every_party_has_what_holds_what_does_not_and_a_test() -> None:
    parties = PAGE.split("\n## ")[1:]
    assert len(parties) == 8
    for party in parties:
        assert "| holds |" in party
        assert "| does not hold |" in party
        assert NAMED.search(party), party.partition("\n")[0]
