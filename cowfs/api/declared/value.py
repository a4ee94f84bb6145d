"""The base class of declared values. They are frozen, refuse unknown keys, and raise the errors of
cowfs."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from cowfs.api.declared import problems


class Value(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, hide_input_in_errors=True)

    def __init__(self, /, **given: Any) -> None:
        try:
            super().__init__(**given)
        except ValidationError as error:
            title, found = type(self).__name__, problems.found_in(error, self.keys_at)
            raise problems.raised(found, lambda _: title) from None

    __init__.__pydantic_base_init__ = True  # type: ignore[attr-defined]  # else pydantic calls it for nested values, too

    @classmethod
    def keys_at(cls, path: problems.Path) -> list[str]:
        """The keys allowed in the table at this path of the value."""
        return list(cls.model_fields)
