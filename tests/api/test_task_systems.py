"""The origin of versions: as variables tell it, and as real task systems do in their tasks."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from cowfs.api.tasks import systems

MARKS = (
    "COWFS_PRODUCED_BY",
    "FLYTE_INTERNAL_EXECUTION_ID",
    "_U_RUN_BASE",
    "AIRFLOW_CTX_DAG_ID",
    "GITHUB_ACTIONS",
    "SLURM_JOB_ID",
    "KUBERNETES_SERVICE_HOST",
)
FRAMEWORKS = ("flyte", "prefect", "dagster", "metaflow", "ray", "distributed")


def without_system(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in MARKS:
        monkeypatch.delenv(variable, raising=False)
    for name in (*FRAMEWORKS, "prefect.context"):
        monkeypatch.delitem(sys.modules, name, raising=False)


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    without_system(monkeypatch)


@pytest.mark.parametrize(
    ("variables", "found"),
    [
        ({}, {}),
        (
            {"_U_RUN_BASE": "s3://b", "RUN_NAME": "r1", "ACTION_NAME": "a0"},
            {"system": "flyte", "run": "r1", "action": "a0"},
        ),
        (
            {
                "AIRFLOW_CTX_DAG_ID": "nightly",
                "AIRFLOW_CTX_DAG_RUN_ID": "manual__1",
                "AIRFLOW_CTX_TASK_ID": "train",
                "AIRFLOW_CTX_TRY_NUMBER": "2",
                "KUBERNETES_SERVICE_HOST": "10.0.0.1",
            },
            {"system": "airflow", "workflow": "nightly", "run": "manual__1", "action": "train", "attempt": "2"},
        ),
        (
            {"SLURM_JOB_ID": "12", "SLURM_JOB_NAME": "train", "SLURM_STEP_ID": "0", "SLURM_PROCID": "3"},
            {"system": "slurm", "workflow": "train", "run": "12", "action": "0.3", "attempt": "1"},
        ),
        (
            {
                "SLURM_JOB_ID": "15",
                "SLURM_ARRAY_JOB_ID": "12",
                "SLURM_ARRAY_TASK_ID": "2",
                "SLURM_RESTART_COUNT": "1",
                "SLURM_PROCID": "",
            },
            {"system": "slurm", "run": "12_2", "attempt": "2"},
        ),
        (
            {
                "KUBERNETES_SERVICE_HOST": "10.0.0.1",
                "POD_NAME": "train-0-x",
                "POD_NAMESPACE": "ml",
                "JOB_COMPLETION_INDEX": "0",
            },
            {"system": "kubernetes", "workflow": "ml", "run": "train-0-x", "action": "0"},
        ),
    ],
)
def test_variables_tell_the_system(
    variables: dict[str, str], found: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert systems.detect() == found


def test_a_pods_name_and_namespace_are_found_without_variables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setattr(systems, "NAMESPACE_FILE", tmp_path / "namespace")
    monkeypatch.setattr("socket.gethostname", lambda: "train-0")
    assert systems.detect() == {"system": "kubernetes", "run": "train-0"}
    (tmp_path / "namespace").write_text("ml\n")
    assert systems.detect() == {"system": "kubernetes", "workflow": "ml", "run": "train-0"}


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_a_framework_that_fails_or_is_half_imported_stops_nothing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, name, ModuleType(name))
    assert systems.detect() == {}


def outcome(program: str, directory: Path) -> str:
    """The last line that the program prints in a process of its own."""
    file = directory / "program.py"
    file.write_text(f"from cowfs.api.tasks.systems import detect\n{program}")
    done = subprocess.run([sys.executable, file], capture_output=True, text=True, timeout=120, cwd=directory)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1]


def test_no_framework_is_imported(tmp_path: Path) -> None:
    program = f"import sys\ndetect()\nprint([name for name in {FRAMEWORKS} if name in sys.modules])"
    assert outcome(program, tmp_path) == "[]"


def test_a_task_of_dask_tells_its_key(tmp_path: Path) -> None:
    program = """
from distributed import Client, LocalCluster
if __name__ == "__main__":
    with LocalCluster(n_workers=1, threads_per_worker=1, processes=False, dashboard_address=None) as cluster:
        with Client(cluster) as client:
            found = client.submit(lambda: detect(), key="train").result()
            print(detect(), found == {"system": "dask", "run": cluster.scheduler_address, "action": "train"})
"""
    assert outcome(program, tmp_path) == "{} True"


def test_a_local_run_of_flyte_tells_run_and_action(tmp_path: Path) -> None:
    pytest.importorskip("flyte", reason="not installed yet")
    program = """
import flyte
env = flyte.TaskEnvironment(name="env")
@env.task
async def inner() -> dict[str, str]:
    return detect()
@env.task
async def outer() -> list[dict[str, str]]:
    return [detect(), await inner()]
if __name__ == "__main__":
    flyte.init()
    first, second = flyte.run(outer).outputs()[0]
    same = [first[key] == second[key] for key in ("system", "run", "action")]
    print(detect(), first["system"], same, sorted(first))
"""
    assert outcome(program, tmp_path) == "{} flyte [True, True, False] ['action', 'run', 'system']"
