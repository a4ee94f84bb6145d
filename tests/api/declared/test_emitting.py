"""What is emitted does what the declaration says: the script is run, the others are read again."""

from __future__ import annotations

import configparser
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from cowfs import storage
from cowfs.api.declared import loading
from cowfs.blocking import Declared, DeclaredVolume, Store, Volume
from cowfs.errors import InvalidInputError
from cowfs.machine import registry

BUCKET = """
volumes:
  - {name: "data-{node_rank}", path: /data, store: main, subpath: a b}
  - {name: [one, two], path: /work, store: main, read_only: false, optional: true, size: 1G}
stores:
  main:
    {preset: r2, account_id: a1, bucket: data, access_key: {env: R2_KEY}, secret_key: {env: R2_SECRET}}
"""


def declared(text: str = BUCKET) -> Declared:
    return loading.parsed(text.encode(), Path("/project/a.cowfs.yml"), Declared)


@pytest.fixture(autouse=True)
def rank(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NODE_RANK", "3")


@pytest.mark.quick
def test_a_script_has_the_declaration_and_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("R2_SECRET", "hunter2-and-more")
    script = declared().emit("sh")
    again = declared(script.partition("<<'END OF THE DECLARATION'\n")[2].partition("END OF THE DECLARATION")[0])
    assert (again.volumes, again.stores) == (declared().volumes, declared().stores)
    assert "hunter2" not in script
    with pytest.raises(InvalidInputError, match="a file cannot have"):
        Declared(
            stores={"main": storage.S3("b", access_key="a", secret_key="hunter2-and-more")},
            volumes=[DeclaredVolume(name="a", path="/a", store="main")],
        ).emit("sh")


@pytest.mark.quick
def test_a_service_runs_up_and_down(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COWFS_STATE_DIR", '/st "a" 5%')
    unit = configparser.ConfigParser(interpolation=None, strict=False)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read_string(declared().emit("systemd"))
    service = unit["Service"]
    assert shlex.split(service["ExecStart"])[-2:] == ["up", "/project/a.cowfs.yml"]
    assert shlex.split(service["ExecStop"])[-2:] == ["down", "/project/a.cowfs.yml"]
    assert 'Environment="COWFS_STATE_DIR=/st \\"a\\" 5%%"' in declared().emit("systemd")
    assert "Named here: R2_KEY, R2_SECRET." in declared().emit("systemd")
    monkeypatch.setenv("RUN_NAME", "a")
    text = declared(BUCKET.replace("{node_rank}", "{env.RUN_NAME}")).emit("systemd")
    assert "Named here: R2_KEY, R2_SECRET, RUN_NAME." in text


@pytest.mark.quick
def test_a_manifest_holds_the_same_declaration() -> None:
    config, pod = yaml.safe_load_all(declared().emit("k8s"))
    again = declared(config["data"]["declared.cowfs.yml"])
    assert (again.volumes, again.stores) == (declared().volumes, declared().stores)
    assert again.volumes[0].name == ("data-{node_rank}",), "filled in where it runs"
    sidecar = pod["spec"]["initContainers"][0]
    assert [each["name"] for each in sidecar["env"]][-2:] == ["R2_KEY", "R2_SECRET"]
    names = {each["name"] for each in pod["spec"]["volumes"]}
    mounts = [each for container in (sidecar, *pod["spec"]["containers"]) for each in container["volumeMounts"]]
    assert {each["name"] for each in mounts} == names
    done = subprocess.run(["sh", "-n", "-c", sidecar["command"][2]], check=False)
    assert done.returncode == 0
    for text, said in (
        (BUCKET.replace("{env: R2_KEY}", "{file: k}"), "cannot be used in a Pod"),
        ("volumes: [{name: a, path: /a, store: main}]\nstores: {main: ./s}", "cannot reach it"),
    ):
        with pytest.raises(InvalidInputError, match=said):
            declared(text).emit("k8s")


@pytest.mark.quick
def test_what_no_volume_uses_is_left_out() -> None:
    spare = "  spare: {url: ./s}\n  other: {preset: s3, bucket: b, region: r, access_key: {env: SPARE}, secret_key: {file: k}}\n"
    for kind in ("sh", "systemd", "k8s"):
        assert declared(BUCKET + spare).emit(kind) == declared().emit(kind)


@pytest.mark.quick
def test_a_pod_mounts_where_its_task_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    config, pod = yaml.safe_load_all(declared(BUCKET.replace("path: /data", "path: ~/data")).emit("k8s"))
    monkeypatch.setenv("HOME", "/root")  # where it runs
    paths = [each.mount_path for each in declared(config["data"]["declared.cowfs.yml"]).volumes]
    assert paths == ["/home/me/data", "/work"]
    assert [each["mountPath"] for each in pod["spec"]["containers"][0]["volumeMounts"]] == paths


@pytest.mark.quick
def test_a_manifest_says_what_is_filled_in_where_it_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUN_NAME", "a")
    text = declared(BUCKET.replace("{node_rank}", "{env.RUN_NAME}-{user}")).emit("k8s")
    assert text.startswith("# The container cowfs fills in {env.RUN_NAME} {user} where it runs")
    assert "{env.RUN_NAME}-{user}" in text
    assert not declared(BUCKET.replace("{node_rank}", "0")).emit("k8s").startswith("#")


@pytest.mark.quick
def test_a_pod_has_paths_of_its_machine() -> None:
    text = BUCKET.replace("volumes:\n", "volumes:\n  - {name: /mnt/shared, path: /shared, read_only: false}\n", 1)
    config, pod = yaml.safe_load_all(declared(text).emit("k8s"))
    assert config == next(yaml.safe_load_all(declared().emit("k8s"))), "the sidecar has nothing to do with them"
    assert {"name": "host-0", "hostPath": {"path": "/mnt/shared"}} in pod["spec"]["volumes"]
    assert {"name": "host-0", "mountPath": "/shared"} in pod["spec"]["containers"][0]["volumeMounts"]
    with pytest.raises(InvalidInputError, match="cannot choose"):
        declared(text.replace("name: /mnt/shared", "name: [/mnt/shared, other]")).emit("k8s")


@pytest.mark.mount
def test_the_script_mounts_what_is_declared(place: Path) -> None:
    store = place / "a store"
    Volume.new("data", store=store, strict=True).commit("made")
    (place / "bin").mkdir()
    program = place / "bin" / "cowfs"
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m cowfs.cli "$@"\n')
    program.chmod(0o755)
    file = place / "cowfs.toml"
    file.write_text(
        f"""volumes = [
        {{name = ["none", "data"], path = "{place}/mnt/a b", store = "main"}},
        {{name = "none", path = "{place}/mnt/none", store = "main", optional = true}},
        {{name = "work", path = "{place}/mnt/new/er/work", store = "main", read_only = false, size = "1MiB"}},
        {{name = "{place}/a store", path = "{place}/mnt/host", read_only = false}},
        ]
        stores = {{main = "a store"}}"""
    )
    environment = {
        **os.environ,
        "PATH": f"{place / 'bin'}:{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path)),
    }
    script = Declared.load(file).emit("sh")
    (place / "mnt" / "host").mkdir()  # empty, as `up` takes it
    (place / "elsewhere").mkdir()
    done = subprocess.run(
        ["sh", "-s", place / "elsewhere" / "written.cowfs.yml"],
        input=script,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = {os.path.basename(entry.mount_path): (entry.volume, entry.read_only) for entry in registry.list_mounts()}
    assert found == {"a b": ("data", True), "work": ("work", False)}
    assert os.readlink(place / "mnt" / "host") == str(store)
    assert Store(store).quota("work") == 1 << 20
