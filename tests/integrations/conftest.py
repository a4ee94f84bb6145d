"""A machine of its own for each test, and cowfs known to fsspec also where its entry points are not
installed."""

from __future__ import annotations

import fsspec
import pytest
from upath.registry import register_implementation

from cowfs.integrations.fsspec import CowfsFileSystem
from cowfs.integrations.upath import CowfsPath
from tests.api.conftest import place

__all__ = ["place"]


@pytest.fixture(autouse=True)
def known() -> None:
    for protocol in CowfsFileSystem.protocol:
        fsspec.register_implementation(protocol, CowfsFileSystem, clobber=True)
        register_implementation(protocol, CowfsPath, clobber=True)
    CowfsFileSystem.clear_instance_cache()
