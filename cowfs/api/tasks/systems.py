"""The task system that this program runs in, as far as the system tells: for `produced_by`.

    in the process     Flyte (also a local run), Prefect, Dagster, Metaflow, Ray, Dask: asked only if the program has
                       imported them
    by variables       Flyte, Airflow, GitHub Actions, Slurm, Kubernetes

The first one that answers counts, innermost first: a Prefect task on a Dask worker is Prefect's,
and a Slurm job that runs in Kubernetes is Slurm's. Keys: system, workflow, run, action, attempt,
output.
The values are those that the system's own interface shows. Only the variables named here are read,
and no secret is among them. No error of a framework stops a commit: what it does not tell is left
out.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, TypeAlias

Found: TypeAlias = Mapping[str, object]
NAMESPACE_FILE: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


def detect() -> dict[str, str]:
    """Empty outside of any known system."""
    for system, ask in _SYSTEMS:
        found: Found = {}
        with suppress(Exception):
            found = ask() or {}
        texts = {key: str(value) for key, value in found.items() if value not in (None, "")}
        if texts:
            return {"system": system, **texts}
    return {}


# -- in the process


def _module(name: str) -> Any:
    """The module if the program has imported it. KeyError: it has not."""
    return sys.modules[name]


def _ask_flyte() -> Found | None:
    if not is_in_flyte_task():
        return None
    action = _module("flyte").ctx().action
    find_output = getattr(sys.modules.get("flyte._internal.runtime.convert"), "current_output_name", str)
    return {
        "workflow": _join(action.project, action.domain),
        "run": action.run_name,
        "action": action.name,
        "output": find_output(),  # while a result is converted
    }


def is_in_flyte_task() -> bool:
    return "flyte" in sys.modules and bool(_module("flyte").ctx())


def _ask_prefect() -> Found | None:
    contexts = _module("prefect.context")
    flow, task = contexts.FlowRunContext.get(), contexts.TaskRunContext.get()
    if flow is None and task is None:
        return None
    return {
        "workflow": flow.flow.name if flow is not None and flow.flow is not None else None,
        "run": flow.flow_run.id if flow is not None and flow.flow_run is not None else task.task_run.flow_run_id,
        "action": task.task_run.name if task is not None else None,
        "attempt": task.task_run.run_count if task is not None else flow.flow_run.run_count,
    }


def _ask_dagster() -> Found | None:
    context = _module("dagster").OpExecutionContext.get()
    return {
        "workflow": context.job_name,
        "run": context.run_id,
        "action": context.op_handle,
        "attempt": context.retry_number + 1,
    }


def _ask_metaflow() -> Found | None:
    current = _module("metaflow").current
    if not current.is_running_flow:
        return None
    return {
        "workflow": current.flow_name,
        "run": current.run_id,
        "action": _join(current.step_name, current.task_id),
        "attempt": current.retry_count + 1,
    }


def _ask_ray() -> Found | None:
    """Nothing in a driver, which other systems may have started."""
    ray = _module("ray")
    if not ray.is_initialized():
        return None
    context = ray.get_runtime_context()
    if context.worker.mode != ray.WORKER_MODE:
        return None
    name = context.get_task_name()  # None in another thread than the task's, which has an id of its own
    return {"run": context.get_job_id(), "action": _join(name, context.get_task_id()) if name else None}


def _ask_dask() -> Found | None:
    worker = _module("distributed").get_worker()
    key = None
    with suppress(KeyError):  # in another thread than the task's
        key = worker.get_current_task()
    return {"run": worker.scheduler.address, "action": key}


# -- by variables


def _ask_variables(*marks: str, **keys: tuple[str, ...]) -> Callable[[], Found | None]:
    """marks: variables of which the system sets one. keys: the variables of each; the first that is
    set counts."""

    def ask() -> Found | None:
        if not any(os.environ.get(mark) for mark in marks):
            return None
        return {key: next(filter(None, map(os.environ.get, names)), "") for key, names in keys.items()}

    return ask


def _ask_slurm() -> Found | None:
    if not (job := os.environ.get("SLURM_JOB_ID")):
        return None
    array, task = os.environ.get("SLURM_ARRAY_JOB_ID"), os.environ.get("SLURM_ARRAY_TASK_ID")
    restarts = os.environ.get("SLURM_RESTART_COUNT", "0")
    return {
        "workflow": os.environ.get("SLURM_JOB_NAME"),
        "run": f"{array}_{task}" if array and task else job,
        "action": _join(os.environ.get("SLURM_STEP_ID"), os.environ.get("SLURM_PROCID"), by="."),
        "attempt": int(restarts) + 1 if restarts.isdigit() else None,
    }


def _ask_kubernetes() -> Found | None:
    """A pod's name is its host name, unless it has the host's network or another name is set."""
    if not os.environ.get("KUBERNETES_SERVICE_HOST"):
        return None
    namespace = os.environ.get("POD_NAMESPACE")
    with suppress(OSError, UnicodeDecodeError):
        namespace = namespace or NAMESPACE_FILE.read_text().strip()
    return {
        "workflow": namespace,
        "run": os.environ.get("POD_NAME") or socket.gethostname(),
        "action": os.environ.get("JOB_COMPLETION_INDEX"),
    }


def _join(*parts: object, by: str = "/") -> str:
    return by.join(str(part) for part in parts if part not in (None, ""))


_SYSTEMS: Final[tuple[tuple[str, Callable[[], Found | None]], ...]] = (
    ("flyte", _ask_flyte),
    ("prefect", _ask_prefect),
    ("dagster", _ask_dagster),
    ("metaflow", _ask_metaflow),
    (
        "flyte",
        _ask_variables(
            "FLYTE_INTERNAL_EXECUTION_ID",
            "_U_RUN_BASE",
            run=("FLYTE_INTERNAL_EXECUTION_ID", "RUN_NAME"),
            action=("FLYTE_INTERNAL_TASK_NAME", "ACTION_NAME"),
        ),
    ),
    (
        "airflow",
        _ask_variables(
            "AIRFLOW_CTX_DAG_ID",
            workflow=("AIRFLOW_CTX_DAG_ID",),
            run=("AIRFLOW_CTX_DAG_RUN_ID",),
            action=("AIRFLOW_CTX_TASK_ID",),
            attempt=("AIRFLOW_CTX_TRY_NUMBER",),
        ),
    ),
    ("ray", _ask_ray),
    ("dask", _ask_dask),
    ("github-actions", _ask_variables("GITHUB_ACTIONS", run=("GITHUB_RUN_ID",), action=("GITHUB_JOB",))),
    ("slurm", _ask_slurm),
    ("kubernetes", _ask_kubernetes),
)
