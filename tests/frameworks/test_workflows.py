"""Volumes in a flow of Metaflow and in assets of Dagster, with the real packages:
`make test-integrations`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.frameworks.programs import run
from tests.system.machine import Machine

METAFLOW = """
import os, sys
import cowfs
from cowfs.blocking import Volume
from metaflow import FlowSpec, retry, step

class Story(FlowSpec):
    @step
    def start(self):
        with Volume.new("words") as volume:
            (volume / "a").write_text("made")
            self.words = volume.finalize()
        self.shards = [0, 1, 2]
        self.next(self.work, foreach="shards")

    @retry(times=1, minutes_between_retries=0)
    @step
    def work(self):
        with self.words.fork(f"words-{self.input}") as fork:
            found = sorted(path.name for path in fork.path.iterdir())
            assert found == ["a"], found
            (fork / f"shard-{self.input}").write_text("x")
            mark = os.environ["MARK"]
            if self.input == 1 and not os.path.exists(mark):
                open(mark, "w").close()
                raise ValueError("the first attempt fails")
            self.result = fork.finalize()
        self.next(self.join)

    @step
    def join(self, inputs):
        report = Volume.open("words").merge([each.result for each in inputs])
        self.merged = Volume.from_locator(report.locator)
        self.next(self.end)

    @step
    def end(self):
        found = sorted(entry.name for entry in self.merged.files.ls())
        assert found == ["a", "shard-0", "shard-1", "shard-2"], found
        assert self.merged.produced_by["system"] == "metaflow", self.merged.produced_by
        with self.merged as version:
            assert (version / "a").read_text() == "made"
        print("the story was told")

if __name__ == "__main__":
    mark = sys.argv.pop()
    os.environ.setdefault("MARK", mark)
    sys.argv += ["run"] if "step" not in sys.argv else [mark]
    Story()
"""

DAGSTER = """
import tempfile
import cowfs
import dagster
from cowfs.blocking import ROVolume, Volume

class Versions(dagster.IOManager):
    def handle_output(self, context, version):
        context.add_output_metadata({"locator": version.locator})

    def load_input(self, context):
        made = context.instance.get_latest_materialization_event(context.asset_key).asset_materialization
        return Volume.from_locator(made.metadata["locator"].value)

@dagster.asset(io_manager_key="versions")
@cowfs.task(volumes=["words::rw"])
def words():
    (cowfs.current("words") / "a").write_text("made")
    return cowfs.current("words")

@dagster.asset
@cowfs.task
def length(words):
    assert type(words) is ROVolume, words
    return len((words.mount() / "a").read_text())

with tempfile.TemporaryDirectory() as place, dagster.DagsterInstance.local_temp(place) as instance:
    given = {"assets": [words, length], "instance": instance, "resources": {"versions": Versions()}}
    assert dagster.materialize(**given).output_for_node("length") == 4
    assert dagster.materialize(**given, selection="length").output_for_node("length") == 4
    print("the story was told")
"""


@pytest.fixture
def machine() -> Iterator[Machine]:
    quiet = {"DO_NOT_TRACK": "1", "DAGSTER_DISABLE_TELEMETRY": "1"}
    with Machine(environment={**quiet, "METAFLOW_USER": "tester", "USERNAME": "tester"}) as machine:
        yield machine


def test_with_blocks_in_steps_of_metaflow(machine: Machine) -> None:
    run(machine, METAFLOW, machine.root / "mark")


def test_an_io_manager_of_dagster_keeps_locators(machine: Machine) -> None:
    """Also for a later run, which makes only the second asset."""
    run(machine, DAGSTER)
