"""How a timeout's value is found: a variable, a flag, or the default of a version."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from holdfast.analysis.source.source import Launch
from holdfast.analysis.variables.parsing import torch_int
from holdfast.analysis.versions import release
from holdfast.env.job import Asked, Job

TABLE_TORCH = "2.15.0"
"""the torch whose sources the defaults were read from"""


class TimeoutValue(NamedTuple):
    seconds: float | None
    origin: str


def by_variable(
    job: Job,
    name: str,
    default: float,
    *,
    scale: float = 1.0,
    read: Callable[[str], float | None] = torch_int,
) -> TimeoutValue | None:
    """What a variable that torch reads as a number gives; None where it is not set.

    Only the environment counts: NCCL's files come too late for torch.
    """
    setting = job.setting(name)
    if setting is None or setting.origin != "environment":
        return None
    number = read(setting.value)
    where = f"{name}={setting.value} ({job.origin(setting)})"
    return TimeoutValue(default if number is None else number * scale, where)


def by_script(own: Asked) -> TimeoutValue:
    return TimeoutValue(own.seconds, f"{own.call} at {own.place.file}:{own.place.line}")


def default_of_torch(job: Job, seconds: float, *, since: str = "") -> TimeoutValue:
    """The value of the torch we read; an older one may differ."""
    version = job.version("torch")
    if not version:
        return TimeoutValue(seconds, f"default of torch {TABLE_TORCH}")
    if since and release(version) >= release(since):
        return TimeoutValue(seconds, f"default of torch {version}")
    if release(version)[:2] < release(TABLE_TORCH)[:2]:
        return TimeoutValue(seconds, f"default of torch {TABLE_TORCH}; torch {version} may differ")
    return TimeoutValue(seconds, f"default of torch {version}")


def by_flag(
    launches: tuple[Launch, ...],
    kinds: frozenset[str],
    name: str,
    read: Callable[[str], float | None],
) -> TimeoutValue | None:
    """What a flag of one of these launchers gives."""
    for launch in launches:
        flag = launch.flag(name) if launch.kind in kinds else None
        if flag is not None:
            origin = f"--{name} {flag.value}" if flag.value else f"--{name}"
            return TimeoutValue(read(flag.value) if flag.known else None, origin)
    return None


def plain(text: str) -> float | None:
    """A number of seconds."""
    try:
        number = float(text)
    except ValueError:
        return None
    return number if 0 <= number < 1e12 else None
