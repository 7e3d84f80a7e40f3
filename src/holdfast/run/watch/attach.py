"""Processes that are still there, watched for a few seconds from outside: a scene to judge.

For `explain --pid` and `--run`: torchrun's ranks as well as ours. What only a launcher sees (the
order of deaths, steps) is missing from this scene, and nothing is done to any process.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from holdfast.analysis.collectives import recorder
from holdfast.analysis.machine import Unread
from holdfast.analysis.scene.scene import Activity, RankView, Recorder, Scene, Stack
from holdfast.run.watch import rank_processes
from holdfast.run.watch.rank_state import moved
from holdfast.run.watch.ras_witness import RasWitness
from holdfast.system import activity, pyspy, recorder_query

WATCHED = 3.5
"""seconds: a process that is stopped by another tool for a look runs again before that"""
MORE_LOOKS = 3
APART = 0.2
"""seconds between them"""
RAS_WAIT = 2.0
"""seconds for the answer of NCCL's RAS"""
SERVERS = ("HOLDFAST_SOCKET", "TORCH_WORKER_SERVER_SOCKET")
"""variables that say where a rank is to serve its recorder: ours, and torchrun's"""


class ProcessSample(NamedTuple):
    at: float
    seen: dict[int, Activity | None]
    stacks: Mapping[int, Stack | Unread]


class AttachedJob(NamedTuple):
    scene: Scene
    still: frozenset[int]
    """ranks whose stack was the same at every look"""
    world: int | None
    """how many ranks the job has, as their environment says; more than are here when other machines
    have some"""
    guessed: bool
    """ranks are numbered by the order in which they were started: nothing says their own numbers"""


def look(pids: Sequence[int], *, seconds: float = WATCHED, ask_ras: bool = False) -> AttachedJob:
    """A launcher's pid means its ranks. `ask_ras`: only where the user asks for it, since NCCL may
    crash over the question."""
    job = rank_processes.find(pids)
    environments, numbered = job.environments, job.ranks
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
    later = _look_again(numbered)
    still = frozenset(
        rank
        for pid, rank in numbered.items()
        if _stood_still([first.stacks, last.stacks, *later], pid)
    )
    started = min(rank_processes.started(pid, last.at) for pid in numbered)
    scene = msgspec.structs.replace(_scene(views, started, last.at), ras=ras.look)
    return AttachedJob(scene, still, job.world, job.guessed)


def _look_again(pids: Iterable[int]) -> list[Mapping[int, Stack | Unread]]:
    """Two looks may meet a rank that works in the same line twice, five hardly do."""
    looks: list[Mapping[int, Stack | Unread]] = []
    for _ in range(MORE_LOOKS):
        time.sleep(APART)
        looks.append(pyspy.dump_many(pids))
    return looks


def _stood_still(looks: Sequence[Mapping[int, Stack | Unread]], pid: int) -> bool:
    seen = [look.get(pid) for look in looks]
    frames = {stack.frames for stack in seen if isinstance(stack, Stack)}
    return len(frames) == 1 and all(isinstance(stack, Stack) for stack in seen)


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


def _recorder(environment: Mapping[str, str]) -> Recorder | Unread:
    path = next((environment[name] for name in SERVERS if environment.get(name)), "")
    answer = recorder_query.ask(path) if path else Unread(why="it serves no flight recorder")
    if isinstance(answer, Unread):
        return answer
    try:
        return recorder.parse(answer)
    except ValueError as problem:
        return Unread(why=f"its flight recorder was not understood: {problem}")


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
