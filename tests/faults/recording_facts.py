"""The facts of a machine, which remember what a face asked of them."""

from __future__ import annotations

from typing import Any, cast

from holdfast.analysis.machine import MachineFacts


class RecordingFacts:
    """Answers like the facts it was given; `touched` names every field that was asked for."""

    def __init__(self, facts: MachineFacts) -> None:
        self._facts = facts
        self.touched: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        if name in MachineFacts.__struct_fields__:
            self.touched.add(name)
            return getattr(self._facts, name)
        method = getattr(MachineFacts, name)
        return lambda *args: method(self, *args)  # so that what the method asks for is seen too

    @property
    def as_facts(self) -> MachineFacts:
        return cast("MachineFacts", self)
