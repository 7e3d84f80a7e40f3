"""Which file of this folder carries out which kind of act."""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Callable
from typing import Any, TypeVar

from holdfast.analysis.drill.injection import Act
from holdfast.drill.stage import CannotInjectHere, Stage

A = TypeVar("A", bound=Act)


class Carrier:
    """Carries out one kind of act on one job. Each of these may raise CannotInjectHere."""

    def prepare(self, act: Any, stage: Stage) -> None:  # noqa: ARG002 - others need it
        """Before the job is started. By default the rank is told to wait at its step."""
        if stage.rehearsal.at_step:
            stage.order("wait")

    def inject(self, act: Any, stage: Stage) -> None:
        """The rank waits at its step (or, at step 0: the launchers were just started)."""

    def lift(self, act: Any, stage: Stage) -> None:
        """Take the fault away again: it was named."""


_carriers: dict[type[Act], type[Carrier]] = {}


def carries_out(kind: type[Act]) -> Callable[[type[Carrier]], type[Carrier]]:
    def register(carrier: type[Carrier]) -> type[Carrier]:
        _carriers[kind] = carrier
        return carrier

    return register


def carrier_of(act: Act) -> Carrier:
    """A new one for each job: it keeps what it made until the fault is lifted."""
    _import_all()
    if type(act) not in _carriers:
        raise CannotInjectHere(f"nothing here can carry out {type(act).__name__}")
    return _carriers[type(act)]()


@functools.cache
def _import_all() -> None:
    package = __name__.rpartition(".")[0]
    for module in pkgutil.iter_modules(importlib.import_module(package).__path__):
        importlib.import_module(f"{package}.{module.name}")
