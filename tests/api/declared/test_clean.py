"""`clean` deletes volumes that nobody has used for `idle_delete`, and nothing that is protected."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from cowfs.api import stores
from cowfs.api.access import file_session
from cowfs.api.declared.cleaning import CleanPlan
from cowfs.api.versions import deleting
from cowfs.base import clock, config
from cowfs.base.ids import StoreId
from cowfs.blocking import Declared, Store, Volume
from cowfs.errors import AccessDeniedError, CorruptError, InvalidInputError, NotFoundError, UnavailableError
from cowfs.format.claims import PinKind
from cowfs.format.locator import Locator
from cowfs.format.record import Holder
from cowfs.format.store_url import StoreUrl
from cowfs.machine import last_mounts, registry
from cowfs.machine.working_copy import WorkingCopy
from cowfs.maintain import idle
from cowfs.maintain.collect.roots import RootReader
from cowfs.store import ObjectStore
from cowfs.store.refs import leases
from cowfs.store.refs.holder import current_holder
from cowfs.store.refs.pins import Pin
from cowfs.version.names import deletion, tags
from cowfs.version.names.volumes import find_head, fork_volume, read_head
from tests.api.declared.test_plan import declare
from tests.cli.test_json import check
from tests.maintain.conftest import Run, run

__all__ = ["run"]

DAY_NS = 24 * 3600 * 10**9
IDLE_DAYS = 30


@pytest.fixture
def file(place: Path) -> Path:
    return declare(
        place,
        '{name = "idle", path = "/idle", store = "main", read_only = false, idle_delete = "30d"}',
        '{name = "other", path = "/other", store = "main", read_only = false}',
    )


def store_of(file: Path) -> Store:
    return Store(str(file.parent / "main"))


def make(file: Path, *names: str) -> None:
    for name in names:
        volume = Volume.open(name, store=str(file.parent / "main"), create=True)
        volume.files.write("f", name.encode())
        volume.finalize()
    file_session._end_all()


def grow_old(root: Path, days: float) -> None:
    for path in root.rglob("*"):
        if path.is_file():
            then_ns = path.stat().st_mtime_ns - int(days * DAY_NS)
            os.utime(path, ns=(then_ns, then_ns))


def pass_days(file: Path, days: float) -> None:
    """What the store and the record of mounts show counts as that much older."""
    grow_old(file.parent / "main", days)
    grow_old(config.state_dir() / "last_mounts", days)


def plan(file: Path) -> CleanPlan:
    return Declared.load(file).plan_clean()


def why(file: Path) -> str:
    [step] = plan(file).steps
    assert step.action == "keep"
    return ", ".join(step.why)


def objects(file: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in (file.parent / "main").rglob("*")}


def test_what_nobody_uses_goes_and_comes_back(file: Path) -> None:
    make(file, "idle", "other")
    assert why(file) == "it was used since"
    pass_days(file, 29)
    assert why(file) == "it was used since"
    pass_days(file, 2)
    before = objects(file)
    found = plan(file)
    assert [(step.action, step.volume) for step in found.steps] == [("delete", "idle")]
    assert objects(file) == before
    assert [step.action for step in found.apply()] == ["delete"]
    assert not plan(file).has_changes, "a second one has nothing to do"
    store = store_of(file)
    with pytest.raises(NotFoundError):
        store.volume("idle").files.read("f")
    assert store.volume("other").files.read("f") == b"other"
    store.undelete("idle")
    assert store.volume("idle").files.read("f") == b"idle"
    file_session._end_all()
    assert why(file) == "it was used since"


def test_what_is_used_after_the_plan_is_kept(file: Path) -> None:
    make(file, "idle")
    pass_days(file, 40)
    found = plan(file)
    make(file, "idle")
    [done] = found.apply()
    assert (done.action, done.why) == ("keep", ("it was used since",))
    assert store_of(file).volume("idle").files.read("f") == b"idle"
    store_of(file).delete("idle")
    [done] = found.apply()
    assert (done.action, "it is deleted" in done.why) == ("keep", True)


@pytest.mark.parametrize(
    ("owner", "function"), [(deleting, "delete"), (deletion, "delete_volume"), (leases, "acquire")]
)
def test_what_another_one_deletes_meanwhile_is_kept_by_this_one(
    file: Path, monkeypatch: pytest.MonkeyPatch, owner: ModuleType, function: str
) -> None:
    make(file, "idle")
    pass_days(file, 40)
    found, real = plan(file), getattr(owner, function)

    def met(*arguments: object, **named: object) -> object:
        monkeypatch.setattr(owner, function, real)
        store_of(file).delete("idle")
        return real(*arguments, **named)

    monkeypatch.setattr(owner, function, met)
    [done] = found.apply()
    assert (done.action, len(done.why)) == ("keep", 1)
    assert "idle" in done.why[0]
    store_of(file).undelete("idle")
    assert store_of(file).volume("idle").files.read("f") == b"idle"


def test_a_volume_that_another_one_is_deleting_is_kept(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(file, "idle")
    pass_days(file, 40)
    found, real = plan(file), deletion.delete_volume

    def met(store: ObjectStore, name: str, holder: Holder, *, take_over: bool) -> None:
        lease = leases.acquire(store, name, current_holder("another clean"))
        try:
            real(store, name, holder, take_over=take_over)
        finally:
            lease.release()

    monkeypatch.setattr(deletion, "delete_volume", met)
    [done] = found.apply()
    assert (done.action, len(done.why)) == ("keep", 1)
    assert "another clean" in done.why[0]
    assert store_of(file).volume("idle").files.read("f") == b"idle"


@pytest.mark.mount
def test_a_mount_is_a_use_when_it_ends(file: Path) -> None:
    make(file, "idle")
    version = store_of(file).version("idle")
    version.mount()
    pass_days(file, 400)
    assert "mounted at" in why(file)
    version.unmount()
    for path in (file.parent / "main" / "pins").rglob("*"):
        if path.is_file():
            path.unlink()
    assert why(file) == "it was used since"
    grow_old(config.state_dir() / "last_mounts", 31)
    assert plan(file).has_changes


def test_what_cannot_be_read_is_an_error(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(file, "idle")
    pass_days(file, 40)
    found = plan(file)

    def denied(*arguments: object, **more: object) -> object:
        raise AccessDeniedError("no")

    for owner, name in [(leases, "read"), (RootReader, "pins"), (idle, "all_tags")]:
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, denied)
            with pytest.raises(AccessDeniedError):
                plan(file)
            with pytest.raises(AccessDeniedError):
                found.apply()
    monkeypatch.setattr(RootReader, "are_pins_shown", property(lambda _: False, lambda *_: None), raising=False)
    with pytest.raises(UnavailableError, match="pins/"):
        found.apply()
    monkeypatch.undo()
    [head] = sorted((file.parent / "main" / "volumes" / "idle" / "head").iterdir())[:1]
    head.write_bytes(b"{}")
    with pytest.raises(CorruptError):
        plan(file)


def test_a_file_that_was_merely_found_deletes_nothing(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may have come with a clone, and name any volume of the user's stores."""
    make(file, "idle")
    pass_days(file, 40)
    monkeypatch.chdir(file.parent)
    with pytest.raises(InvalidInputError, match=r"was merely found.*deletes volume idle") as refused:
        Declared.load().plan_clean()
    assert f"cowfs allow {file}" in refused.value.hint
    assert f"name it: `cowfs clean -f {file}`, Declared.load('{file}')." in refused.value.hint
    Declared.load(file).allow()
    assert Declared.load().plan_clean().has_changes


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ('name = "idle", path = "/i"', "declared read-only"),
        ('name = "idle@{0}", path = "/i"', "a version is declared"),
        ('name = "new", path = "/i", read_only = false', "no volume"),
    ],
)
def test_only_a_writable_volume_counts(said: str, expected: str, place: Path) -> None:
    file = declare(place, f'{{{said}, store = "main", idle_delete = "30d"}}')
    make(file, "idle")
    pass_days(file, 400)
    assert expected in why(file)


