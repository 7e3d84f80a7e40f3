"""What can be known of one machine: frozen nouns, no I/O, no judgement.

Every answer is a value or `Unread` with the reason: 'could not look' is never 'healthy'.
The nouns are msgspec structs, so that a reader in a child process, or on another machine,
can hand them over as typed bytes.
"""

from holdfast.facts.base import CouldNotLook, Fact, Unread, known
from holdfast.facts.host import Cgroup, ClockSync, Container, HostLoad, KernelEvent, Security
from holdfast.facts.limits import Limit, Limits, ProcessRoom, Shm
from holdfast.facts.machine import MachineFacts
from holdfast.facts.network import Address, Interface, Reach, Resolution, Route
from holdfast.facts.plan import Plan, Setting
from holdfast.facts.port import Bind, Connection, PortFacts, PortRanges, StoreAnswer
from holdfast.facts.processes import Leftovers, Orphan, Process, ShmSegment, StuckProcess
from holdfast.facts.smoke import Smoke, SmokeRank, SmokeRung, SmokeStage
from holdfast.facts.software import NcclLibrary, Software, VariableSearch
from holdfast.facts.storage import CheckpointItem, Folder, RendezvousFile

__all__ = [
    "Address",
    "Bind",
    "Cgroup",
    "CheckpointItem",
    "ClockSync",
    "Connection",
    "Container",
    "CouldNotLook",
    "Fact",
    "Folder",
    "HostLoad",
    "Interface",
    "KernelEvent",
    "Leftovers",
    "Limit",
    "Limits",
    "MachineFacts",
    "NcclLibrary",
    "Orphan",
    "Plan",
    "PortFacts",
    "PortRanges",
    "Process",
    "ProcessRoom",
    "Reach",
    "RendezvousFile",
    "Resolution",
    "Route",
    "Security",
    "Setting",
    "Shm",
    "ShmSegment",
    "Smoke",
    "SmokeRank",
    "SmokeRung",
    "SmokeStage",
    "Software",
    "StoreAnswer",
    "StuckProcess",
    "Unread",
    "VariableSearch",
    "known",
]
