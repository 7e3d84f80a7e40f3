"""What can be seen of a running job: frozen nouns, no I/O, no judgement.

All times are seconds of the machine's monotonic clock (CLOCK_MONOTONIC), which every process
on it shares; only what comes from torch's recorder is wall time, and says so.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import msgspec

from holdfast.analysis.machine import Unread
from holdfast.analysis.scene.checkpoints import CheckpointAccount
from holdfast.analysis.scene.cpu import CpuLook, Processor, Scheduler
from holdfast.analysis.scene.gpu import GpuEvent, GpuLook
from holdfast.analysis.scene.node_view import NodeView, PathProbes
from holdfast.analysis.scene.numbers import RankNumbers
from holdfast.analysis.scene.ras_look import RasLook
from holdfast.analysis.scene.rdma import PortChange

T = TypeVar("T")


class Signal(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The base of everything seen."""


# --- what a rank says of itself (its page in shared memory) ------------------------------------


class Claim(Signal, frozen=True):
    """What a rank said it was when it entered init_process_group (`at`), and what it was given."""

    at: float
    rank: int
    """-1 for this and the other numbers where there is none"""
    world_size: int
    store: str
    """'127.0.0.1:29500', a file, or '' when its store does not say"""
    own_store: bool
    """the script made the store itself: by prefixes one address may serve several groups"""
    agent_store: bool
    """the launcher serves the store, so that no rank will, not even number 0"""
    timeout: float
    device: str
    """the identity of the GPU it was on; '' and a timeout of 0 s when unknown"""
    given_rank: int
    given_world_size: int
    given_store: str
    wall: float = 0.0
    """`at` by the clock of the recorders: wall seconds; 0 when unknown"""
    remade: int = 0
    """how many groups of this store and world size this process had destroyed before"""
    first: bool = True
    """it had destroyed no default group before: of one, the recorder may still hold collectives"""
    nccl_aborts: bool = True
    """by its environment, torch ends it when an NCCL collective has timed out"""

    @property
    def serves(self) -> bool:
        """It starts the store at that address, for the others to call."""
        return self.rank == 0 and not self.agent_store and not self.own_store


class ExitCall(Signal, frozen=True):
    """The script asked to end its process; what that raises may still be caught."""

    at: float
    by: str
    """'sys.exit', 'os._exit' or 'exit'"""
    code: int
    where: str
    """'train.py:88 in main': the innermost line of the user's own code"""
    text: str = ""
    """what it gave in place of a code: Python prints it"""


class Beat(Signal, frozen=True):
    """A rank's own page, read without its help: it may be stopped, or hold the GIL."""

    torch_imported: bool
    group_ready: bool
    """init_process_group has returned"""
    steps: int
    """calls of the outermost optimizer; 0 may mean 'steps unknown'"""
    step_at: float
    """when the last step ended; 0 before the first"""
    usual_step: float
    """running median of the last steps' durations, seconds; 0 before the second step"""
    beat_at: float
    """the last sign of the beat thread, which needs the GIL: old means 'GIL held or stopped'"""
    phase: str
    """the innermost `holdfast.phase` name, or ''"""
    limit_name: str
    limit_until: float
    """the innermost `holdfast.deadline` and when it runs out; 0 for none"""
    group_timeout: float
    """seconds; 0 when unknown"""
    claim: Claim | None = None
    """None before its first init_process_group, and when its group has been destroyed"""
    former_claim: Claim | None = None
    """of the group it has destroyed, until it enters init_process_group again"""
    cuda_graphs: bool = False
    """it has captured a CUDA graph; collectives inside one are never recorded"""
    capturing: bool = False
    """it captures one now, which any question to its recorder would spoil"""
    waits_for: int | None = None
    """the rank whose word in the store this one waits for, as it says itself"""
    group_left_at: float = 0.0
    """when its group was destroyed; 0 before that, and when it has made a new one"""
    leaving_at: float = 0.0
    """when Python began to shut down, before the script's atexit functions; 0 before that"""
    exit_call: ExitCall | None = None
    """the last one; the process may have continued after it"""


# --- what the kernel says ----------------------------------------------------------------------


class Death(Signal, frozen=True):
    code: int
    """as subprocess gives it: negative for a signal"""
    at: float
    """when the kernel reported it"""


