"""`cowfs.task` beneath the decorators of Dask, Ray, Prefect and Dagster, with the real packages:
`make test-integrations`. The whole suite does not run it: the packages are large.

Each framework runs the same story: a task makes a volume, another reads what it returned, a third
fails once after it has written and goes on from its work when it is tried again. Afterwards nothing
is mounted.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.frameworks.programs import STORY, run
from tests.system.machine import Machine

BODIES = (
    STORY
    + """
@cowfs.task(volumes=["data::rw"])
def make():
    return {"volume": write_a(), "also": [1]}

@cowfs.task
def read(result):
    return read_a(result["volume"])

@cowfs.task(volumes=["flaky::rw"])
def flaky():
    return succeed_later(), [1]

@cowfs.task(volumes=["data::rw"])
def fail():
    (cowfs.current("data") / "b").write_text("not published")
    raise cowfs.errors.InvalidStateError("as it must")

def check(text, attempt):
    check_story(text, attempt[0])
    print("the story was told", flush=True)
"""
)

DASK = """
from distributed import Client, LocalCluster

if __name__ == "__main__":
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster, Client(cluster) as client:
        made = client.submit(make)
        check(client.submit(read, made).result(), client.submit(flaky, retries=1).result())
        try:
            client.submit(fail).result()
        except cowfs.errors.InvalidStateError:
            pass
        import dask.base, pickle
        version = made.result()["volume"]
        assert dask.base.tokenize(version) == dask.base.tokenize(pickle.loads(pickle.dumps(version)))
"""
RAY = """
import ray

ray.init(num_cpus=2, include_dashboard=False, object_store_memory=100 << 20, log_to_driver=False)
once = ray.remote(num_cpus=0.5)
again = ray.remote(num_cpus=0.5, max_retries=1, retry_exceptions=True)
check(ray.get(once(read).remote(once(make).remote())), ray.get(again(flaky).remote()))
try:
    ray.get(once(fail).remote())
except cowfs.errors.InvalidStateError as error:
    assert "as it must" in str(error)
ray.shutdown()
"""
PREFECT = """
from prefect import flow, task
from prefect.cache_policies import NO_CACHE

@flow
def story():
    plain = dict(cache_policy=NO_CACHE)
    made = task(make, **plain)()
    check(task(read, **plain).submit(made).result(), task(flaky, retries=1, **plain)())
    try:
        task(fail, **plain)()
    except cowfs.errors.InvalidStateError:
        pass

story()
"""
DAGSTER = """
import dagster, tempfile

made = dagster.op(name="made")(make)
tried = dagster.op(name="tried", retry_policy=dagster.RetryPolicy(max_retries=1))(flaky)
failed = dagster.op(name="failed")(fail)

@dagster.op
def looked(result):
    return read(result)

@dagster.op
def checked(text, attempt):
    check(text, attempt)

@dagster.job
def story():
    checked(looked(made()), tried())

@dagster.job
def failing():
    failed()

with tempfile.TemporaryDirectory() as place:
    instance = dagster.DagsterInstance.local_temp(place)
    result = story.execute_in_process(instance=instance, raise_on_error=False)
    assert result.success, [each for each in result.all_events if each.is_failure]
    assert not failing.execute_in_process(instance=instance, raise_on_error=False).success
"""
PROGRAMS = {"dask": DASK, "ray": RAY, "prefect": PREFECT, "dagster": DAGSTER}
QUIET = {
    "PREFECT_LOGGING_LEVEL": "WARNING",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "240",  # 20 s are too few on a busy machine
    "PREFECT_RESULTS_PERSIST_BY_DEFAULT": "true",
    "DO_NOT_TRACK": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
}


@pytest.fixture
def machine() -> Iterator[Machine]:
    with Machine(environment=QUIET) as machine:
        yield machine


@pytest.mark.parametrize("framework", PROGRAMS)
def test_the_decorator_beneath(framework: str, machine: Machine) -> None:
    run(machine, BODIES + PROGRAMS[framework])
    kept = machine.cowfs("diff", "data").stdout
    assert "b" in kept, "the work of the task that failed is kept"