def test_the_longest_time_counts(place: Path) -> None:
    """One store may have two names."""
    often = [
        f'{{name = "idle", path = "/{days}", store = "{store}", read_only = false, idle_delete = "{days}d"}}'
        for store, days in (("main", 30), ("again", 90))
    ]
    file = declare(place, *often)
    file.write_text(file.read_text() + "again = './main'\n")
    make(file, "idle")
    pass_days(file, 40)
    assert why(file) == "it was used since"


def test_the_command(file: Path, run: Run) -> None:
    make(file, "idle")
    pass_days(file, 40)
    shown = run("clean", "-f", str(file), "--dry-run", "--exit-code")
    assert (shown.code, "idle" in shown.out) == (1, True)
    assert run("clean", "-f", str(file)).code == 2, "nobody can be asked"
    done = run("clean", "-f", str(file), "-y", "--json")
    assert (done.code, [each["volume"] for each in done.json["done"]]) == (0, ["idle"])
    check("clean", done.json)
    assert run("clean", "-f", str(file), "--dry-run", "--exit-code").code == 0


@pytest.mark.mount
def test_up_says_how_a_cleaned_volume_comes_back(file: Path, run: Run) -> None:
    """Not even `apply` makes an empty one in its place."""
    file.write_text(file.read_text().replace('"/', f'"{file.parent}/mnt/'))
    make(file, "idle", "other")
    pass_days(file, 40)
    assert run("clean", "-f", str(file), "-y").code == 0
    refused = run("apply", "-y", "-f", str(file))
    assert (refused.code, "was deleted" in refused.err) == (NotFoundError.exit_code, True)
    refused = run("up", str(file))
    assert (refused.code, "was deleted" in refused.err) == (NotFoundError.exit_code, True)
    [hinted] = re.findall(r"`cowfs (undelete [^`]+)`", refused.err)
    assert run(*shlex.split(hinted)).code == 0
    assert run("up", str(file)).code == 0
    try:
        assert (file.parent / "mnt" / "idle" / "f").read_bytes() == b"idle"
        assert "mounted at" in why(file)
    finally:
        run("down", str(file))
    assert why(file) == "it was used since"


