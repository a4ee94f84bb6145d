"""Default locations: the default store, caches, working copies, sockets.

    what             first that is set                                                     holds
    default store    COWFS_STORE, `store` in config.toml, file://<data home>/cowfs/store   volumes
    cache directory  COWFS_CACHE_DIR/cache, <cache home>/cowfs                             may be deleted at any time
    state directory  COWFS_STATE_DIR, <state home>/cowfs                                   working copies: uncommitted data
    store timeout    COWFS_STORE_TIMEOUT, `store_timeout` in config.toml, 900 s              how long a silent store is waited for
    runtime          <XDG_RUNTIME_DIR>/cowfs, <temporary directory>/cowfs-<uid>            control sockets, owner only

XDG_RUNTIME_DIR goes with the user's last login, and processes that stay keep the name. They use the
temporary directory until it is there again.

`<… home>` are the XDG base directories; config.toml is `<config home>/cowfs/config.toml`.
Nothing here touches the network; only `runtime_dir` creates a directory.
"""

from __future__ import annotations

import errno
import math
import os
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import platformdirs

from cowfs.base import private_directories
from cowfs.base.errors import AccessDeniedError, CowfsError, InvalidInputError, unreadable, unusable

STORE_TIMEOUT_S = 900.0
KEYS = ("store", "store_timeout", "stores", "trusted_endpoints")
"""The keys of config.toml. An unknown one is refused: with a misspelt `store`, data would go to
another place."""


def config_file() -> Path:
    return _of_user(platformdirs.user_config_path, "XDG_CONFIG_HOME") / "config.toml"


def _of_user(find: Callable[[str], Path], otherwise: str) -> Path:
    """AccessDeniedError: this user's directories are unknown, as for a user id without a name on
    this machine. otherwise: the setting that names them instead."""
    try:
        return find("cowfs")
    except RuntimeError as error:
        raise AccessDeniedError(
            f"user {os.getuid()} has no home directory on this machine",
            hint=f"Set HOME to a directory of yours, or {otherwise}.",
        ) from error


def _settings() -> dict[str, Any]:
    """The content of config.toml; empty without that file."""
    try:
        path = config_file()
    except AccessDeniedError:  # no directory for one
        return {}
    found = _load(path)
    if unknown := sorted(found.keys() - KEYS):
        raise InvalidInputError(
            f"{path} has an unknown key: {unknown[0]}", hint=f"Correct or remove it. Keys: {', '.join(KEYS)}."
        )
    return found


def _load(path: Path) -> dict[str, Any]:
    """The content of a TOML file; empty without that file."""
    try:
        text = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as error:
        raise unreadable(error, f"{path} cannot be read", hint="Make it readable, or set XDG_CONFIG_HOME.") from error
    from cowfs.base import toml

    try:
        return toml.parse(text.decode())
    except ValueError as error:
        raise InvalidInputError(f"{path} is not valid TOML: {error}", hint="Correct the file or remove it.") from error


def default_store() -> str:
    """URL of the store used when none is given."""
    if url := os.environ.get("COWFS_STORE"):
        return url
    if url := _settings().get("store"):
        if not isinstance(url, str):
            raise InvalidInputError(f"store in {config_file()} is {url!r}", hint="Give a URL or a directory, as text.")
        return url
    return (data_dir() / "store").absolute().as_uri()


def data_dir() -> Path:
    """The directory of the default store, for its owner alone: it holds copies of private files."""
    return _not_of_a_user(_of_user(platformdirs.user_data_path, "name a store (--store, COWFS_STORE)"))


def is_in_data_dir(path: Path) -> bool:
    try:
        _of_user(platformdirs.user_data_path, "")
    except AccessDeniedError:
        return False
    return path.is_relative_to(data_dir())


def home_dir() -> Path:
    return _of_user(lambda _: Path.home(), "give a path")


def _expand_user(path: str) -> Path:
    return _of_user(lambda _: Path(path).expanduser(), f"write out the ~ of {path}")


def limit_memory(most_bytes: int) -> None:
    """Versions that this process opens from now on keep less in memory: as if it might take so many
    bytes. For a process that has many open."""
    global memory_limit_bytes
    memory_limit_bytes = most_bytes


