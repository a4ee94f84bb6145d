"""The async twins of `Declared` and its `Plan`, as in `cowfs.api.asynchronous`. They have a module
of their own because they load pydantic."""

from cowfs.api.declared import declared, plan
from cowfs.api.twins.twin import make

__all__ = ["Declared", "Plan"]

Declared = make(declared.Declared, __name__)
Plan = make(plan.Plan, __name__)
