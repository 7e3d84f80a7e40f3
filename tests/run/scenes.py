"""Scenes of a job to change one thing in: a healthy one at step 100, 50 ms a step."""

from __future__ import annotations

import itertools
import string
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from holdfast.analysis.scene.node_view import Hearing, NodeView
from holdfast.analysis.scene.scene import (
    Activity,
    Beat,
    Collective,
    Death,
    Frame,
    LastWords,
    RankView,
    Recorder,
    Scene,
    Stack,
)

NOW = 100_000.0
STARTED = NOW - 100.0
WALL = 1.7e9
STEPS = 100
"""steps taken, and collectives finished, in a healthy job"""


def a_beat(**changes: Any) -> Beat:
    beat = Beat(
        torch_imported=True,
        group_ready=True,
        steps=STEPS,
        step_at=NOW - 0.03,
        usual_step=0.05,
        beat_at=NOW - 0.05,
        phase="",
        limit_name="",
        limit_until=0.0,
        group_timeout=1800.0,
    )
    return msgspec.structs.replace(beat, **changes)


def an_activity(**changes: Any) -> Activity:
    activity = Activity(state="S", cpu=9.0, io=1, socket=1, faults=0, wait_channel="futex_wait")
    return msgspec.structs.replace(activity, **changes)


def a_rank(rank: int, **changes: Any) -> RankView:
    view = RankView(
        rank=rank,
        local_rank=rank,
        pid=4000 + rank,
        host="a",
        beat=a_beat(),
        activity=an_activity(),
        alive_at=NOW - 0.03,
        state_since=NOW - 0.03,
        death=None,
        words=None,
        stack=None,
        recorder=None,
    )
    return msgspec.structs.replace(view, **changes)


def a_scene(ranks: Sequence[RankView] | None = None, **changes: Any) -> Scene:
    scene = Scene(
        now=NOW,
        attempt=0,
        started_at=STARTED,
        ranks=tuple(ranks) if ranks is not None else tuple(a_rank(r) for r in range(4)),
        longest_pause=0.5,
        oom_kills=0,
        kernel_events=(),
        told_to_stop="",
        evidence_at=0.0,
    )
    return msgspec.structs.replace(scene, **changes)


def nothing_known() -> Scene:
    """No page, no counters, no evidence, no clock that moved."""
    return a_scene(
        [a_rank(r, beat=None, activity=None, alive_at=0.0, state_since=0.0) for r in range(4)],
        oom_kills=-1,
    )


# --- collectives -------------------------------------------------------------------------------


def entry(
    sequence: int,
    *,
    op: str = "all_reduce",
    shape: str = "[4] Float",
    group: str = "0",
    finished: bool = True,
    created: float | None = None,
) -> Collective:
    return Collective(
        group=group,
        sequence=sequence,
        op=op,
        backend="gloo",
        shape=shape,
        finished=finished,
        created=WALL + sequence * 0.05 if created is None else created,
        timeout=1800.0,
    )


def a_recorder(*entries: Collective) -> Recorder:
    entered: dict[str, int] = {}
    finished: dict[str, int] = {}
    for e in entries:
        entered[e.group] = max(e.sequence, entered.get(e.group, 0))
        finished.setdefault(e.group, 0)
        if e.finished:
            finished[e.group] = max(e.sequence, finished[e.group])
    return Recorder(collectives=entries, entered=entered, finished=finished)


PAST = tuple(entry(n) for n in range(STEPS - 9, STEPS + 1))
"""the last ten collectives, over on every rank"""


def waiting(*extra: Collective) -> Recorder:
    """Inside collective #101, unless told otherwise."""
    return a_recorder(*PAST, *(extra or (entry(STEPS + 1, finished=False),)))


def elsewhere() -> Recorder:
    """Has not come to #101."""
    return a_recorder(*PAST)


# --- stacks ------------------------------------------------------------------------------------

TORCH = "/venv/lib/python3.11/site-packages/torch"


def a_stack(*frames: tuple[str, str, int], **changes: Any) -> Stack:
    stack = Stack(
        frames=tuple(Frame(function=f, file=file, line=line) for f, file, line in frames),
        active=False,
        holds_gil=False,
    )
    return msgspec.structs.replace(stack, **changes)