memory_limit_bytes: int | None = None


def store_timeout_s() -> float:
    """How long to wait for a store that does not answer, without any success in between. Applies to
    mounts, commits and transfers; commands and openings wait at most
    `store.reliability.patience.BRIEF_S`."""
    if text := os.environ.get("COWFS_STORE_TIMEOUT"):
        name, value = "COWFS_STORE_TIMEOUT", text
    elif (found := _settings().get("store_timeout")) is not None:
        name, value = f"store_timeout in {config_file()}", str(found)
    else:
        return STORE_TIMEOUT_S
    try:
        seconds = float(value)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds < math.inf:
        raise InvalidInputError(f"{name} is {value!r}", hint="Give seconds, 0 or more.")
    return seconds


def named_stores() -> tuple[dict[str, Any], dict[str, Any]]:
    """Stores by name: those written by hand, in the table [stores] of volumes.toml or config.toml,
    and those of the file that `cowfs store add` writes."""
    try:
        volumes = volumes_file()
    except AccessDeniedError:  # no directory for these files
        return {}, {}
    by_hand: dict[str, Any] = {}
    for file, settings in ((volumes, _load(volumes)), (config_file(), _settings())):
        stores = settings.get("stores", {})
        if not isinstance(stores, dict):
            raise InvalidInputError(
                f"stores in {file} is not a table", hint='Write [stores], and below it name = "URL".'
            )
        by_hand |= stores
    return by_hand, _load(stores_file())


def volumes_file() -> Path:
    """The user's own declaration of volumes."""
    return config_file().with_name("volumes.toml")


def stores_file() -> Path:
    return config_file().with_name("stores.toml")


def load_endpoints() -> list[str]:
    """Servers that may get credentials even if only a locator names them: from config.toml and the
    file beside it."""
    found = _settings().get("trusted_endpoints", [])
    if not isinstance(found, list) or not all(isinstance(each, str) for each in found):
        raise InvalidInputError(
            f"trusted_endpoints in {config_file()} is not a list of texts",
            hint='For example trusted_endpoints = ["https://minio.example.org"].',
        )
    try:
        lines = endpoints_file().read_text().splitlines()
    except (OSError, UnicodeDecodeError, AccessDeniedError):
        lines = []
    return [*found, *(line.strip() for line in lines if line.strip() and not line.startswith("#"))]


def endpoints_file() -> Path:
    return config_file().with_name("trusted_endpoints")


def cache_dir() -> Path:
    """AccessDeniedError: it is not private (`private_directories.require`)."""
    base = os.environ.get("COWFS_CACHE_DIR")
    if base:
        return private_directories.require(_expand_user(base).absolute() / "cache")
    usual = _not_of_a_user(_of_user(platformdirs.user_cache_path, "COWFS_CACHE_DIR or XDG_CACHE_HOME").absolute())
    private_directories.require(usual.resolve())  # a link there is the user's own
    return usual


def state_dir() -> Path:
    """Not below the cache directory, since users delete caches. Others may be able to write to the
    directory itself; `state_subdirectory` returns its private subdirectories."""
    base = os.environ.get("COWFS_STATE_DIR")
    if base:
        return _expand_user(base).absolute()
    return _not_of_a_user(_of_user(platformdirs.user_state_path, "COWFS_STATE_DIR or XDG_STATE_HOME").absolute())


def state_subdirectory(name: str) -> Path:
    """A subdirectory that is absent or private; `private_directories.make` makes it."""
    return private_directories.require(state_dir() / name)


def _not_of_a_user(usual: Path) -> Path:
    """Refuses to let root use a directory of another user, which `sudo -E` and `su` leave in the
    environment: the user could not read entries that root made there. Root makes a missing
    directory unless its parent belongs to the user that called sudo: in containers, home
    directories may belong to other users."""
    if os.geteuid() == 0:
        owner = _owner(usual)
        if owner is None and (caller := os.environ.get("SUDO_UID", "0")) != "0":
            owner = next((found for above in usual.parents if (found := _owner(above)) is not None), None)
            owner = owner if str(owner) == caller else None
        if owner:
            raise AccessDeniedError(
                f"{usual} is of user {owner}, and this is root",
                hint="Work as that user. As root, `sudo -i` and `su -` set HOME and related variables; or set COWFS_STATE_DIR, "
                "COWFS_CACHE_DIR and COWFS_STORE.",
            )
    return usual


