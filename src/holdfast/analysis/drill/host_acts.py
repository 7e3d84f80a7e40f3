"""What a host and its disk do to a job, as data."""

from __future__ import annotations

from typing import Literal

from holdfast.analysis.drill.injection import Act

MIB = 1 << 20


class LimitMemory(Act, frozen=True, kw_only=True):
    """The whole job in a cgroup with little more memory than it has; the rank takes more."""

    room: int = 256 * MIB
    """that the rank gets beyond what the largest rank has"""


class LimitCpu(Act, frozen=True, kw_only=True):
    """The rank gets so little CPU time that each step takes many times as long."""

    seconds: float = 30.0
    """that the rest of the job takes at the least: less is not known to be a change of pace"""


class LimitOpenFiles(Act, frozen=True, kw_only=True):
    """The rank may open no further file."""


class FillDisk(Act, frozen=True, kw_only=True):
    """The file system of the checkpoint folder is full."""


class DamageCheckpoint(Act, frozen=True, kw_only=True):
    """The newest checkpoint is damaged, and the rank killed."""

    how: Literal["flip", "truncate"]


class HideCheckpoints(Act, frozen=True, kw_only=True):
    """The checkpoint folder is moved away, and the rank killed; put back afterwards."""


class KillDuringSave(Act, frozen=True, kw_only=True):
    """The first of `ranks` that saves is killed with a file of its checkpoint half written."""

    ranks: tuple[int, ...]


class TakePort(Act, frozen=True, kw_only=True):
    """Another program listens on the job's master port before it starts."""


class KillLoaderWorker(Act, frozen=True, kw_only=True):
    """A DataLoader worker of the rank is killed."""


class BurnCpu(Act, frozen=True, kw_only=True):
    """Other programs use all cores beside the job."""

    per_core: int = 4
