"""A store of the test's own, and what makes it give up soon."""

from __future__ import annotations

from tests.maintain.fixtures import impatient, store

__all__ = ["impatient", "store"]
