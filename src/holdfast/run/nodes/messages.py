"""What the launchers of one run say to their coordinator, and what it answers. No commands to run.

A launcher joins, waits for a round, starts its ranks in it, reports five times a second, and says
when its ranks are gone. The coordinator forms rounds, asks for evidence and probes, has sentences
printed and journalled, and ends a round. Every message of a round carries its number: what comes
from an earlier one is ignored.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

import msgspec

from holdfast.analysis.job.run_paths import RUN_ID
from holdfast.analysis.machine import MachineFacts, Unread
from holdfast.analysis.scene.cpu import Processor, Scheduler
from holdfast.analysis.scene.gpu import GpuEvent, GpuLook
from holdfast.analysis.scene.node_view import RankConnection
from holdfast.analysis.scene.rdma import PortChange
from holdfast.analysis.scene.scene import RankView
from holdfast.nodes.probing.messages import ProbeReply, ProbeRequest
from holdfast.run.nodes.link.fencing import SHORT_LEASE, LeaseTerms


class RunMessage(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The base of all of them; the tag says which."""


# --- launcher -> coordinator ----------------------------------------------------------------------


class NodeCard(RunMessage, frozen=True):
    """The first message of a launcher, also when it comes back after a lost connection."""

    name: str
    """its own name for itself, or the scheduler's for it"""
    identity: str
    """made when this launcher started: the same name with another identity is another launcher"""
    nproc: int
    node_rank: int | None = None
    """as typed, or as the scheduler numbers the nodes"""
    addresses: tuple[str, ...] = ()
    boot_id: str = ""
    role: str = "default"
    job: str = ""
    """script and arguments, without secrets: nodes of one job have the same"""
    uid: int | None = None
    facts: MachineFacts | None = None
    """what the quick checks read, without the environment; None with --no-check"""
    unfit: str = ""
    """what its own checks found, which keeps it from starting: it came to say so, and ends"""


class Ready(RunMessage, frozen=True):
    """Its ranks are gone, or it has none yet: it may be in the next round."""

    after: int
    """the round that is over for it; 0 before the first"""


class NodeReport(RunMessage, frozen=True):
    """All that this node sees of its ranks, five times a second, and at once when one exits."""

    round: int
    at: float
    """when it was made; like all times in it by the coordinator's clocks"""
    ranks: tuple[RankView, ...]
    clock_bound: float = 0.0
    events: tuple[tuple[int, dict[str, Any]], ...] = ()
    """rank and what it reported of checkpoints, since the report before"""
    oom_kills: int = -1
    evidence: int = 0
    """the number of the request for evidence that was answered last: it is in `ranks`"""
    evidence_at: float = 0.0
    evidence_wall: float = 0.0
    kernel_events: tuple[str, ...] | Unread = ()
    processor: Processor | Unread | None = None
    gpus: tuple[GpuLook, ...] | Unread | None = None
    gpu_events: tuple[GpuEvent, ...] | Unread = ()
    rdma: tuple[PortChange, ...] | Unread | None = None
    connections: tuple[RankConnection, ...] | Unread | None = None
    slept_at: float = 0.0
    """when its own loop was last late: it slept or starved, and its timers were reset; 0: never"""


class ToldToStop(RunMessage, frozen=True):
    """A signal asked this launcher to end: the scheduler takes the node, or Ctrl-C."""

    signal: str
    scheduler: Scheduler | None = None


class RanksGone(RunMessage, frozen=True):
    """No process of this round is left on the node."""

    round: int


class Leaving(RunMessage, frozen=True):
    """The last message of a launcher that ends before the job does."""

    why: str
    ranks_gone: bool = True
    """False: even SIGKILL did not end them"""


# --- coordinator -> launcher ----------------------------------------------------------------------


class Admitted(RunMessage, frozen=True):
    """The answer to a card."""

    name: str
    """what the others call this node"""
    run: Annotated[str, msgspec.Meta(pattern=RUN_ID)]
    """the run's id: run folders of all nodes have the same name"""
    lease: LeaseTerms = SHORT_LEASE


class RoundNode(RunMessage, frozen=True):
    name: str
    first_rank: int
    nproc: int
    addresses: tuple[str, ...] = ()
    role: str = "default"


class RoundStart(RunMessage, frozen=True):
    """Start your ranks."""

    round: int
    """from 1, over the whole run"""
    attempt: int
    """from 0: what the ranks see as TORCHELASTIC_RESTART_COUNT"""
    nodes: tuple[RoundNode, ...]
    """by node rank"""
    store_node: str
    store_port: int
    saved: str = ""
    """the newest checkpoint that the job has reported"""


class TakeEvidence(RunMessage, frozen=True):
    round: int
    number: int


class Say(RunMessage, frozen=True):
    """For the screen of every node."""

    lines: tuple[str, ...]
    status: bool = False
    """it is the status line, which the next one replaces"""


class JournalEntry(RunMessage, frozen=True):
    """For the journal of every node: one of analysis/job/journal_records, as its own fields."""

    document: dict[str, Any]


class AbortRanks(RunMessage, frozen=True):
    """SIGABRT to these ranks: a deadline that the script itself set has passed."""

    round: int
    ranks: tuple[int, ...]


class EndRound(RunMessage, frozen=True):
    """End your ranks: then comes another round, or the end of the job."""

    round: int
    action: Literal["restart", "stop", "done"]
    """done: all ranks of all nodes exited with 0"""
    culprits: tuple[int, ...] = ()
    """ranks to kill at once"""
    exit_code: int = 0
    reason: str = ""
    no_save: bool = False
    """ranks that would wait for a step to save at need not: none comes"""
    others_go_on: bool = False
    """it is a stop for this node alone"""

    @property
    def is_the_last(self) -> bool:
        """No other ranks are started after those that end now."""
        return self.action != "restart" and not self.others_go_on


ToCoordinator: TypeAlias = (
    NodeCard | Ready | NodeReport | ToldToStop | RanksGone | Leaving | ProbeReply
)
ToLauncher: TypeAlias = (
    Admitted | RoundStart | TakeEvidence | Say | JournalEntry | AbortRanks | EndRound | ProbeRequest
)
