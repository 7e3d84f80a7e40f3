"""The side of a node: it holds the ranks, lets them take part in tests, and ends them."""

from __future__ import annotations

import asyncio
import importlib.util
import os
from collections.abc import Mapping, Sequence

from holdfast import text
from holdfast.analysis.machine.nccl_diagnostics import MARK as DIAGNOSTIC
from holdfast.analysis.machine.nccl_links import read_links
from holdfast.check.nodes.smoke.messages import (
    Replies,
    Requests,
    SmokeEnd,
    SmokeEnded,
    SmokeHost,
    SmokeHosted,
    SmokeMeet,
    SmokeMet,
    SmokeReady,
    SmokeUnable,
    SmokeWarm,
)
from holdfast.check.nodes.smoke.rank_answers import RankAnswer, RankHandle
from holdfast.check.smoke.rank import shares_gpus
from holdfast.check.smoke.rank_progress import CONSEQUENCE
from holdfast.redaction import redact

GRACE = 3.0
"""seconds after torch's own timeout, in which torch says what it waited for"""
MOST_LINES = 100


class SmokeMember:
    """Answers a coordinator, one request at a time. `close` it: it ends every rank it started."""

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        self._environment = dict(os.environ if environment is None else environment)
        self.ranks: list[RankHandle] = []
        self._wanted = 1
        self._ready = RankAnswer()
        self._leave_gpus = ""

    async def handle(self, request: Requests) -> Replies:
        """Never raises for what a rank does."""
        if isinstance(request, SmokeWarm):
            self._leave_gpus = request.leave_gpus or self._leave_gpus
            return await self._warm(request.seconds)
        if isinstance(request, SmokeEnd):
            self.close()
            return SmokeEnded()
        if not self.ranks:
            return SmokeUnable(why="its ranks are not up")
        if isinstance(request, SmokeHost):
            return await self._host(request)
        return await self._meet(request)

    def close(self) -> None:
        for rank in self.ranks:
            rank.end()
        self.ranks = []

    async def _warm(self, seconds: float) -> SmokeReady | SmokeUnable:
        if self.ranks:  # up since an earlier test; those of one that failed are gone
            return self._as_ready()
        # Finding a top-level package does not import it. A mere folder named torch has no origin.
        torch = importlib.util.find_spec("torch")
        if torch is None or not torch.origin:
            return SmokeUnable(why="its Python has no torch")
        ready = await self._start(seconds)
        if ready.error:
            return SmokeUnable(why=_first_line(ready.error), broken=True)
        return self._as_ready()

    def _as_ready(self) -> SmokeReady:
        said = self._ready
        return SmokeReady(
            torch=said.torch, nccl=said.nccl, why_no_nccl=said.why_no_nccl, ranks=self._wanted
        )

    async def _start(self, seconds: float) -> RankAnswer:
        """The first rank knows how many GPUs there are; the others follow together."""
        if self._leave_gpus:
            self._environment["HOLDFAST_SMOKE_NO_NCCL"] = self._leave_gpus
        try:
            self.ranks = [RankHandle(0, self._environment)]
            self._ready = await self.ranks[0].ask("ready", within=seconds)
            self._wanted = 1 if shares_gpus() else max(1, self._ready.gpus)
            self.ranks += [RankHandle(n, self._environment) for n in range(1, self._wanted)]
        except OSError as refusal:  # EAGAIN, ENOMEM, EMFILE: the kernel gives no more
            self.close()
            return RankAnswer(error=f"no rank could be started: {refusal}")
        others = await asyncio.gather(
            *(rank.ask("ready", within=seconds) for rank in self.ranks[1:])
        )
        failed = next((answer for answer in (self._ready, *others) if answer.error), None)
        if failed is not None:
            self.close()
        return failed or self._ready

    async def _host(self, request: SmokeHost) -> SmokeHosted | SmokeMet:
        answer = await self.ranks[0].ask(
            "host", within=request.seconds + GRACE, address=request.address, seconds=request.seconds
        )
        if answer.error:
            if not answer.usable:
                self.close()
            why = f"cannot serve a store at {request.address}: {_first_line(answer.error)}"
            return SmokeMet(error=redact(why))
        return SmokeHosted(port=answer.port)

    async def _meet(self, request: SmokeMeet) -> SmokeMet:
        taking_part = self.ranks[: request.ranks]
        answers = await asyncio.gather(
            *(
                rank.ask(
                    "meet",
                    within=request.seconds + GRACE,
                    test=request.test,
                    address=request.address,
                    port=request.port,
                    rank=request.first_rank + number,
                    world=request.world,
                    backend=request.backend,
                    sizes=request.sizes,
                    seconds=request.seconds,
                )
                for number, rank in enumerate(taking_part)
            )
        )
        return self._met(taking_part, answers)

    def _met(self, ranks: Sequence[RankHandle], answers: Sequence[RankAnswer]) -> SmokeMet:
        lines = [line for rank in ranks for line in rank.words().splitlines()]
        said = tuple(redact(line) for line in lines if DIAGNOSTIC in line)[:MOST_LINES]
        links = read_links(lines)
        failed = [answer.error for answer in answers if answer.error]
        if not failed:
            return SmokeMet(
                seconds=max(answer.seconds for answer in answers),
                own_seconds=max(answer.own_seconds for answer in answers),
                diagnostics=said,
                links=links,
            )
        if not all(answer.usable for answer in answers if answer.error):
            self.close()
        causes = [error for error in failed if not CONSEQUENCE.search(error)]
        return SmokeMet(
            error=redact(_first_line((causes or failed)[0])),
            victim=not causes,
            diagnostics=said,
        )


def _first_line(words: str) -> str:
    return text.shorten(next(iter(words.splitlines()), ""), 400)
