"""Programs that use cowfs pay for what they use: the daemon's parts never load in them."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.quick


def loaded_by(statement: str) -> set[str]:
    code = f"{statement}\nimport sys, json; print(json.dumps(sorted(sys.modules)))"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout))


def test_import_cowfs_loads_next_to_nothing() -> None:
    ours = {name for name in loaded_by("import cowfs") if name.split(".")[0] == "cowfs"}
    assert ours == {"cowfs"}


def test_volumes_load_neither_engine_nor_server() -> None:
    loaded = loaded_by("from cowfs import Volume, RWVolume, ROVolume, Locator, errors, volume; import cowfs.blocking")
    assert not loaded & {
        "trio",
        "pyfuse3",
        "obstore",
        "s3fs",
        "fsspec",
        "apsw",
        "click",
        "pydantic",
        "yaml",
        "cryptography",
        "cowfs._native",
    }


def test_a_command_loads_neither_event_loops_nor_what_reads_packages() -> None:
    loaded = loaded_by("import cowfs.cli.main, cowfs.cli.volumes.ls, cowfs.api.stores")
    assert not loaded & {"asyncio", "anyio", "importlib.metadata", "obstore", "s3fs", "fsspec", "botocore", "trio"}


def test_a_store_without_a_key_is_opened_without_cryptography(tmp_path: Path) -> None:
    loaded = loaded_by(
        f"from cowfs.blocking import Store; store = Store({str(tmp_path)!r}); store.create('data'); store.volumes()"
    )
    assert not loaded & {"cryptography", "email", "hmac", "tomllib", "difflib"}
    ours = {f"versions.{name}" for name in ("merging", "restoring")}
    ours |= {f"upkeep.{name}" for name in ("collecting", "repairing", "verifying", "pruning", "pushing")}
    ours = {f"cowfs.api.{name}" for name in (*ours, "transfers.importing")}
    assert all(importlib.util.find_spec(name) for name in ours)
    assert not loaded & ours


def test_declarations_load_pydantic_when_they_are_used() -> None:
    assert "pydantic" in loaded_by("from cowfs.blocking import Declared")
    assert "pydantic" in loaded_by("from cowfs import Declared")


@pytest.mark.parametrize("first", ["pass", "import cowfs.api.volume", "from cowfs import Volume"])
def test_volume_can_be_called_whatever_was_imported_before(first: str) -> None:
    loaded_by(f"{first}\nfrom cowfs import volume\nassert volume('/mydata').name == 'mydata'")


def test_every_public_name_is_there() -> None:
    import cowfs
    from cowfs import blocking

    for module in (cowfs, blocking):
        for name in module.__all__:
            assert getattr(module, name) is not None
        with pytest.raises(AttributeError):
            _ = module.no_such_name
    assert set(cowfs.__all__) <= set(dir(cowfs))
