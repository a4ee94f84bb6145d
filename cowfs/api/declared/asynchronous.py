"""The async twins of `Declared` and its `Plan`, as in `cowfs.api.asynchronous`. They have a module
of their own because they load pydantic."""

from cowfs.api.declared import cleaning, declared, plan
from cowfs.api.twins.twin import make

__all__ = ["CleanPlan", "Declared", "Plan"]

Declared = make(declared.Declared, __name__)
Plan = make(plan.Plan, __name__)
CleanPlan = make(cleaning.CleanPlan, __name__)
