"""An artifact repository of MLflow for the URLs of cowfs. MLflow finds it by the entry points
`mlflow.artifact_repository`.

    mlflow.artifacts.download_artifacts(version.locator + "/model")        a version, which is only read
    mlflow.create_experiment("e", artifact_location="cowfs://artifacts/e")  a volume of the default store
    mlflow.create_experiment("e", artifact_location="cowfs+s3://b/-/artifacts/e")

The volume must be there (`cowfs create artifacts`). Each call that writes publishes one version of
it. Several runs may log to one volume at once, below paths of their own.
"""

from __future__ import annotations

import os
import posixpath
import re
from typing import Any

import fsspec
from mlflow.entities import FileInfo
from mlflow.store.artifact.artifact_repo import ArtifactRepository, verify_artifact_path

_Repository: Any = ArtifactRepository


class CowfsArtifactRepository(_Repository):  # type: ignore[misc] # untyped where mlflow is not installed
    """artifact_uri: a URL as `cowfs.integrations.fsspec` describes it. Its errors are those of
    cowfs: ReadOnlyError for a call that writes to a version."""

    def __init__(self, artifact_uri: str, tracking_uri: str | None = None, registry_uri: str | None = None) -> None:
        super().__init__(artifact_uri, tracking_uri, registry_uri)
        # MLflow removes slashes from a URL without a host.
        url = re.sub(r"(cowfs\+\w+):/(?!/)", r"\1:///", artifact_uri, count=1)
        self._files, self._root = fsspec.core.url_to_fs(url)

    def log_artifact(self, local_file: str, artifact_path: str | None = None) -> None:
        verify_artifact_path(artifact_path)
        with self._files.transaction:
            self._put(local_file, self._place(artifact_path, os.path.basename(local_file)))

    def log_artifacts(self, local_dir: str, artifact_path: str | None = None) -> None:
        """As one version."""
        verify_artifact_path(artifact_path)
        with self._files.transaction:
            for folder, _, names in os.walk(local_dir):
                below = os.path.relpath(folder, local_dir)
                for name in names:
                    self._put(os.path.join(folder, name), posixpath.normpath(self._place(artifact_path, below, name)))

    def list_artifacts(self, path: str | None = None) -> list[FileInfo]:
        place = self._place(path)
        if not self._files.isdir(place):
            return []
        found = [
            FileInfo(
                posixpath.relpath(each["name"], self._root),
                each["type"] == "directory",
                None if each["type"] == "directory" else each["size"],
            )
            for each in self._files.ls(place, detail=True)
        ]
        return sorted(found, key=lambda info: info.path)

    def delete_artifacts(self, artifact_path: str | None = None) -> None:
        """The versions so far keep them."""
        if self._files.exists(place := self._place(artifact_path)):
            self._files.rm(place, recursive=True)

    def _download_file(self, remote_file_path: str, local_path: str) -> None:
        self._files.get_file(self._place(remote_file_path), local_path)

    def _put(self, local_file: str, place: str) -> None:
        self._files.makedirs(posixpath.dirname(place), exist_ok=True)
        self._files.put_file(local_file, place)

    def _place(self, *parts: str | None) -> str:
        return posixpath.join(self._root, *(part for part in parts if part))
