"""The reference says what the code does."""

from __future__ import annotations

import re

import pytest

from tests.docs import reference

pytestmark = pytest.mark.quick


@pytest.mark.parametrize("file", sorted(reference.FILES))
def test_generated_pages_are_current(file: str) -> None:
    text = (reference.PLACE / file).read_text()
    assert text == reference.FILES[file](), "run: python -m tests.docs.reference"


def test_every_setting_is_described() -> None:
    described = set(re.findall(r"\bCOWFS_[A-Z_]+\b", (reference.PLACE / "settings.md").read_text()))
    assert described == reference.variables()
