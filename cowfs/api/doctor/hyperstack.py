"""Doctor's check of access keys that cowfs made at Hyperstack. It runs if HYPERSTACK_API_KEY is
set."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

from cowfs.api.doctor.check import OK, WARN, Check, failed
from cowfs.base.errors import CowfsError
from cowfs.store.credentials import hyperstack

API_KEY = "HYPERSTACK_API_KEY"


def checks() -> Sequence[Callable[[], Check]]:
    return (left_keys,) if os.environ.get(API_KEY) else ()


def left_keys() -> Check:
    name = "Hyperstack's access keys"
    try:
        found = list(hyperstack.list_keys(os.environ[API_KEY]))
    except CowfsError as error:
        return failed(name, error)
    left = [key for key in found if key.is_gone]
    if left:
        shown = ", ".join(f"{key.id} ({key.made_by})" for key in left)
        return Check(name, WARN, f"left by processes that have ended: {shown}", "Delete them in Hyperstack's console.")
    elsewhere = ", ".join(f"{key.id} ({key.made_by})" for key in found)
    return Check(name, OK, f"in use, or made where nobody here can look: {elsewhere}" if found else "none is left")
