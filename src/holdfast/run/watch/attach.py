"""Processes that are still there, watched for a few seconds from outside: a scene to judge.

For `explain --pid` and `--run`: torchrun's ranks as well as ours. What only a launcher sees (the
order of deaths, steps) is missing from this scene, and nothing is done to any process.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from holdfast.analysis.collectives import recorder
from holdfast.analysis.machine import Unread
from holdfast.analysis.scene.scene import Activity, RankView, Recorder, Scene, Stack
from holdfast.errors import ConfigError
from holdfast.run.watch.rank_state import moved
from holdfast.run.watch.ras_witness import RasWitness
from holdfast.system import activity, pyspy, recorder_query
from holdfast.system.environments import EnvironmentReader
from holdfast.system.proc import row_of

WATCHED = 3.5
"""seconds: a process that is stopped by another tool for a look runs again before that"""
RAS_WAIT = 2.0
"""seconds for the answer of NCCL's RAS"""
_ENVIRONMENTS = EnvironmentReader()
SERVERS = ("HOLDFAST_SOCKET", "TORCH_WORKER_SERVER_SOCKET")
"""variables that say where a rank is to serve its recorder: ours, and torchrun's"""


class ProcessSample(NamedTuple):
    at: float
    seen: dict[int, Activity | None]
    stacks: Mapping[int, Stack | Unread]


class AttachedJob(NamedTuple):
    scene: Scene
    still: frozenset[int]
    """ranks whose stack was the same at the first and the last look"""
    world: int | None
    """how many ranks the job has, as their environment says; more than are here when other machines
    have some"""


def look(pids: Sequence[int], *, seconds: float = WATCHED, ask_ras: bool = False) -> AttachedJob:
    """A launcher's pid means its ranks: its descendants that were given a RANK. `ask_ras`: only
    where the user asks for it, since NCCL may crash over the question."""
    environments = {pid: _environment(pid) for pid in _ranks_of(pids)}
    numbered = _numbered(environments)
    ras = RasWitness(next(iter(environments.values()), {}))
    if ask_ras:
        ras.ask(numbered)
    # A rank asked for its stack or recorder moves: all questions are outside the two readings
    # of the counters.
    stacks = pyspy.dump_many(numbered)
    ras.wait(RAS_WAIT)
    first = ProcessSample(time.monotonic(), activity.read_many(numbered), stacks)
    time.sleep(seconds)
    counters, at = activity.read_many(numbered), time.monotonic()
    last = ProcessSample(at, counters, pyspy.dump_many(numbered))
    if ask_ras:
        ras.ask(numbered)
    recorders = {pid: _recorder(environments[pid]) for pid in numbered}
    ras.wait(RAS_WAIT)
    views = [
        _view(pid, rank, environments[pid], recorders[pid], (first, last))
        for pid, rank in numbered.items()
        if last.seen.get(pid) is not None
    ]
    still = frozenset(rank for pid, rank in numbered.items() if _stood_still(pid, first, last))
    started = min(_started(pid, last.at) for pid in numbered)
    scene = msgspec.structs.replace(_scene(views, started, last.at), ras=ras.look)
    return AttachedJob(scene, still, _world(environments.values()))


def _stood_still(pid: int, first: ProcessSample, last: ProcessSample) -> bool:
    before, after = first.stacks.get(pid), last.stacks.get(pid)
    return isinstance(before, Stack) and isinstance(after, Stack) and before.frames == after.frames


def _world(environments: Iterable[Mapping[str, str]]) -> int | None:
    told = [env.get("WORLD_SIZE", "") for env in environments]
    return max((int(size) for size in told if size.isdigit() and len(size) < 7), default=None)


def _scene(views: Sequence[RankView], started: float, now: float) -> Scene:
    return Scene(
        now=now,
        attempt=0,
        started_at=started,
        ranks=tuple(sorted(views, key=lambda view: view.rank)),
        longest_pause=0.0,
        oom_kills=-1,
        kernel_events=Unread(why="not looked at"),
        told_to_stop="",
        evidence_at=now,
        evidence_wall=time.time(),
    )


def _ranks_of(pids: Iterable[int]) -> list[int]:
    found: list[int] = []
    for pid in pids:
        if row_of(pid) is None:
            raise ConfigError(
                f"there is no process {pid}", hint="`ps -ef | grep python` lists them"
            )
        family = [pid, *activity.descendants(pid)]
        # Children of a rank inherit its environment, so of each family only the eldest counts.
        ranks = [p for p in family if "RANK" in _environment(p)]
        elders = [p for p in ranks if not any(p in activity.descendants(o) for o in ranks)]
        found += elders or [pid]
    return list(dict.fromkeys(found))


def _environment(pid: int) -> dict[str, str]:
    """As it was when the process started; {} where we may not look."""
    row = row_of(pid)
    pairs = _ENVIRONMENTS.of([row])[pid] if row else []
    named = (pair.decode(errors="replace").partition("=") for pair in pairs if b"=" in pair)
    return {name: value for name, _, value in named}


def _numbered(environments: Mapping[int, Mapping[str, str]]) -> dict[int, int]:
    """pid -> rank: as its environment says, else one that is free."""
    told = {pid: env.get("RANK", "") for pid, env in environments.items()}
    numbered = {pid: int(rank) for pid, rank in told.items() if rank.isdigit() and len(rank) < 7}
    free = (n for n in range(len(environments) + len(numbered)) if n not in numbered.values())
    return {pid: numbered[pid] if pid in numbered else next(free) for pid in environments}


def _recorder(environment: Mapping[str, str]) -> Recorder | Unread:
    path = next((environment[name] for name in SERVERS if environment.get(name)), "")
    answer = recorder_query.ask(path) if path else Unread(why="it serves no flight recorder")
    if isinstance(answer, Unread):
        return answer
    try:
        return recorder.parse(answer)
    except ValueError as problem:
        return Unread(why=f"its flight recorder was not understood: {problem}")


def _started(pid: int, now: float) -> float:
    row = row_of(pid)
    return row.started / os.sysconf("SC_CLK_TCK") if row else now


def _view(
    pid: int,
    rank: int,
    environment: Mapping[str, str],
    found: Recorder | Unread,
    looks: tuple[ProcessSample, ProcessSample],
) -> RankView:
    local = environment.get("LOCAL_RANK", "")
    first, last = looks
    before, after = first.seen.get(pid), last.seen.get(pid)
    still = before and after and not moved(before, after, last.at - first.at)
    same_state = before and after and before.state == after.state
    return RankView(
        rank=rank,
        local_rank=int(local) if local.isdigit() and len(local) < 7 else rank,
        pid=pid,
        host=socket.gethostname(),
        beat=None,
        activity=after,
        alive_at=first.at if still else last.at,
        state_since=first.at if same_state else last.at,
        death=None,
        words=None,
        stack=last.stacks.get(pid),
        recorder=found,
    )
