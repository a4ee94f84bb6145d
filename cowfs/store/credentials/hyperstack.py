"""Access keys of Hyperstack's object storage, which its API makes and deletes: for tasks that have
an API key only, and must leave no access key behind.

    POST    /object-storage/access-keys         {region, description} → {id, access_key, secret_key, …}
    GET     /object-storage/access-keys?page=N  {access_keys: [{id, description, …}], meta: {total_pages}}, without secrets
    DELETE  /object-storage/access-keys/ID

As its documentation and its Python client have it; not tried with an account. A key is made when it
is first needed, and deleted at the end of the process that made it. Its description says which
process that is, so that `orphans` finds keys of processes that were killed, with no record on any
disk.
"""

from __future__ import annotations

import atexit
import json
import os
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from cowfs.base import log, redaction
from cowfs.base.errors import AccessDeniedError, CowfsError, InvalidStateError, UnavailableError
from cowfs.base.fast_dataclass import dataclass
from cowfs.base.fork_locks import ForkLock
from cowfs.base.hints import Command
from cowfs.machine import proc, processes

if TYPE_CHECKING:
    from urllib.error import HTTPError

API = "https://infrahub-api.nexgencloud.com/v1"
KEYS = "/object-storage/access-keys"
ANSWER_S = 15.0
LEAVING_S = 5.0
PAGES_MAX = 1000
MARK = "cowfs"

ApiKey = str | Callable[[], str]
_log = log.get("store")


@dataclass(frozen=True)
class ListedKey:
    """One of the account's keys that cowfs made. is_gone: its process ran on this machine, since
    this boot, and runs no more."""

    id: int
    made_by: str
    is_gone: bool


class MadeKeys:
    """One access key, made by the first call that asks for it. Any thread may ask."""

    def __init__(self, region: str, api_key: ApiKey) -> None:
        self._region = region
        self._api_key = api_key
        self._lock = threading.Lock()
        self._made: dict[str, Any] | None = None
        self._pid = 0

    def access_key(self) -> str:
        return str(self._get()["access_key"])

    def secret_key(self) -> str:
        return str(self._get()["secret_key"])

    def _get(self) -> dict[str, Any]:
        with self._lock:
            if self._made is None:
                asked = {"region": self._region, "description": _description()}
                made = _ask("POST", KEYS, self._api_key, asked)
                if not all(isinstance(made.get(name), kind) for name, kind in _MADE):
                    raise UnavailableError("Hyperstack's API made an access key in a form that is not known")
                redaction.hide(made["secret_key"])
                self._made, self._pid = made, os.getpid()
                atexit.register(self.delete)
            return self._made

    def delete(self) -> None:
        """By the process that made it; a child that was forked leaves it alone."""
        with self._lock:
            made, self._made = self._made, None
            if made is None or self._pid != os.getpid():
                return
            try:
                _ask("DELETE", f"{KEYS}/{made['id']}", self._api_key, limit_s=LEAVING_S)
            except CowfsError as error:
                _log.warning(
                    "Hyperstack's access key %d could not be deleted, %s lists it: %s",
                    made["id"],
                    Command("doctor"),
                    error,
                )


_MADE = (("id", int), ("access_key", str), ("secret_key", str))
_all: dict[tuple[str, ApiKey], MadeKeys] = {}
_all_lock = ForkLock()


def keys_of(region: str, api_key: ApiKey) -> MadeKeys:
    """The same for the same region and API key, so that one key serves all stores of a process."""
    with _all_lock:
        return _all.setdefault((region, api_key), MadeKeys(region, api_key))


def list_keys(api_key: ApiKey) -> Iterator[ListedKey]:
    """The account's keys that cowfs made, on any machine."""
    for page in range(1, PAGES_MAX):
        answer = _ask("GET", f"{KEYS}?page={page}", api_key)
        for key in answer.get("access_keys", []):
            words = str(key.get("description") or "").split()
            if len(words) == len(_description().split()) and words[0] == MARK and isinstance(key.get("id"), int):
                yield ListedKey(key["id"], f"process {words[2]} of {words[1]}", _is_gone(words))
        if page >= answer.get("meta", {}).get("total_pages", 1):
            return


def _description() -> str:
    """Which process this is: host, number, start, machine and boot, without spaces in any."""
    pid = os.getpid()
    words = (MARK, os.uname().nodename, str(pid), _start_of(pid), processes.machine_id(), processes.boot_id())
    return " ".join("-".join(word.split()) for word in words)


def _is_gone(words: list[str]) -> bool:
    pid, started, *place = words[2:]
    is_judged = place == _description().split()[4:] and proc.is_own()
    return is_judged and pid.isdigit() and started.isdigit() and not processes.is_running(int(pid), int(started))


def _start_of(pid: int) -> str:
    return str(processes.start_time(pid) or 0)


def _ask(
    method: str, path: str, api_key: ApiKey, body: dict[str, str] | None = None, *, limit_s: float = ANSWER_S
) -> dict[str, Any]:
    """AccessDeniedError: the API key is refused. InvalidStateError: the request is.
    UnavailableError: no answer."""
    import urllib.error
    import urllib.request

    key = api_key if isinstance(api_key, str) else api_key()
    redaction.hide(key)
    request = urllib.request.Request(API + path, method=method)
    request.add_header("api_key", key)
    if body is not None:
        request.data = json.dumps(body).encode()
        request.add_header("Content-Type", "application/json")
    try:
        with urllib.request.urlopen(request, timeout=limit_s) as answer:
            found = json.loads(answer.read() or b"{}")
    except urllib.error.HTTPError as error:
        with error:
            raise _map_refusal(error) from None
    except (OSError, ValueError) as error:
        raise UnavailableError(
            f"Hyperstack's API does not answer: {redaction.describe_error(error)}", hint="Try again; nothing is lost."
        ) from None
    return found if isinstance(found, dict) else {}


def _map_refusal(error: HTTPError) -> CowfsError:
    try:
        said = str(json.loads(error.read()).get("message") or error.reason)
    except (OSError, ValueError, AttributeError):
        said = error.reason
    if error.code in (401, 403):
        return AccessDeniedError(
            f"Hyperstack's API refuses the API key: {said}", hint="Its console makes them: API Keys, below Manage."
        )
    if error.code >= 500 or error.code == 429:
        return UnavailableError(f"Hyperstack's API cannot answer: {said}", hint="Try again; nothing is lost.")
    return InvalidStateError(
        f"Hyperstack's API refuses to make or delete an access key: {said}",
        hint="`HYPERSTACK_API_KEY=… cowfs doctor` lists keys that were left; its console deletes them.",
    )
