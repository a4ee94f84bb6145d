"""A store of the test's own."""

from __future__ import annotations

from tests.maintain.fixtures import store

__all__ = ["store"]
