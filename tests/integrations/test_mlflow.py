"""MLflow's own functions on cowfs URLs; the repository is found by its entry points."""

from __future__ import annotations

import threading
from pathlib import Path

import mlflow
import pytest
from mlflow.artifacts import download_artifacts
from mlflow.exceptions import MlflowException
from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository

from cowfs.blocking import Volume
from cowfs.errors import ReadOnlyError
from cowfs.integrations.training.mlflow import CowfsArtifactRepository
from tests.api.conftest import place

__all__ = ["place"]

pytestmark = pytest.mark.filterwarnings("ignore::")  # MLflow's own


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    (folder / "weights" / "deep").mkdir(parents=True)
    (folder / "MLmodel").write_text("flavors: {}")
    (folder / "weights" / "a.bin").write_bytes(b"a" * 100_000)
    (folder / "weights" / "deep" / "b.bin").write_bytes(b"b")
    return folder


def test_a_locator_is_downloaded(place: Path, model: Path, tmp_path: Path) -> None:
    volume = Volume.new("run")
    volume.files.upload(model, "/model")
    version = volume.commit()
    there = Path(download_artifacts(artifact_uri=f"{version.locator}/model", dst_path=str(tmp_path / "to")))
    assert (there / "MLmodel").read_text() == "flavors: {}"
    assert (there / "weights" / "deep" / "b.bin").read_bytes() == b"b"
    one = Path(download_artifacts(artifact_uri=f"{version.locator}/model/weights/a.bin"))
    assert one.read_bytes() == b"a" * 100_000
    assert isinstance(get_artifact_repository(version.locator), CowfsArtifactRepository)


def test_a_version_takes_no_artifacts(place: Path, model: Path) -> None:
    volume = Volume.new("run")
    volume.files.upload(model, "/model")
    repository = get_artifact_repository(volume.commit().locator)
    with pytest.raises(ReadOnlyError):
        repository.log_artifacts(str(model))
    with pytest.raises(ReadOnlyError):
        repository.delete_artifacts("model")


@pytest.mark.parametrize("named", ["default", "url"])
def test_a_volume_takes_artifacts_each_call_a_version(place: Path, model: Path, named: str) -> None:
    uri = "cowfs://artifacts/run 1" if named == "default" else f"cowfs+{(place / 'store').as_uri()}/-/artifacts/run 1"
    Volume.new("artifacts").commit()
    repository = get_artifact_repository(uri)
    repository.log_artifacts(str(model), "model")
    repository.log_artifact(str(model / "MLmodel"))
    repository.log_artifact(str(model / "MLmodel"), "other/place")
    assert [(each.path, each.is_dir, each.file_size) for each in repository.list_artifacts()] == [
        ("MLmodel", False, 11),
        ("model", True, None),
        ("other", True, None),
    ]
    assert [each.path for each in repository.list_artifacts("model/weights")] == [
        "model/weights/a.bin",
        "model/weights/deep",
    ]
    assert repository.list_artifacts("MLmodel") == []
    assert repository.list_artifacts("none") == []
    assert (Path(repository.download_artifacts("model")) / "weights/deep/b.bin").read_bytes() == b"b"
    assert len(Volume.version("artifacts").history()) == 4
    repository.delete_artifacts("model")
    assert [each.path for each in repository.list_artifacts()] == ["MLmodel", "other"]


def test_a_path_that_leaves_the_run_is_refused(place: Path, model: Path) -> None:
    repository = get_artifact_repository("cowfs://artifacts/run")
    with pytest.raises(MlflowException):
        repository.log_artifact(str(model / "MLmodel"), "../other")


def test_runs_that_log_at_once_all_have_their_artifacts(place: Path, model: Path) -> None:
    Volume.new("artifacts").commit()

    def log(number: int) -> None:
        get_artifact_repository(f"cowfs://artifacts/{number}").log_artifacts(str(model))

    threads = [threading.Thread(target=log, args=(number,)) for number in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    found = [each.path for each in get_artifact_repository("cowfs://artifacts").list_artifacts()]
    assert found == ["0", "1", "2", "3"]


def test_a_run_logs_and_reads_its_artifacts(place: Path, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    Volume.new("artifacts").commit()
    mlflow.set_tracking_uri((place / "runs").as_uri())
    experiment = mlflow.create_experiment("e", artifact_location="cowfs://artifacts/e")
    with mlflow.start_run(experiment_id=experiment) as run:
        mlflow.log_artifacts(str(model), "model")
        mlflow.log_dict({"a": 1}, "about.json")
    there = download_artifacts(run_id=run.info.run_id, artifact_path="model/weights/a.bin")
    assert Path(there).read_bytes() == b"a" * 100_000
    assert mlflow.artifacts.load_dict(f"{run.info.artifact_uri}/about.json") == {"a": 1}
