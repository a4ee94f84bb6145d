"""Directories of this user alone, below one that everybody may write to."""

from __future__ import annotations

import os
import subprocess
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest

from cowfs.base import config, private_directories
from cowfs.errors import AccessDeniedError
from cowfs.index.cache import BlockCache
from cowfs.machine import allowed, known_stores, meta_dirs, registry, working_copy
from cowfs.writer.acquiring import check_cache_dir
from tests.hostile.other_user import UID

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user")


def as_other(act: Callable[[], object]) -> None:
    """Calls it in a process of another user, who has no rights here but those of others."""
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setgid(UID)
            os.setuid(UID)
            os.umask(0)
            act()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.fixture
def named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What both settings name: as a volume of a container is, everybody may write to it."""
    for above in (tmp_path, *tmp_path.parents[:3]):  # a worker of xdist has one more
        above.chmod(above.stat().st_mode | 0o111)
    named = tmp_path / "named"
    named.mkdir()
    named.chmod(0o777)
    monkeypatch.setenv("COWFS_STATE_DIR", str(named))
    monkeypatch.setenv("COWFS_CACHE_DIR", str(named))
    return named


USES: dict[str, Callable[[Path], object]] = {
    "cache": lambda _: config.cache_dir(),
    "cache/segments": lambda named: check_cache_dir(named / "cache"),
    "cache/whole": lambda named: check_cache_dir(named / "cache"),
    "cache/blocks": lambda named: BlockCache(named / "cache"),
    "working": lambda _: working_copy.list_working_copies(),
    "mounts": lambda _: registry.list_mounts(),
    "elsewhere": lambda _: meta_dirs.list_remembered(),
    "declared": lambda named: allowed.is_allowed(named / "cowfs.toml", b""),
    "stores": lambda _: known_stores.note("file:///store"),
}
KINDS: dict[str, Callable[[Path, Path], None]] = {
    "a directory of theirs": lambda place, _: place.mkdir(),
    "a link of theirs": lambda place, canary: place.symlink_to(canary),
    "a link that leads nowhere": lambda place, _: place.symlink_to("/nowhere/at/all"),
    "a pipe": lambda place, _: os.mkfifo(place),
}
PLANTED = [(place, kind) for place in USES for kind in KINDS]


@pytest.mark.parametrize(("place", "kind"), PLANTED)
def test_what_another_user_has_put_there_is_refused(named: Path, place: str, kind: str) -> None:
    if (above := (named / place).parent) != named:
        above.mkdir(mode=0o700)
        above.chmod(0o777)
    canary = named.parent / "canary"
    canary.mkdir()
    as_other(lambda: KINDS[kind](named / place, canary))
    if above != named:
        above.chmod(0o700)
    with pytest.raises(AccessDeniedError, match=str(named / place)) as caught:
        USES[place](named)
    assert f"user {UID}" in caught.value.message
    assert "COWFS_STATE_DIR" in caught.value.hint
    assert not list(canary.iterdir())


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o2775])
@pytest.mark.parametrize("place", USES)
def test_what_others_can_write_to_is_refused_until_they_cannot(named: Path, place: str, mode: int) -> None:
    private_directories.make_unchecked(named / place)
    (named / place).chmod(mode)
    with pytest.raises(AccessDeniedError, match=f"has mode {mode:04o}") as caught:
        USES[place](named)
    assert f"chmod -R go-w {named / place}" in caught.value.hint
    subprocess.run(["chmod", "-R", "go-w", named / place], check=True)
    USES[place](named)


def test_what_is_made_is_private_whatever_the_umask(named: Path) -> None:
    before = os.umask(0)
    try:
        check_cache_dir(named / "made" / "cache")
        private_directories.make(named / "state" / "working")
        meta_dirs.remember(named / "elsewhere-of-a-mount")
    finally:
        os.umask(before)
    made = [*named.rglob("*")]
    assert {path.stat().st_mode & 0o777 for path in made if path.is_dir()} == {0o700}
    assert named / "made" / "cache" / "segments" in made


def test_a_user_may_use_what_root_has_made(named: Path) -> None:
    """Of an image: read-only for the user that the container runs as."""
    (named / "working").mkdir(mode=0o755)

    def use() -> None:
        private_directories.require(named / "working")
        private_directories.make(named / "mine")

    as_other(use)
    assert (named / "mine").stat().st_uid == UID


@pytest.mark.parametrize("is_sticky", [True, False])
def test_a_directory_that_another_user_made_where_all_may_is_refused(named: Path, *, is_sticky: bool) -> None:
    """Its owner could put another one in the place of what was checked."""
    named.chmod(0o1777 if is_sticky else 0o777)
    as_other((named / "theirs").mkdir)
    with pytest.raises(AccessDeniedError, match=f"{named / 'theirs'} is of user {UID}"):
        check_cache_dir(named / "theirs" / "deep")


def test_a_directory_of_a_user_is_fine_where_others_make_none(named: Path) -> None:
    """As a container has it whose root works in a directory of the host's user."""
    (named.parent / "theirs").mkdir()
    os.chown(named.parent / "theirs", UID, UID)
    check_cache_dir(named.parent / "theirs" / "cache")


def test_the_users_own_link_to_the_cache_is_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COWFS_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "cowfs").symlink_to(tmp_path / "disk")
    (tmp_path / "disk").mkdir(mode=0o700)
    check_cache_dir(config.cache_dir())
    assert (tmp_path / "disk" / "segments").is_dir()
    (tmp_path / "disk").chmod(0o777)
    with pytest.raises(AccessDeniedError, match=f"write to {tmp_path / 'disk'}"):
        config.cache_dir()


def test_a_link_to_a_directory_that_another_user_has_made_where_all_may_is_refused(named: Path, tmp_path: Path) -> None:
    as_other((named / "theirs").mkdir)
    link = tmp_path / "link"
    link.symlink_to(named / "theirs")
    with pytest.raises(AccessDeniedError, match=f"theirs is of user {UID}"):
        private_directories.make(link / "working")
