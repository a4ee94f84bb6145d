"""The conformance suites run on machines like those of the system tests."""

from tests.system.conftest import machine, machines

__all__ = ["machine", "machines"]
