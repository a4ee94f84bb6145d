"""Every message between a daemon and those that ask it comes over the real socket as it was sent,
whatever its fields are."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cowfs.base.ids import VersionId
from cowfs.control import Client, Server, messages
from cowfs.control.binding import Binding
from cowfs.control.messages import COMMIT, PING, STATUS, Committed, MountStatus, Nothing, Operation, Ready
from cowfs.control.typed import field_types, from_json, to_json
from cowfs.errors import CorruptError, InvalidInputError, UnsupportedFormatError
from cowfs.format.manifest import version_id
from cowfs.version.commit import GIVABLE, CommitRequest, Progress, ProgressListener
from tests.format.samples import MANIFEST

pytestmark = pytest.mark.quick

OPERATIONS = [each for each in vars(messages).values() if isinstance(each, Operation)]
st.register_type_strategy(VersionId, st.binary(min_size=32, max_size=32).map(VersionId))
st.register_type_strategy(float, st.floats(allow_nan=False, allow_infinity=False))
TEXTS = st.dictionaries(st.text(), st.text(), max_size=3)
REQUESTS = st.builds(
    CommitRequest,
    message=st.text(),
    author=st.text(),
    labels=TEXTS,
    produced_by=TEXTS,
    given=st.frozensets(st.sampled_from(sorted(GIVABLE))),
    write_id=st.text(),
)
BINDINGS = st.builds(Binding, commit=REQUESTS)


@pytest.fixture
def path() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="cowfs-test-") as directory:
        yield Path(directory) / "s.sock"


def values(kind: type) -> st.SearchStrategy[Any]:
    return REQUESTS if kind is CommitRequest else BINDINGS if kind is Binding else st.from_type(kind)


def test_requests_are_made_with_every_field() -> None:
    assert set(field_types(CommitRequest)) == {"message", "author", "labels", "produced_by", "given", "write_id"}, (
        "REQUESTS"
    )


@pytest.mark.parametrize("operation", OPERATIONS, ids=[each.name for each in OPERATIONS])
def test_arguments_and_answers_come_as_they_were_sent(path: Path, operation: Operation[Any, Any]) -> None:
    answers: list[Any] = []
    heard: list[Any] = []

    def answer(arguments: Any, progress: ProgressListener) -> Any:
        heard.append(arguments)
        progress(Progress("index", 1, 2, 3, 4))
        return answers[-1]

    server = Server(path, dict([operation.make_handler(answer)]))
    try:

        @settings(max_examples=20, deadline=None)
        @given(values(operation.arguments), values(operation.answer))
        def exchange(sent: Any, expected: Any) -> None:
            answers.append(expected)
            seen: list[Progress] = []
            assert Client(path).ask(operation, sent, seen.append) == expected
            assert heard[-1] == sent
            assert seen == [Progress("index", 1, 2, 3, 4)]

        exchange()
    finally:
        server.close()


@given(st.from_type(Ready))
def test_a_daemon_that_is_ready_says_so_in_a_line(ready: Ready) -> None:
    assert from_json(Ready, to_json(ready)) == ready


@pytest.mark.parametrize(
    ("change", "named"),
    [({"later": 1}, "later"), ({"pid": ...}, "pid"), ({"pid": True}, "pid"), ({"version": "abc"}, "version id")],
    ids=str,
)
@given(status=st.from_type(MountStatus))
def test_an_answer_of_another_version_is_refused(status: MountStatus, change: Mapping[str, Any], named: str) -> None:
    record = {**to_json(status), **change}
    record = {name: value for name, value in record.items() if value is not ...}
    with pytest.raises(InvalidInputError, match=named):
        from_json(MountStatus, record)


@pytest.mark.parametrize(
    "arguments",
    [
        {"message": 1},
        {"labels": []},
        {"labels": {"a": 1}},
        {"produced_by": "x"},
        {"given": ["head"]},
        {"given": "message"},
        {"unknown": True},
    ],
    ids=str,
)
def test_wrong_arguments_are_refused_and_named(path: Path, arguments: dict[str, Any]) -> None:
    server = Server(path, dict([COMMIT.make_handler(lambda request, progress: pytest.fail("it was let in"))]))
    try:
        with pytest.raises(
            InvalidInputError, match=next(iter(arguments)) if "given" not in arguments else "head|given"
        ):
            Client(path).call("commit", **arguments)
    finally:
        server.close()


def test_an_answer_of_another_version_is_no_fault_of_the_caller(path: Path) -> None:
    server = Server(path, {"ping": lambda arguments, progress: {"pid": 7, "later": 1}})
    try:
        with pytest.raises(UnsupportedFormatError, match="another version") as caught:
            Client(path).ask(PING, Nothing())
        assert "mount again" in caught.value.hint
    finally:
        server.close()


def test_an_operation_without_arguments_takes_none(path: Path) -> None:
    server = Server(path, dict([STATUS.make_handler(lambda _, progress: pytest.fail("it was let in"))]))
    try:
        with pytest.raises(InvalidInputError, match="verbose"):
            Client(path).call("status", verbose=True)
    finally:
        server.close()
    assert to_json(Nothing()) == {}


def test_a_commit_tells_a_short_manifest_that_is_stored_as_it_is() -> None:
    manifest = MANIFEST
    version = version_id(manifest.encode())
    told = Committed.make_text(manifest, version)
    done = Committed(version, "cowfs+file:///s/-/v@0", 1, True, told)
    assert from_json(Committed, json.loads(json.dumps(to_json(done)))).known == manifest
    assert replace(done, manifest=None).known is None
    assert Committed.make_text(replace(manifest, message="m" * (64 << 10)), version) is None
    assert Committed.make_text(manifest, VersionId(bytes(32))) is None, "a sealed one has another hash"
    with pytest.raises(CorruptError):
        _ = replace(done, version=VersionId(bytes(32))).known