@dataclass(frozen=True)
class Made:
    """A volume to make. Days are those since each use; None: there was none. A lease that is taken
    has no heartbeat; others have one, which is newer."""

    head_days: float
    lease: str | None
    lease_days: float
    tag: str | None
    pins: Sequence[tuple[PinKind, float]]
    mount: bool
    mounted_days: float | None
    work: bool

    @property
    def protections(self) -> set[str]:
        """What the plan has to name."""
        lives = {kind for kind, days in self.pins if kind == "hold" or days < 7}
        found = {"uncommitted work of" if kind == "hold" else f"a {kind} of" for kind in lives}
        if self.lease in ("taken", "renewed") and self.lease_days == 0:
            found.add("it is written to by")
        if self.tag == "set":
            found.add("tag t")
        if self.mount:
            found.add("mounted at")
        if self.work:
            found.add("uncommitted work in")
        return found

    @property
    def idle_days(self) -> float:
        uses = [self.head_days, *(days for _, days in self.pins)]
        uses += [self.lease_days] if self.lease is not None else []
        uses += [self.mounted_days] if self.mounted_days is not None else []
        return min(uses)


days = st.sampled_from([0, 3, 20, 40, 400])
volumes = st.builds(
    Made,
    head_days=st.sampled_from([20, 40, 400]),
    lease=st.sampled_from([None, None, "taken", "renewed", "released"]),
    lease_days=days,
    tag=st.sampled_from([None, None, "set", "removed"]),
    pins=st.lists(st.tuples(st.sampled_from(["writer", "reader", "hold"]), days), max_size=2),
    mount=st.sampled_from([False, False, False, True]),
    mounted_days=st.none() | days,
    work=st.sampled_from([False, False, False, True]),
)

UNUSED = Made(head_days=400, lease=None, lease_days=400, tag=None, pins=(), mount=False, mounted_days=None, work=False)
USED_IN_ONE_WAY = [
    replace(UNUSED, head_days=20),
    replace(UNUSED, lease="taken", lease_days=0),
    replace(UNUSED, lease="taken", lease_days=20),
    replace(UNUSED, lease="renewed", lease_days=0),
    replace(UNUSED, lease="released", lease_days=20),
    replace(UNUSED, tag="set"),
    replace(UNUSED, pins=[("writer", 20)]),
    replace(UNUSED, pins=[("reader", 3)]),
    replace(UNUSED, pins=[("hold", 400)]),
    replace(UNUSED, mount=True),
    replace(UNUSED, mounted_days=20),
    replace(UNUSED, work=True),
]
LONG_USED = [
    replace(UNUSED, lease="renewed", lease_days=40),
    replace(UNUSED, tag="removed"),
    replace(UNUSED, pins=[("reader", 40)]),
    replace(UNUSED, mounted_days=40),
]


