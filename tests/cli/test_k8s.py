"""cowfs k8s patch: files of manifests."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

from cowfs.integrations.kubernetes_manifests import allow_fuse_in_manifests
from tests.cli.conftest import Run
from tests.cli.test_json import check

pytestmark = pytest.mark.quick

POD = "kind: Pod\nmetadata: {name: p}\nspec:\n  containers: [{name: a}, {name: b}]\n---\nkind: Service  # kept\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "pod.yaml").write_text(POD)
    return tmp_path / "pod.yaml"


def test_the_result_goes_to_stdout(run: Run, file: Path) -> None:
    said = run("k8s", "patch", "-f", str(file), "--container", "b", "--resource", "r/fuse")
    assert (said.code, said.err) == (0, "Changed Pod/p\n")
    assert said.out == allow_fuse_in_manifests(POD, container="b", resource="r/fuse").text
    assert file.read_text() == POD


def test_a_file_is_replaced_and_keeps_its_mode(run: Run, file: Path, tmp_path: Path) -> None:
    file.chmod(0o640)
    (tmp_path / "link").symlink_to(file)
    for changed in ("Changed Pod/p\n", "Nothing was to be changed\n"):
        said = run("k8s", "patch", "-f", str(file), "-o", str(tmp_path / "link"), "--privileged", "--container", "a")
        assert (said.code, said.out, said.err) == (0, "", changed)
        assert file.read_text() == allow_fuse_in_manifests(POD, container="a", privileged=True).text
    assert file.stat().st_mode & 0o777 == 0o640
    assert sorted(each.name for each in tmp_path.iterdir() if each.is_file()) == ["link", "pod.yaml"]


def test_standard_input_is_read(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(POD.encode())))
    document = run("k8s", "patch", "-f", "-", "--container", "a", "--json").json
    check("k8s", document)
    assert document["manifests"] == allow_fuse_in_manifests(POD, container="a").text
    assert document["changed_resources"] == ["Pod/p"]


def test_a_refusal_changes_no_file(run: Run, file: Path) -> None:
    said = run("k8s", "patch", "-f", str(file), "-o", str(file))
    assert said.code == 2
    assert "Pod/p: the pod has not exactly one container, and none is named 'primary'; there are: a, b" in said.err
    assert "--container NAME" in said.err
    assert file.read_text() == POD
    assert run("k8s", "patch", "-f", str(file.parent / "absent")).code == 2
    said = run("k8s", "patch", "-f", str(file), "--container", "a", "-o", str(file.parent / "absent" / "file"))
    assert (said.code, "in no directory that exists" in said.err) == (2, True)
    file.write_bytes(b"a: \xff\n")
    assert "not UTF-8" in run("k8s", "patch", "-f", str(file)).err
