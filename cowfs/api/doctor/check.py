"""The result of a check of `cowfs doctor`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal

from cowfs.base.errors import CowfsError
from cowfs.base.short_repr import has_card

State = Literal["ok", "warn", "fail"]
OK: Final = "ok"
WARN: Final = "warn"
FAIL: Final = "fail"

LOW_DISK_BYTES = 1 << 30


@has_card
@dataclass(frozen=True)
class Check:
    """name: the subject of the check. message: the result. hint: advice. kind: the error kind of a
    failure."""

    name: str
    state: State
    message: str
    hint: str = ""
    kind: str = ""
    exit_code: int = 0

    def to_record(self) -> dict[str, Any]:
        return {"check": self.name, "state": self.state, "message": self.message, "hint": self.hint, "kind": self.kind}


def failed(name: str, error: CowfsError) -> Check:
    return Check(name, FAIL, error.message, error.hint, error.kind, error.exit_code)
