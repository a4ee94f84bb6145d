"""The reference says what the code does."""

from __future__ import annotations

import re

import pytest

from cowfs import blocking
from cowfs.api import asynchronous
from tests.docs import reference

pytestmark = pytest.mark.quick


def test_what_the_reference_lists_both_kinds_of_classes_have() -> None:
    sections = re.split(r"^## (.+)$", (reference.PLACE / "api.md").read_text(), flags=re.MULTILINE)
    listed = {
        name: re.findall(r"^### `(\w+)`$", text, re.MULTILINE)
        for name, text in zip(sections[1::2], sections[2::2], strict=True)
        if hasattr(asynchronous, name)
    }
    assert {"Store", "Volume", "RWVolume", "ROVolume", "ROFiles", "RWFiles"} == set(listed)
    for owner in (asynchronous, blocking):
        missing = [
            f"{name}.{each}" for name in listed for each in listed[name] if not hasattr(getattr(owner, name), each)
        ]
        assert missing == []


@pytest.mark.parametrize("file", sorted(reference.FILES))
def test_generated_pages_are_current(file: str) -> None:
    text = (reference.PLACE / file).read_text()
    assert text == reference.FILES[file](), "run: python -m tests.docs.reference"


def test_every_setting_is_described() -> None:
    described = set(re.findall(r"\bCOWFS_[A-Z_]+\b", (reference.PLACE / "settings.md").read_text()))
    assert described == reference.variables()
