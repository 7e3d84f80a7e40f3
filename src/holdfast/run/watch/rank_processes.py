"""Which processes of a running job are its ranks, whatever started them.

torchrun, accelerate and DeepSpeed give each rank a RANK; mpirun and srun have numbers of their own.
`torch.multiprocessing.spawn`, a shell script with `--rank N` and plain processes show nothing in
the environment, or the same number for all. There ranks are the processes that have torch loaded,
without their helpers: loader workers, and a launcher that waits for the others.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from holdfast.analysis.machine import Unread
from holdfast.analysis.scene.scene import Stack
from holdfast.errors import ConfigError
from holdfast.system import activity, deadline, proc, pyspy
from holdfast.system.environments import EnvironmentReader
from holdfast.system.proc import row_of

NUMBERS = (
    "RANK",
    "OMPI_COMM_WORLD_RANK",
    "PMIX_RANK",
    "PMI_RANK",
    "MV2_COMM_WORLD_RANK",
    "SLURM_PROCID",
)
"""variables with a rank: the launchers' own before a scheduler's, which numbers tasks"""
GIVEN = {"RANK", "TORCHELASTIC_RUN_ID"}
"""what torchrun and we give every rank: the launcher itself, which has torch as well, has none"""
SIZES = ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE", "SLURM_NTASKS")
_TYPED = re.compile(rb"\0--?(?:global[-_])?rank[=\0](\d{1,6})(?=\0|$)")
_WORKER = ("_worker_loop",)
_WAITS_FOR_CHILDREN = re.compile(
    r"/torch/multiprocessing/spawn\.py$|/multiprocessing/(?:process|popen_\w+|pool)\.py$|/subprocess\.py$"
    r"|/concurrent/futures/"
)
_LOADS_DATA = "/torch/utils/data/"
_ENVIRONMENTS = EnvironmentReader()
MAPS_WITHIN = 2.0
"""seconds: /proc/PID/maps waits for a process whose memory is locked"""


class RankProcesses(NamedTuple):
    environments: dict[int, dict[str, str]]
    """pid -> as it was when the process started; {} where we may not look"""
    ranks: dict[int, int]
    """pid -> rank"""
    guessed: bool
    """the numbers are the order in which they were started: nothing says their own"""

    @property
    def world(self) -> int | None:
        """More than are here when other machines have some."""
        told = [env.get(name, "") for env in self.environments.values() for name in SIZES]
        return max((int(size) for size in told if size.isdigit() and len(size) < 7), default=None)


def find(pids: Sequence[int]) -> RankProcesses:
    """A launcher's pid means its ranks."""
    found: list[int] = []
    for pid in pids:
        if row_of(pid) is None:
            raise ConfigError(
                f"there is no process {pid}", hint="`ps -ef | grep python` lists them"
            )
        found += _of_family([pid, *activity.descendants(pid)])
    environments = {pid: environment(pid) for pid in dict.fromkeys(found)}
    return _numbered(environments)


def environment(pid: int) -> dict[str, str]:
    row = row_of(pid)
    pairs = _ENVIRONMENTS.of([row])[pid] if row else []
    named = (pair.decode(errors="replace").partition("=") for pair in pairs if b"=" in pair)
    return {name: value for name, _, value in named}


def _of_family(family: Sequence[int]) -> list[int]:
    """Children of a rank inherit its environment and its libraries, so of each only the eldest."""
    with_torch = _with_torch(family)
    for name in NUMBERS:
        numbers = {pid: env[name] for pid in family if name in (env := environment(pid))}
        if len(set(numbers.values())) > 1:
            numbers = below_launchers(numbers)
            # A shell that starts the rank has its number too, and no stack of Python.
            return eldest([pid for pid in numbers if pid in with_torch]) or eldest([*numbers])
    given = [pid for pid in family if environment(pid).keys() >= GIVEN]
    return eldest(_without_helpers([pid for pid in with_torch if not given or pid in given])) or (
        eldest([pid for pid in family if NUMBERS[0] in environment(pid)] or family[:1])
    )


def below_launchers(numbers: dict[int, str]) -> dict[int, str]:
    """Without a rank that all the others are below: a launcher of its own, given as a command."""
    top = eldest([*numbers])
    below = {pid: number for pid, number in numbers.items() if pid not in top}
    return below_launchers(below) if len(top) == 1 and len({*below.values()}) > 1 else numbers


def eldest(pids: Sequence[int]) -> list[int]:
    return [p for p in pids if not any(p in activity.descendants(other) for other in pids)]


def _with_torch(pids: Sequence[int]) -> list[int]:
    def look() -> bytes:
        found = []
        for pid in pids:
            with contextlib.suppress(OSError):  # gone, or another user's
                found += [pid] * ("libtorch" in proc.maps(pid))
        return msgspec.msgpack.encode(found)

    answer = deadline.ask({"maps": look}, seconds=MAPS_WITHIN)["maps"]
    return [] if isinstance(answer, Unread) else msgspec.msgpack.decode(answer, type=list[int])


def _without_helpers(pids: Sequence[int]) -> list[int]:
    if len(pids) < 2:
        return list(pids)
    stacks = pyspy.dump_many(pids)
    ranks = [pid for pid in pids if not _works_for_loader(stacks[pid])]
    return [
        pid
        for pid in ranks
        if not (
            _waits_for_children(stacks[pid])
            and any(other in activity.descendants(pid) for other in ranks)
        )
    ]


def _works_for_loader(stack: Stack | Unread) -> bool:
    return isinstance(stack, Stack) and any(f.function.endswith(_WORKER) for f in stack.frames)


def _waits_for_children(stack: Stack | Unread) -> bool:
    if not isinstance(stack, Stack) or any(_LOADS_DATA in f.file for f in stack.frames):
        return False
    return any(_WAITS_FOR_CHILDREN.search(frame.file) for frame in stack.frames)


def _numbered(environments: dict[int, dict[str, str]]) -> RankProcesses:
    """As the environment or the command says, if that tells all of them apart; else by their age,
    which is the order of the numbers where one process starts them all."""
    told = {pid: _told(pid, env) for pid, env in environments.items()}
    known = {pid: rank for pid, rank in told.items() if rank is not None}
    if len(set(known.values())) < len(environments):
        return RankProcesses(environments, _by_age(environments), guessed=len(environments) > 1)
    return RankProcesses(environments, known, guessed=False)


def _told(pid: int, env: Mapping[str, str]) -> int | None:
    for name in NUMBERS:
        if (value := env.get(name, "")).isdigit() and len(value) < 7:
            return int(value)
    typed = _TYPED.search(proc.head_or_empty(f"/proc/{pid}/cmdline"))
    return int(typed[1]) if typed else None


def _by_age(pids: Iterable[int]) -> dict[int, int]:
    ages = sorted((row.started if (row := row_of(pid)) else 0, pid) for pid in pids)
    return {pid: number for number, (_, pid) in enumerate(ages)}


def started(pid: int, now: float) -> float:
    row = row_of(pid)
    return row.started / os.sysconf("SC_CLK_TCK") if row else now
