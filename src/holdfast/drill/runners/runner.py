"""What a drill asks of a launcher, and which launchers there are."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from holdfast.analysis.drill.outcome import Happened, Spoken
from holdfast.drill.layout import JobFolder
from holdfast.errors import ConfigError

RESTARTS = 3


class ToStart(NamedTuple):
    """One launcher of one job."""

    options: Sequence[str]
    """torchrun's, as typed and as the drill adds to them"""
    script: Sequence[str]
    runs: Path
    """where `holdfast run` keeps its runs"""
    patience: float
    checks_first: bool = False
    """it looks at the machine and at the other nodes before it starts, where it can"""

    def has(self, *names: str) -> bool:
        words = {word.partition("=")[0].replace("_", "-") for word in self.options}
        return bool(words & set(names))

    @property
    def restarts(self) -> list[str]:
        """Where the user typed none."""
        return [] if self.has("--max-restarts") else ["--max-restarts", str(RESTARTS)]


class HeardOfRunner(NamedTuple):
    """What a launcher has said and done so far."""

    spoken: tuple[Spoken, ...] = ()
    happened: tuple[Happened, ...] = ()
    saved: tuple[tuple[float, int, str], ...] = ()
    """when, step, path: where it knows of checkpoints"""


class Runner(Protocol):
    """Each file of this folder makes one: `RUNNER = …`."""

    name: str

    def command(self, start: ToStart) -> list[str]:
        """Raises ConfigError where it is not installed."""
        ...

    def heard(self, folder: JobFolder) -> HeardOfRunner:
        """From the run folders, or from the screens."""
        ...


def by_name(name: str) -> Runner:
    runners = {runner.name: runner for runner in every()}
    if name not in runners:
        raise ConfigError(f"--runner must be one of {', '.join(sorted(runners))}, got {name!r}")
    return runners[name]


def every() -> list[Runner]:
    package = __name__.rpartition(".")[0]
    modules = (
        importlib.import_module(f"{package}.{one.name}")
        for one in pkgutil.iter_modules(importlib.import_module(package).__path__)
    )
    return [module.RUNNER for module in modules if hasattr(module, "RUNNER")]
