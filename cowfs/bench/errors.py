"""What can go wrong in a benchmark besides what goes wrong in cowfs itself."""

from __future__ import annotations


class LeftOut(Exception):
    """A system cannot take part here (no program, no right, no kernel support). The report says why; the run goes on."""


class WorkloadFailed(Exception):
    """A system took part and failed: an error, no answer in time, or a wrong result. The run goes on, and fails at its end."""