class Activity(Signal, frozen=True):
    """Counters of a rank and its children: any change between two looks is a sign of life."""

    state: str
    """the kernel's letter: R S D T t Z X"""
    cpu: float
    """seconds of processor time, all threads and children"""
    io: int
    """bytes read and written, storage and sockets alike (rchar + wchar)"""
    socket: int
    """bytes acknowledged and received on its TCP sockets, as far as visible"""
    faults: int
    """major page faults"""
    wait_channel: str
    queued: float = 0.0
    """seconds in which its threads were ready to run and got no core, quota stops included"""


# --- what evidence shows -----------------------------------------------------------------------


class LastWords(Signal, frozen=True):
    """The exception a rank raised, written by its excepthook before anything unwinds."""

    kind: str
    """'ValueError'"""
    text: str
    where: str
    """'train.py:88 in forward'"""
    at: float
    hint: str = ""
    """what to do, where holdfast's own library raised it"""
    slugs: tuple[str, ...] = ()
    """the faults that a refused resume names (errors.ResumeRefused)"""
    root_kind: str = ""
    """what was raised first, where this one was raised for it or while it was handled"""
    root_text: str = ""
    loading: str | None = None
    """the checkpoint that torch.load or its like was reading; '' when that is not known, None when
    nothing was loaded"""
    loader: str = ""
    """the name of the file, of those that load, in which it was raised"""
    metadata: str = ""
    """of a distributed checkpoint that was being loaded: 'present', or 'missing' where its save did
    not finish"""
    exit_code: int | None = None
    """the script caught it and exited with this code, as Hydra does; None: nothing caught it"""


class Frame(Signal, frozen=True):
    function: str
    file: str
    line: int


class Stack(Signal, frozen=True):
    """The main thread, innermost first; native frames too where py-spy saw them."""

    frames: tuple[Frame, ...]
    active: bool
    """py-spy thinks it runs on a core"""
    holds_gil: bool


class WorkerStack(Signal, frozen=True):
    """A process that a rank started, seen while the rank waited for its DataLoader."""

    pid: int
    stack: Stack


class Collective(Signal, frozen=True):
    """One entry of a rank's flight recorder."""

    group: str
    """torch's group name: '0' is the default group"""
    sequence: int
    op: str
    """'all_reduce', without the backend's prefix"""
    backend: str
    shape: str
    """sizes and types of the input, as text: '[4] Float'"""
    finished: bool
    created: float
    """wall seconds"""
    timeout: float
    """seconds"""
    started: bool | None = None
    """whether the GPU has come to it; None without NCCL, or without TORCH_NCCL_ENABLE_TIMING"""
    ended: float = 0.0
    """wall seconds when torch noticed that it was over; 0 unknown"""
    frames: tuple[Frame, ...] = ()
    """where the script asked for it, innermost first; only in dumps, for the last entries"""


class Recorder(Signal, frozen=True):
    """What a rank's flight recorder holds: its recent collectives, oldest first."""

    collectives: tuple[Collective, ...]
    entered: dict[str, int]
    """group -> sequence number of the last collective entered"""
    finished: dict[str, int]
    """group -> sequence number of the last collective finished"""
    members: dict[str, tuple[int, ...]] = {}
    """group -> its ranks, where the recorder lists them: NCCL's does, Gloo's does not"""
    messages: tuple[Collective, ...] = ()
    """sends and receives, oldest first, NCCL's only: 'send 0->1' and 'recv 1<-0' in the numbers
    of the group, with the sequence that its messages have for themselves"""


class StartedRank(Signal, frozen=True):
    """A process that a rank started itself, as it entered a group."""

    store: str
    rank: int


class RankView(Signal, frozen=True):
    """Everything known of one rank at one moment."""

    rank: int
    local_rank: int
    pid: int
    host: str
    beat: Beat | None
    """None when the rank never wrote its page (no hook: HOLDFAST=off, --no-python…)"""
    activity: Activity | None
    """None once it is dead"""
    alive_at: float
    """the last time any of its counters moved, or it took a step"""
    state_since: float
    """since when the kernel's state letter is what it is"""
    death: Death | None
    words: LastWords | None
    stack: Stack | Unread | None
    """None when no evidence was taken yet"""
    recorder: Recorder | Unread | None
    workers: tuple[WorkerStack, ...] = ()
    """its child processes, looked at only while it waits for its DataLoader"""
    log: str = ""
    """the file that keeps its stderr; '' when nothing is kept"""
    crash: Stack | None = None
    """where it was when a signal such as SIGSEGV or SIGABRT ended it, by Python's fault handler"""
    lost_peer: bool = False
    """NCCL's watchdog printed that a peer is gone; the rank itself may live on for a minute"""
    looks: tuple[CpuLook, ...] = ()
    """at its processor time, about one a second, oldest first"""
    started: tuple[StartedRank, ...] = ()
    """what the processes claimed to be that it started (mp.spawn)"""


