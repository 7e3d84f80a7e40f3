"""What the records say about each rank: how far it came, and how it failed. Pure."""

from __future__ import annotations

import re
import signal
from collections.abc import Sequence
from typing import NamedTuple

from holdfast.check.smoke.stages import STAGES, Record

CONSEQUENCE = re.compile(
    r"closed by peer|reset by peer|Broken pipe|wait timeout after|clients joined"
    r"|Timed out waiting|Operation timed out|Watchdog caught|failed to recv|Failed to recv"
    r"|remote process exited|Call to recv",
    re.IGNORECASE,
)
"""what torch, Gloo and NCCL say on a rank that waited for another"""


class RankProgress(NamedTuple):
    """How far one rank got."""

    rank: int
    reached: int
    """how many stages it got through, without a gap"""
    finished: str
    """the last stage it did not leave out, '' for none"""
    pid: int
    device: str
    master: str
    nccl: str
    gpu: str
    error: str
    """its own report"""
    printed: str
    """the end of what it printed, when it is gone"""
    exit_code: int | None
    late: bool
    """it was told to begin, and had neither finished nor failed when we stopped waiting"""
    state: str
    """the kernel's letter at that moment: 'S', 'T', 'D'…; '' otherwise"""

    @property
    def was_a_victim(self) -> bool:
        if self.error:
            return bool(CONSEQUENCE.search(self.error))
        # NCCL's watchdog and Gloo's checks abort a rank that is a victim; a rank that was
        # killed, crashed or left with code 0 has no such excuse.
        aborted = self.exit_code == -signal.SIGABRT
        return aborted and bool(CONSEQUENCE.search(self.printed))

    @property
    def stopped(self) -> bool:
        return self.state in ("T", "t")

    @property
    def failed_by_itself(self) -> bool:
        """It raised, died or was stopped, and not because another rank was missing."""
        broke = bool(self.error) or self.exit_code is not None or self.stopped
        return broke and not self.was_a_victim


def standing(rank: int, records: Sequence[Record]) -> RankProgress:
    mine = [record for record in records if record.rank == rank]
    done = {record.stage for record in mine if record.kind == "done"}
    passed = done | {record.stage for record in mine if record.kind == "skipped"}
    reached = next((i for i, stage in enumerate(STAGES) if stage not in passed), len(STAGES))
    hello = next((r for r in mine if (r.kind, r.stage) == ("done", STAGES[0])), None)
    born = next((r for r in mine if r.kind == "started"), None)
    error = next((r for r in mine if r.kind == "error"), None)
    end = next((r for r in mine if r.kind == "exit"), None)
    late = next((r for r in mine if r.kind == "late"), None)
    return RankProgress(
        rank=rank,
        reached=reached,
        finished=next((s for s in reversed(STAGES[:reached]) if s in done), ""),
        pid=hello.pid if hello else born.pid if born else 0,
        device=hello.device if hello else "",
        master=hello.master if hello else "",
        nccl=hello.nccl if hello else "",
        gpu=next((r.gpu for r in mine if r.gpu), ""),
        error=(error.text.strip() or "an error without words") if error else "",
        printed=end.text.strip() if end else "",
        exit_code=end.code if end else None,
        late=late is not None,
        state=late.text if late else "",
    )


def culprits(stage: str, standings: Sequence[RankProgress]) -> list[RankProgress]:
    """The ranks behind the failure of a stage, out of those that did not finish it.

    A rank that broke by itself comes first; else one that is silent (the others wait for
    it); only when all of them are victims is there no other rank to name.
    """
    behind = [who for who in standings if who.reached <= STAGES.index(stage)]
    least = min((who.reached for who in behind), default=0)
    behind = [who for who in behind if who.reached == least]
    broke = [who for who in behind if who.failed_by_itself]
    silent = [who for who in behind if not who.was_a_victim]
    overdue = [who for who in silent if who.late]
    return broke or overdue or silent or behind
