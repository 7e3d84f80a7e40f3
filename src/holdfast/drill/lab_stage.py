"""What acts on lab hosts need of the stage."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.drill.lab import Host, Lab
from holdfast.drill.stage import CannotInjectHere, Stage, wait_until

ENDPOINT_PORT = 29400
"""where the launchers of a drill on several hosts meet"""
NONE = "it needs several hosts: `holdfast drill --hosts 2 …`"
SECONDS_TO_END = 90.0
"""for a launcher that was cut off: it ends its ranks, which may save, and says why"""


def lab_of(stage: Stage) -> Lab:
    if stage.lab is None:
        raise CannotInjectHere(NONE)
    return stage.lab


def host_of(stage: Stage, name: str) -> Host:
    if name not in stage.hosts:
        raise CannotInjectHere(NONE)
    return stage.hosts[name]


def start_where_none_runs(
    stage: Stage, hosts: Iterable[str], *, seconds: float = SECONDS_TO_END
) -> None:
    """As a service that restarts what has failed would. A launcher that was cut off may end by
    itself, which is waited for, or go on. Where none runs at all the job is over, and is started as
    a whole."""
    running = [one for one in stage.launchers.values() if one.process.poll() is None]
    for name in hosts if running else ():
        before = stage.launchers.get(name)
        if before is None or (
            wait_until(
                lambda before=before: before.process.poll() is not None,  # type: ignore[misc]
                seconds=seconds, every=0.1,
            )
            and before.process.returncode
        ):  # fmt: skip
            stage.start_launcher(name)