class Failure(Signal, frozen=True):
    """How an earlier attempt of this run ended."""

    slug: str
    ranks: tuple[int, ...]
    step: int
    """where it stood: as far as can be told, steps before a resume included; 0 may be 'unknown'"""
    lasted: float
    """seconds it got on: from its start to its last step, or to its end where none was seen"""


class SurvivingProcess(Signal, frozen=True):
    """A process that a rank started and that lived on without it."""

    rank: int | None
    """None when it is unknown whose child it was"""
    pid: int
    name: str
    """the kernel's short name"""


class Scene(Signal, frozen=True, dict=True):
    """The job at one moment: what every verdict is made from.

    It remembers answers of `memo` beside its fields; they are not compared, copied or encoded.
    """

    now: float
    attempt: int
    started_at: float
    """when this attempt's ranks were started"""
    ranks: tuple[RankView, ...]
    longest_pause: float
    """the longest time without a step that this job came back from, in any attempt"""
    oom_kills: int
    """out-of-memory kills counted in our cgroup since this attempt started; -1 unknown"""
    kernel_events: tuple[str, ...] | Unread
    """lines about our pids since this attempt started; looked for when a rank died or stalls"""
    told_to_stop: str
    """'SIGTERM', 'SIGINT', 'SIGHUP' when the launcher itself got that signal; else ''"""
    evidence_at: float
    """when stacks and recorders were taken; 0 when they were not"""
    evidence_wall: float = 0.0
    """the same moment by the clock of the recorders: wall seconds; 0 when unknown"""
    failures: tuple[Failure, ...] = ()
    """how the earlier attempts of this run ended, oldest first"""
    outlived: tuple[SurvivingProcess, ...] = ()
    """what had to be ended after its rank; known only once all ranks of an attempt are gone"""
    pauses: tuple[float, ...] = ()
    """the last times without a step, of 2 s or more, that this job came back from, in seconds"""
    best_step: float = 0.0
    """the shortest that `usual_step` of the slowest rank has been in this attempt; 0 unknown"""
    processor: Processor | Unread | None = None
    """None while no rank has been short of processor time"""
    gpus: tuple[GpuLook, ...] | Unread | None = None
    """None before the first look for evidence, and without NVIDIA's driver"""
    gpu_events: tuple[GpuEvent, ...] | Unread = ()
    """Xids since this attempt started; looked for when a rank died or stalls"""
    rdma: tuple[PortChange, ...] | Unread | None = None
    """what RDMA ports did since the ranks were started; None when not looked at, or without any"""
    ras: RasLook | Unread | None = None
    """what NCCL's RAS says of the whole job; None where it was not asked, or none of it listens"""
    scheduler: Scheduler | None = None
    """None when nothing in the environment names one"""
    checkpoints: CheckpointAccount = CheckpointAccount()
    """what the ranks reported of checkpoints and resumes, in all attempts"""
    numbers: RankNumbers = RankNumbers()
    """what they reported of losses and replicas, in this attempt"""

    nodes: tuple[NodeView, ...] = ()
    """of a job on several machines, by node rank; () where nothing is known of nodes"""
    probes: PathProbes | None = None
    """None while no path between nodes is suspected"""

    world: str | None = None
    """which of the job's worlds this shows ('' for its only one); None for the whole job"""
    missing_members: int = 0
    """of that world: how many are not known"""

    def rank(self, number: int) -> RankView:
        return self.memo(_by_rank)[number]

    def node(self, name: str) -> NodeView | None:
        return next((node for node in self.nodes if node.name == name), None)

    def memo(self, question: Callable[[Scene], T]) -> T:
        """`question(self)`, worked out once: forty faults ask the same, and recorders hold
        thousands of entries. Threads may work it out twice; they get the same answer."""
        answers: dict[Callable[[Scene], object], T] = self.__dict__.setdefault("answers", {})
        if question not in answers:
            answers[question] = question(self)
        return answers[question]


def _by_rank(scene: Scene) -> dict[int, RankView]:
    return {view.rank: view for view in scene.ranks}


class Policy(Signal, frozen=True):
    """What the user allows."""

    patience: float | None
    """`--patience S`; None for the default rule"""
    max_restarts: int
    restarts_typed: bool = False
    """`--max-restarts` or PET_MAX_RESTARTS was given: then it is a hard limit"""
    nccl_aborts: bool = True
    """torch ends a rank whose NCCL collective has timed out"""