def _owner(path: Path) -> int | None:
    """None: it does not exist, or its owner cannot be determined."""
    try:
        return path.stat().st_uid
    except OSError:
        return None


def list_directory(directory: Path) -> list[Path]:
    """The entries of one of these directories, or of one below it; [] without such a directory.
    AccessDeniedError, UnavailableError: it cannot be listed."""
    try:
        return sorted(directory.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise inaccessible(directory, error) from error


def is_there(path: Path) -> bool:
    """Whether the file exists. AccessDeniedError, UnavailableError: that cannot be determined."""
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise inaccessible(path, error) from error
    return True


def inaccessible(path: Path, error: OSError) -> CowfsError:
    return unreadable(
        error,
        f"{path} cannot be read by user {os.getuid()}",
        hint="Set COWFS_STATE_DIR (or XDG_STATE_HOME), COWFS_CACHE_DIR and XDG_RUNTIME_DIR to directories of yours, or "
        "correct the owner of this one. `sudo -E` and `su` keep the settings of the user before.",
    )


def find_write_refusal(directory: Path) -> OSError | None:
    """The reason why no file can be made in it; None: no reason is known without trying."""
    if os.access(directory, os.W_OK | os.X_OK):
        return None
    number = errno.EROFS if os.statvfs(directory).f_flag & os.ST_RDONLY else errno.EACCES
    return OSError(number, os.strerror(number))


def runtime_dir() -> Path:
    """The directory of control sockets, created with mode 0700. A directory of another owner is
    refused."""
    if (base := os.environ.get("XDG_RUNTIME_DIR")) and _is_there_or_made(Path(base)):
        path = Path(base) / "cowfs"
        _require_own(Path(base))
    else:
        above = temporary_dir("control sockets", "Set XDG_RUNTIME_DIR to a directory of yours.")
        path = above / f"cowfs-{os.getuid()}"
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = path.lstat()
    except OSError as error:
        elsewhere = "set XDG_RUNTIME_DIR to a directory of yours, or unset it."
        raise unusable(error, f"{path} cannot be used for control sockets", elsewhere=elsewhere) from error
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        raise AccessDeniedError(
            f"{path} is not a directory of user {os.getuid()}",
            hint="Remove it, or set XDG_RUNTIME_DIR to a directory of yours.",
        )
    if found.st_mode & 0o077:
        path.chmod(0o700)
    return path


def temporary_dir(what: str = "temporary files", hint: str = "Set TMPDIR to a directory of yours.") -> Path:
    """As `tempfile` chooses it. AccessDeniedError: no temporary directory of this machine is
    writable."""
    try:
        return Path(tempfile.gettempdir())
    except FileNotFoundError as error:
        raise AccessDeniedError(f"there is no place for {what}: {error.strerror}", hint=hint) from error


def _is_there_or_made(runtime: Path) -> bool:
    try:
        runtime.lstat()
    except FileNotFoundError:
        try:
            runtime.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError:
            return False
    except OSError:
        return True  # the caller that needs it reports the error
    return True


def _require_own(runtime: Path) -> None:
    """Refuses another user's private directory, which `sudo -E` and `su` leave in the environment:
    entries that root made there would obstruct that user."""
    try:
        found = runtime.stat()
    except OSError:
        return  # the caller that needs it makes it, or reports the error
    if found.st_uid != os.getuid() and not found.st_mode & 0o077:
        raise AccessDeniedError(
            f"XDG_RUNTIME_DIR is {runtime}, a private directory of user {found.st_uid}; this is user {os.getuid()}",
            hint="Unset XDG_RUNTIME_DIR, or set it to a directory of yours. `sudo -E` and `su` keep the one of the user "
            "before: `sudo -i` and `su -` do not.",
        )
