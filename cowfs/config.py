"""Where things are unless the caller says otherwise: the default store, caches, working copies, sockets.

    what             first that is set                                                     holds
    default store    COWFS_STORE, `store` in config.toml, file://<data home>/cowfs/store   volumes
    cache directory  COWFS_CACHE_DIR/cache, <cache home>/cowfs                             may be deleted at any time
    state directory  COWFS_CACHE_DIR/state, <state home>/cowfs                             working copies: uncommitted data
    runtime          <XDG_RUNTIME_DIR>/cowfs, <temporary directory>/cowfs-<uid>            control sockets, owner only

`<… home>` are the XDG base directories; config.toml is `<config home>/cowfs/config.toml`.
Nothing here touches the network; only `runtime_dir` creates a directory.
"""

from __future__ import annotations

import os
import stat
import tempfile
import tomllib
from pathlib import Path

from cowfs.errors import AccessDeniedError, InvalidInputError


def _xdg(variable: str, fallback: str) -> Path:
    value = os.environ.get(variable)
    return Path(value) if value else Path.home() / fallback


def config_file() -> Path:
    return _xdg("XDG_CONFIG_HOME", ".config") / "cowfs" / "config.toml"


def default_store() -> str:
    """URL of the store used when none is given."""
    if url := os.environ.get("COWFS_STORE"):
        return url
    path = config_file()
    if path.exists():
        try:
            url = tomllib.loads(path.read_text()).get("store")
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise InvalidInputError(
                f"{path} is not valid TOML: {error}", hint="Correct the file or remove it."
            ) from error
        if url:
            return str(url)
    return (_xdg("XDG_DATA_HOME", ".local/share") / "cowfs" / "store").absolute().as_uri()


def cache_dir() -> Path:
    base = os.environ.get("COWFS_CACHE_DIR")
    return Path(base).absolute() / "cache" if base else (_xdg("XDG_CACHE_HOME", ".cache") / "cowfs").absolute()


def state_dir() -> Path:
    base = os.environ.get("COWFS_CACHE_DIR")
    return Path(base).absolute() / "state" if base else (_xdg("XDG_STATE_HOME", ".local/state") / "cowfs").absolute()


def runtime_dir() -> Path:
    """The directory of control sockets: created with mode 0700; one that somebody else owns is refused."""
    base = os.environ.get("XDG_RUNTIME_DIR")
    path = Path(base) / "cowfs" if base else Path(tempfile.gettempdir()) / f"cowfs-{os.getuid()}"
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        raise AccessDeniedError(
            f"{path} is not a directory of user {os.getuid()}",
            hint="Remove it, or set XDG_RUNTIME_DIR to a directory of yours.",
        )
    if found.st_mode & 0o077:
        path.chmod(0o700)
    return path
