"""The error of a system that cannot be measured on this machine."""

from __future__ import annotations


class LeftOut(Exception):
    """No program, no right, or no kernel support for it here. The page says why; the run goes on."""
