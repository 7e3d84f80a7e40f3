"""`holdfast drill`: the user's own job, broken on purpose -> which promises are kept."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.analysis.drill.outcome import DrillReport, DrillRow
    from holdfast.analysis.drill.rehearsal import DrillPlan
    from holdfast.drill.scripted import plan, rehearse

__all__ = ["DrillPlan", "DrillReport", "DrillRow", "plan", "rehearse"]

_HOME = {
    "DrillPlan": "analysis.drill.rehearsal",
    "DrillReport": "analysis.drill.outcome",
    "DrillRow": "analysis.drill.outcome",
    "plan": "drill.scripted",
    "rehearse": "drill.scripted",
}


if not TYPE_CHECKING:  # a type checker sees the real names above, and no others

    def __getattr__(name: str) -> object:
        """The names for scripts, imported when used."""
        if name not in _HOME:
            raise AttributeError(f"module 'holdfast.drill' has no attribute {name!r}")
        return getattr(import_module(f"holdfast.{_HOME[name]}"), name)
