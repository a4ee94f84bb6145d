"""Volumes in a DAG of Airflow, with the real package: `make test-integrations`.

`dag.test()` runs the tasks in one process, with its server and XCom; its database is SQLite."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.frameworks.programs import STORY, require_unmounted
from tests.system.machine import Machine

DAG = (
    STORY
    + """
from airflow.sdk import dag, task

@dag(schedule=None)
def story():
    @task
    @cowfs.task(volumes=["data::rw"])
    def make():
        return write_a()

    @task
    @cowfs.task
    def read(version):
        return read_a(version)

    @task(retries=1, retry_delay=0)
    @cowfs.task(volumes=["flaky::rw"])
    def flaky():
        return succeed_later()

    @task
    def check(text, version):
        check_story(text, version)
        made_by = version.produced_by
        assert [made_by[key] for key in ("system", "workflow", "action", "attempt")] == ["airflow", "story", "flaky", "2"]

    check(read(make()), flaky())

flow = story()
if __name__ == "__main__":
    run = flow.test()
    assert run.state == "success", run.state
    print("the story was told")
"""
)
PATIENCE_S = 900  # to load its server takes 30 s of a busy processor, to make its database as long


def test_versions_go_from_task_to_task_by_xcom() -> None:
    with Machine() as machine:
        dags = machine.root / "dags"
        dags.mkdir()
        (dags / "story.py").write_text(DAG)
        machine.environment |= {
            "AIRFLOW_HOME": str(machine.root / "airflow"),
            "AIRFLOW__CORE__ALLOWED_DESERIALIZATION_CLASSES": "cowfs.*",
            "AIRFLOW__CORE__DAGS_FOLDER": str(dags),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        }
        said = ""
        for command in (["-m", "airflow", "db", "migrate"], [dags / "story.py"]):
            said = run(machine, *command)
        assert "the story was told" in said
        require_unmounted(machine)


def run(machine: Machine, *arguments: str | Path) -> str:
    environment = {**machine.environment, "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run(
        [sys.executable, *map(str, arguments)], env=environment, capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
