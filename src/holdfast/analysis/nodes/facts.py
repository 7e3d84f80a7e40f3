"""Everything we know of the machines of one job."""

from __future__ import annotations

from holdfast.analysis.machine import Fact, MachineFacts, Plan, Resolution, Unread
from holdfast.analysis.nodes.paths import NotListening, PathLoss, PathSizes, Reached, RouteTo
from holdfast.analysis.nodes.smoke import SmokeBetween
from holdfast.findings import Finding


class ClockOffset(Fact, frozen=True):
    """A node's wall clock minus the coordinator's; the truth is within ± `bound`."""

    seconds: float
    bound: float


class StoreBelief(Fact, frozen=True):
    """Would torchrun's c10d on this node serve the store of this endpoint? Exactly one must."""

    endpoint: str
    hosts_it: bool
    why: str


class Node(Fact, frozen=True):
    """What one node said of itself."""

    name: str
    """unique among the nodes of a check: the name it was reached by, or its own"""
    facts: MachineFacts
    """its environment is left out: it stays on the node"""
    findings: tuple[Finding, ...]
    """what the one-machine checks found there"""
    boot_id: str | Unread
    clock: ClockOffset | Unread
    names: tuple[Resolution, ...] | Unread
    """the name of every node, and of the master, as this node resolves them"""
    store: StoreBelief | Unread | None
    """None when no endpoint was named"""
    rack: str = ""
    """'' when neither Slurm's topology nor its name tells"""


class Absence(Fact, frozen=True):
    """A node that was expected and is not here."""

    name: str
    """'' when it is not known which one is missing (`--nnodes 4`, three came)"""
    why: str
    """what was seen, in the words of ssh or the kernel where they said something"""
    hint: str = ""
    """the next command"""


class NodesFacts(Fact, frozen=True):
    """Everything we know of the machines of one job, and of the paths between them."""

    plan: Plan
    nodes: tuple[Node, ...]
    absent: tuple[Absence, ...]
    coordinator: str
    """name of the node that asked, or of the machine that did where it is no node"""
    routes: tuple[RouteTo, ...] | Unread
    reach: tuple[Reached, ...] | Unread
    sizes: tuple[PathSizes, ...] | Unread
    losses: tuple[PathLoss, ...] | Unread
    smoke: SmokeBetween | Unread | None = None
    """None when it was not asked for"""
    not_listening: tuple[NotListening, ...] = ()
    """where no listener could be opened, so that no path to it was tried"""

    def node(self, name: str) -> Node:
        return next(node for node in self.nodes if node.name == name)