def build(store: ObjectStore, root: Path, store_id: StoreId, name: str, origin: Locator, made: Made) -> None:
    fork_volume(store, name, origin)
    if made.tag is not None:
        tags.set_tag(store, name, "t", origin.version)
        if made.tag == "removed":
            tags.remove_tag(store, name, "t")
    grow_old(root / "volumes" / name, made.head_days)
    if made.lease is not None:
        lease = leases.acquire(store, name, current_holder("test"))
        is_heard = made.lease != "taken"
        if is_heard:
            lease.renew()
        if made.lease == "released":
            lease.release()
        grow_old(root / "volumes" / name / "lease", made.lease_days + 100 * is_heard)
        grow_old(root / "volumes" / name / "heartbeat", made.lease_days)
    for kind, age_days in made.pins:
        pin = Pin.create(store, volume=name, number=1, owner="test")
        if kind != "writer":
            pin.renew(kind=kind)
        grow_old(root / pin.key, age_days)
    if made.mounted_days is not None:
        last_mounts.note(store_id.hex(), name)
        path = config.state_dir() / "last_mounts" / store_id.hex() / name
        then_ns = clock.now_ns() - int(made.mounted_days * DAY_NS)
        os.utime(path, ns=(then_ns, then_ns))
    if made.work:
        [copy] = WorkingCopy.list_places(store_id, name)
        copy.journal_dir.mkdir(parents=True, mode=0o700)
        (copy.journal_dir / "0000000000000001.log").write_bytes(bytes(1000))
        assert copy.is_kept
    if made.mount:
        registry.register(
            registry.new_id(),
            mount_path=root.parent / name,
            socket=None,
            store_url=store.url,
            store_id=store_id.hex(),
            volume=name,
            version_id=origin.version.hex(),
            read_only=True,
            working_copy=None,
        )


def is_deleted(store: ObjectStore, name: str) -> bool:
    head = find_head(store, name)
    assert head is not None
    return head.is_deleted


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], print_blob=True)
@given(all_made=st.lists(volumes, min_size=1, max_size=4))
@example(all_made=[UNUSED, *USED_IN_ONE_WAY, *LONG_USED])
def test_nothing_protected_is_in_a_plan(all_made: list[Made], place: Path) -> None:
    project = place / clock.random_bytes(4).hex()
    project.mkdir()
    names = [f"v{number}" for number in range(len(all_made))]
    said = [
        f'{{name = "{name}", path = "/{name}", store = "main", read_only = false, idle_delete = "{IDLE_DAYS}d"}}'
        for name in names
    ]
    file = declare(project, *said)
    make(file, "origin")
    opened = stores.open_store(str(project / "main"))
    root, store_id = project / "main", opened.record.store_id
    head = read_head(opened.objects, "origin")
    assert head.version is not None
    origin = Locator(StoreUrl.parse(opened.url), "origin", head.version)
    for name, made in zip(names, all_made, strict=True):
        build(opened.objects, root, store_id, name, origin, made)
    found = plan(file)
    wanted = {
        name for name, made in zip(names, all_made, strict=True) if not made.protections and made.idle_days >= IDLE_DAYS
    }
    why = {step.volume: ", ".join(step.why) for step in found.steps}
    for name, made in zip(names, all_made, strict=True):
        assert all(each in why[name] for each in made.protections), (why[name], made)
    assert {step.volume for step in found.steps if step.action == "delete"} == wanted
    assert {step.volume for step in found.apply() if step.action == "delete"} == wanted
    assert not plan(file).has_changes
    for name in names:
        assert is_deleted(opened.objects, name) == (name in wanted)
    for entry in registry.list_mounts():
        registry.unregister(entry)
