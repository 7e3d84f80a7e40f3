"""What NCCL's RAS says of a job at one moment: frozen nouns.

Its ranks are numbers in a communicator, not in the job: only in a communicator of the whole job are
they the same. A process is identified by host and pid. RAS may find nothing wrong in a job that
hangs: it counts what was launched, not what has finished, and knows neither sends nor Gloo.
"""

from __future__ import annotations

from typing import Literal

import msgspec

RasState = Literal["answers", "silent", "dead", "left"]
"""silent: it gave no answer now; dead: RAS has given it up, after a minute; left: its process
answers, and is no member any more, or not yet"""


class RasProcess(msgspec.Struct, frozen=True, kw_only=True):
    """A process of the job that does not answer."""

    host: str
    pid: int
    dead: bool = False
    line: int = 0
    """of the text; 0 in JSON"""


class RasMember(msgspec.Struct, frozen=True, kw_only=True):
    """A rank of a communicator, as far as it is told."""

    rank: int
    host: str = ""
    pid: int | None = None
    state: RasState = "answers"
    error: str = ""
    """'ncclRemoteError': the state that its communicator is in"""
    leaving: bool = False
    """it finalizes, destroys or aborts this communicator, or is not done with its start"""
    counts: dict[str, int] = {}
    """'AllReduce' -> how many it has launched; a text names outliers only"""
    line: int = 0

    @property
    def where(self) -> tuple[str, int | None]:
        return self.host, self.pid


class RasCommunicator(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    """its hash: '1a3aa6d2a4391217'"""
    size: int = 0
    """ranks that it has; 0 untold"""
    members: tuple[RasMember, ...] = ()
    """all of them, by rank; of a text, those that it names"""
    launched: dict[str, dict[int, int]] = {}
    """'AllReduce' -> {1208: 7, 1207: 1}: how many ranks have launched how many of them; of a text,
    only where they differ"""

    @property
    def changing(self) -> bool:
        """It is being made or torn down: then its ranks differ for a moment."""
        return any(one.leaving or one.state == "left" for one in self.members)


class RasAnswer(msgspec.Struct, frozen=True, kw_only=True):
    nccl: str = ""
    """'2.28.9'"""
    communicators: tuple[RasCommunicator, ...] = ()
    silent: tuple[RasProcess, ...] = ()
    """processes that do not answer, each once"""
    processes: int = 0
    """of the job; 0 untold"""
    source: str = ""
    """'NCCL RAS at localhost:28028', or the file it is from"""
    at: float = 0.0
    """when, in seconds: comparable within one source only; 0 untold"""
    states: dict[int, str] = {}
    """pid -> what the kernel says of a silent process on this machine: 'T', 'D'…, '' for gone;
    only of a live answer"""

    @property
    def pids(self) -> frozenset[int]:
        """Of all processes that it names."""
        members = (m.pid for one in self.communicators for m in one.members if m.pid)
        return frozenset((*members, *(one.pid for one in self.silent)))

    @property
    def hosts(self) -> tuple[str, ...]:
        named = [m.host for one in self.communicators for m in one.members]
        return tuple(dict.fromkeys(filter(None, (*named, *(one.host for one in self.silent)))))
