"""Labels: what may be given, how it is stored, and conditions that select versions by it."""

from __future__ import annotations

import enum
import json
import math
from pathlib import Path
from typing import Any

import pytest

from cowfs.api.versions.labels import as_texts, make_test
from cowfs.blocking import Store, Volume
from cowfs.errors import InvalidInputError
from tests.api.conftest import place
from tests.cli.conftest import Run, run

__all__ = ["place", "run"]


class Word(enum.StrEnum):
    BEST = "best"


class Boxed:
    """As a value of numpy or torch."""

    def __init__(self, value: object) -> None:
        self.value = value

    def item(self) -> object:
        return self.value


@pytest.mark.quick
def test_numbers_and_bools_are_stored_as_json_writes_them() -> None:
    given: dict[str, Any] = {
        "a": "text",
        "b": 0.5,
        "c": -3,
        "d": True,
        "e": False,
        "f": 1e-7,
        "g": 10**30,
        "h": Word.BEST,
    }
    wanted = {
        "a": "text",
        "b": "0.5",
        "c": "-3",
        "d": "true",
        "e": "false",
        "f": "1e-07",
        "g": str(10**30),
        "h": "best",
    }
    assert as_texts(given) == wanted
    assert as_texts({"a": Boxed(0.25), "b": Boxed(True)}) == {"a": "0.25", "b": "true"}  # type: ignore[dict-item]
    assert as_texts(None) == as_texts({}) == {}


@pytest.mark.quick
@pytest.mark.parametrize(
    ("labels", "problem"),
    [
        ({"loss": math.nan}, "'loss' is nan, which is no finite number"),
        ({"loss": -math.inf}, "'loss' is -inf"),
        ({"loss": Boxed(math.inf)}, "'loss' is inf"),
        ({"loss": None}, "'loss' is None, of type NoneType"),
        ({"loss": [1]}, "of type list"),
        ({"loss": b"1"}, "of type bytes"),
        ({"": 1}, "a key that is no text"),
        ({1: "x"}, "a key that is no text"),
        ([("a", "b")], "labels is"),
        ("loss=1", "labels is"),
    ],
)
def test_what_is_no_label_is_refused(labels: Any, problem: str) -> None:
    with pytest.raises(InvalidInputError, match=problem) as caught:
        as_texts(labels)
    assert caught.value.hint


@pytest.mark.quick
@pytest.mark.parametrize(
    ("conditions", "is_met"),
    [
        ("loss=0.5", True),
        ("loss=0.50", False),  # an exact match of texts
        ("loss<0.6", True),
        ("loss<0.5", False),
        ("loss<=0.5", True),
        ("loss>=5e-1", True),
        ("loss>0.4999999999999999999999", True),
        ("step>999999999999999999999998", True),
        ("step>999999999999999999999999", False),
        ("split<1", False),
        ("missing<1", False),
        ("missing=", False),
        ("note=a=b<c", True),
        ("best=true", True),
        (["best=true", "loss<1"], True),
        (["best=true", "loss>1"], False),
        ({"best": True, "loss": 0.5}, True),
        ({"best": False}, False),
        ("huge<1", False),
        ("nan<1", False),
        ([], True),
    ],
)
def test_conditions(conditions: Any, is_met: bool) -> None:
    labels = {"loss": "0.5", "step": "9" * 24, "split": "train", "note": "a=b<c", "best": "true", "nan": "nan"}
    labels["huge"] = "1e" + "9" * 40
    assert make_test(conditions)(labels) is is_met


@pytest.mark.quick
@pytest.mark.parametrize("conditions", ["loss", "<5", "loss<high", "loss<nan", "", 5, [5], {"loss": None}])
def test_what_is_no_condition_is_refused(conditions: Any) -> None:
    with pytest.raises(InvalidInputError) as caught:
        make_test(conditions)
    assert caught.value.hint


def test_versions_are_found_by_their_labels(place: Path, run: Run) -> None:
    volume, versions = Volume.new("runs"), []
    for step, loss in enumerate((0.9, 0.5, 0.7)):
        volume.files.write("/model", b"%d" % step)
        labels: dict[str, Any] = {"loss": loss, "step": step, "best": loss == 0.5}
        version = volume.commit(labels=labels)
        versions.append(version)
        assert version.labels == {"loss": str(loss), "step": str(step), "best": str(loss == 0.5).lower()}
    version = versions[-1]
    assert [each.labels["step"] for each in volume.history(labels="loss<0.8")] == ["2", "1"]
    assert [each.labels["step"] for each in version.history(labels={"best": True})] == ["1"]
    assert [each.labels["step"] for each in version.history("/model", labels="step<=1", limit=1)] == ["1"]
    found = Store().log("runs:model", labels=["loss<0.8", "step>1"])
    assert [each.labels["step"] for each in found.versions] == ["2"]
    assert list(found.changes) == list(found.names) == [version.id]
    volume.unmount()
    shown = run("log", "--json", "runs", "--label", "loss<0.8", "--label", "best=true")
    assert shown.code == 0, shown
    assert [each["labels"]["step"] for each in json.loads(shown.out)["versions"]] == ["1"]
    assert "has these labels" in run("log", "runs", "--label", "loss>1").err
    with pytest.raises(InvalidInputError):
        volume.commit(labels={"loss": math.nan})
