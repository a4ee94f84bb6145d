"""A declaring file that was found and not named mounts below its own directory only, until it is
allowed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cowfs.api.declared import mounting
from cowfs.blocking import Declared, Volume
from cowfs.errors import AccessDeniedError, InvalidInputError
from cowfs.machine import allowed, registry


def declare(project: Path, path: str, *, name: str = '"data"', store: str = "./store") -> None:
    text = (
        f'volumes = [{{name = {name}, path = "{path}", store = "main", read_only = false}}]\nstores.main = "{store}"\n'
    )
    (project / "cowfs.toml").write_text(text)


def refusal(*, mounts: bool = True) -> InvalidInputError:
    with pytest.raises(InvalidInputError, match="was merely found") as caught:
        Declared.load().plan(mounts=mounts)
    assert f"cowfs allow {Declared.load().file}" in caught.value.hint
    assert f"Declared.load('{Declared.load().file}')" in caught.value.hint
    return caught.value


def test_a_found_file_mounts_below_its_own_directory_only(project: Path, tmp_path: Path) -> None:
    declare(project, str(project / "data"))
    assert [step.action for step in Declared.load().plan().steps] == ["create", "mount"]
    (tmp_path / "home").mkdir()
    declare(project, str(tmp_path / "home" / ".ssh"))
    assert refusal().details["asked"] == [f"it mounts at {tmp_path}/home/.ssh"]
    with pytest.raises(InvalidInputError, match="was merely found"):
        Declared.load().up()
    assert not (project / "store").exists()
    assert Declared.load().plan(mounts=False).steps[0].action == "create"
    assert len(Declared.load("cowfs.toml").plan().steps) == 2, "a named one is believed"


def test_a_found_file_drops_no_work(project: Path) -> None:
    declare(project, str(project / "data"))
    file = project / "cowfs.toml"
    file.write_text(file.read_text().replace("read_only = false", 'read_only = false, uncommitted = "discard"'))
    assert refusal().details["asked"] == ["it drops uncommitted work of volume data"]
    Declared.load().plan(mounts=False)


def test_a_link_that_leads_out_of_the_directory_is_outside(project: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (project / "above").symlink_to(outside)
    (project / "itself").symlink_to(outside / "new")
    for path in ("above/data", "itself"):
        declare(project, str(project / path))
        assert "which leads to" in refusal().message
    (tmp_path / "project-2").mkdir()
    declare(project, str(tmp_path / "project-2" / "data"))
    refusal()


def test_the_directory_of_a_found_file_may_be_reached_through_links(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "link").symlink_to(project)
    monkeypatch.chdir(tmp_path / "link")
    declare(project, str(tmp_path / "link" / "data"))
    assert [step.action for step in Declared.load().plan().steps] == ["create", "mount"]


@pytest.mark.mount
def test_a_candidate_does_not_go_through_a_link_to_another_candidate(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The link looks like the one that mounts the first candidate, which is missing."""
    (project := place / "project").mkdir()
    with Volume.new("data") as volume:
        (volume.path / "authorized_keys").write_text("key")
        volume.commit("made")
    secret = place / "outside" / "ssh"
    secret.parent.mkdir()
    (project / "data").symlink_to(secret)
    (project / "cowfs.toml").write_text(
        f'volumes = [{{name = ["{secret}", "data"], path = "{project}/data", read_only = false}}]\n'
    )
    monkeypatch.chdir(project)
    with pytest.raises(InvalidInputError, match="was merely found"):
        mounting.up(Declared.load())
    assert not secret.exists()
    assert registry.list_mounts() == []


@pytest.mark.parametrize(
    ("text", "asked"),
    [
        ('stores.main = "file:///srv/store"', "it opens the store /srv/store"),
        ('stores.main = {preset = "local", path = "../store"}', "it opens the store "),
        ('stores.main = "./elsewhere/store"', "it opens the store /srv/store"),
        ('stores.main = {url = "s3://b/p", access_key = {file = "/etc/k"}, secret_key = {env = "K"}}', "a secret from /etc/k"),
        ('stores.main = "s3://b/p"\nvolumes = [{name = "a-{env.HOME_PAGE}", path = "HERE/a", store = "main"}]', "HOME_PAGE"),
    ],
)  # fmt: skip
def test_what_else_a_found_file_must_be_allowed(
    project: Path, monkeypatch: pytest.MonkeyPatch, text: str, asked: str
) -> None:
    monkeypatch.setenv("HOME_PAGE", "x")
    (project / "elsewhere").symlink_to("/srv")
    (project / "cowfs.toml").write_text(text.replace("HERE", str(project)))
    assert asked in refusal(mounts=False).message


def test_an_allowed_file_counts_as_named_until_it_changes(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    declare(project, str(tmp_path / "data"))
    file = project / "cowfs.toml"
    Declared.load(file).allow()
    assert not Declared.load().is_merely_found
    assert len(Declared.load().plan().steps) == 2
    copy = tmp_path / "project" / "sub" / "cowfs.toml"
    copy.parent.mkdir()
    copy.write_bytes(file.read_bytes())
    monkeypatch.chdir(copy.parent)
    refusal()
    monkeypatch.chdir(project)
    file.write_text(file.read_text() + "# more\n")
    refusal()
    allowed.place_of(file).write_text("damaged")
    refusal()


@pytest.mark.parametrize(("mode", "who"), [(0o666, "anybody"), (0o664, "the group"), (0o660, "the group")])
def test_what_others_may_write_is_not_merely_found(project: Path, mode: int, who: str) -> None:
    file = project / "cowfs.toml"
    file.write_text("")
    file.chmod(mode)
    with pytest.raises(AccessDeniedError, match=f"cowfs.toml may be written by {who}"):
        Declared.load()
    assert Declared.load(file).volumes == ()
    Declared.load(file).allow()
    assert Declared.load().volumes == ()
    file.chmod(0o644)
    file.write_text("# changed\n")
    project.chmod(0o755 | mode & 0o022)
    with pytest.raises(AccessDeniedError, match=f"project may be written by {who}"):
        Declared.load()
    project.chmod(0o1777)
    assert Declared.load().volumes == (), "in a sticky directory nobody else can replace it"


@pytest.mark.parametrize("moment", ["before it is opened", "after"])
def test_the_owner_counts_that_the_read_content_had(
    project: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """Another user's file, which is there for an instant."""
    file, other, real = project / "cowfs.toml", project / "other", Path.open
    ours = 'root = "ours"\n'

    def met(self: Path, *arguments: Any, **named: Any) -> Any:
        if self != file:
            return real(self, *arguments, **named)
        monkeypatch.setattr(Path, "open", real)
        if moment == "before it is opened":
            other.replace(file)
        opened = real(self, *arguments, **named)
        (project / "ours").write_text(ours)
        (project / "ours").replace(file)
        return opened

    (file if moment == "after" else other).write_text('root = "other"\n')
    (file if moment == "after" else other).chmod(0o666)
    if moment == "before it is opened":
        file.write_text(ours)
    monkeypatch.setattr(Path, "open", met)
    with pytest.raises(AccessDeniedError, match="may be written by anybody"):
        Declared.load()
    assert file.read_text() == ours
    assert Declared.load().root == str(project / "ours")