IN_BACKWARD = a_stack(
    ("_engine_run_backward", f"{TORCH}/autograd/graph.py", 869),
    ("backward", f"{TORCH}/_tensor.py", 630),
    ("train", "/home/me/train.py", 30),
)
IN_SLEEP = a_stack(("load", "/home/me/data.py", 88), ("train", "/home/me/train.py", 20))
IN_SAVE = a_stack(
    ("_save", f"{TORCH}/serialization.py", 990),
    ("save", f"{TORCH}/serialization.py", 850),
    ("checkpoint", "/home/me/ckpt.py", 40),
)
IN_BARRIER = a_stack(
    ("barrier", f"{TORCH}/distributed/distributed_c10d.py", 4700),
    ("wrapper", f"{TORCH}/distributed/c10d_logger.py", 81),
    ("train", "/home/me/train.py", 44),
)


# --- what happened -----------------------------------------------------------------------------

RESET = (
    "[/__w/pytorch/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:537] Read error "
    "[127.0.0.1]:27323: Connection reset by peer. This is typically caused by a remote worker "
    "hanging or bugs in the application. Check the logs of the remote worker before reporting an "
    "error. GLHF! 🏖️"
)
TIMED_OUT = (
    "[/__w/pytorch/pytorch/third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:78] Timed out "
    "waiting 6000ms for recv operation to complete"
)
ENFORCE = (
    "[enforce fail at /__w/pytorch/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:456] "
    "op.preamble.length <= op.nbytes. 8 vs 4. Received data size doesn't match expected size. Is "
    "there a distributed collective mismatch in your code?"
)


def words(
    kind: str,
    text: str = "",
    *,
    at: float = NOW - 1.0,
    where: str = "train.py:88 in f",
    hint: str = "",
    slugs: tuple[str, ...] = (),
) -> LastWords:
    return LastWords(kind=kind, text=text, where=where, at=at, hint=hint, slugs=slugs)


def ended(
    rank: int, code: int, *, at: float = NOW - 1.0, said: LastWords | None = None
) -> RankView:
    death = Death(code=code, at=at)
    return a_rank(rank, death=death, words=said, activity=None, beat=a_beat(step_at=at - 0.1))


def lost_its_peer(rank: int, *, at: float = NOW - 0.9) -> RankView:
    said = words("RuntimeError", RESET, at=at, where="train.py:30 in train")
    return ended(rank, 1, at=at + 0.3, said=said)


def held_up(
    culprits: Mapping[int, Mapping[str, Any]],
    *,
    seconds: float = 6.0,
    ranks: int = 4,
    victim: Mapping[str, Any] | None = None,
    **changes: Any,
) -> Scene:
    """Nobody has stepped for so long: `culprits` never came to #101, the others wait there."""
    then = NOW - seconds
    stepped = a_beat(step_at=then)
    usual = {"beat": stepped, "recorder": waiting(), "stack": IN_BACKWARD, "alive_at": then}
    absent = {"beat": stepped, "recorder": elsewhere(), "stack": IN_SLEEP, "alive_at": then}
    views = [
        a_rank(r, **{**absent, **culprits[r]})
        if r in culprits
        else a_rank(r, **{**usual, **(victim or {})})
        for r in range(ranks)
    ]
    # The moment of the evidence, by the clock of the recorders: the victims fell silent when they
    # entered #101.
    wall = WALL + (STEPS + 1) * 0.05 + NOW - 0.1 - (victim or {}).get("alive_at", then)
    return a_scene(views, **{"evidence_at": NOW - 0.1, "evidence_wall": wall, **changes})


def on_nodes(scene: Scene, size: int = 2, **hearing: Hearing) -> Scene:
    """The same job on nodes a, b, c… of `size` ranks each; `b="late"` says how that one is heard.
    Its clock bound is 10 ms, but for the first node, which coordinates."""
    ranks = sorted(view.rank for view in scene.ranks)
    names = string.ascii_lowercase if len(ranks) <= 26 * size else map(str, itertools.count())
    nodes = tuple(
        NodeView(
            name=name,
            ranks=tuple(ranks[first : first + size]),
            hearing=hearing.get(name, "heard"),
            heard_at=scene.now - (0.1 if hearing.get(name, "heard") == "heard" else 5.0),
            clock_bound=0.01 if first else 0.0,
            coordinates=first == 0,
            serves_store=first == 0,
            oom_kills=scene.oom_kills,
            kernel_events=scene.kernel_events,
            processor=scene.processor,
            gpus=scene.gpus,
            gpu_events=scene.gpu_events,
            rdma=scene.rdma,
            scheduler=scene.scheduler,
        )
        for name, first in zip(names, range(0, len(ranks), size), strict=False)
    )
    return msgspec.structs.replace(scene, nodes=nodes)


def changed(scene: Scene, rank: int, **changes: Any) -> Scene:
    """The same scene with another rank `rank`."""
    views = tuple(
        msgspec.structs.replace(v, **changes) if v.rank == rank else v for v in scene.ranks
    )
    return msgspec.structs.replace(scene, ranks=views)
