"""The side of the coordinator: which nodes meet when, and what it means."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import repeat

from holdfast import text
from holdfast.analysis.machine import Unread
from holdfast.analysis.machine.nccl_diagnostics import DiagnosticLine, report_or_why
from holdfast.analysis.nodes.isolation import (
    Isolation,
    IsolationState,
    PairOutcome,
    PairResult,
    absorb,
    conclude,
    plan_round,
)
from holdfast.analysis.nodes.smoke import (
    GroupTest,
    LeftOut,
    NodeNetwork,
    SmokeBetween,
    network_of,
    slow_alone,
)
from holdfast.check.nodes.smoke.meeting import (
    WARM_SECONDS,
    Ask,
    MeetingResult,
    SmokeNode,
    Terms,
    meet,
    reply_of,
    why_unable,
)
from holdfast.check.nodes.smoke.messages import (
    Replies,
    Requests,
    SmokeEnd,
    SmokeReady,
    SmokeUnable,
    SmokeWarm,
)

Say = Callable[[str], None]

SIZES = {"gloo": (1 << 10, 4 << 20), "nccl": (1 << 10, 4 << 20, 256 << 20)}
"""bytes: what fits one packet, then what fills the path; the last is timed"""
SHOWN = 4
"""pairs of a round that are named as it begins"""
PATIENCE = {"gloo": 10.0, "nccl": 45.0}
"""seconds that torch may wait: NCCL's first call brings up the driver on every GPU"""


async def smoke(
    nodes: Sequence[SmokeNode], ask: Ask, say: Say, *, seconds: float | None = None
) -> SmokeBetween:
    """Pairs in rounds until it is known who is faulty, then all that are left together.

    `ask` sends a node one request at a time. `seconds` is what torch may wait in one test; by
    default what the backend needs.
    """
    line = _Line(ask)
    try:
        return await _BetweenNodes(nodes, line.ask, say, seconds).run()
    finally:
        await asyncio.gather(*(reply_of(line.ask, node.name, SmokeEnd()) for node in nodes))


class _Line:
    """A node that did not answer is not asked again: each question would wait as long."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._lost: dict[str, Exception] = {}

    async def ask(self, name: str, request: Requests) -> Replies:
        if name in self._lost:
            raise self._lost[name]
        try:
            return await self._ask(name, request)
        except Exception as problem:
            self._lost[name] = problem
            raise


class _BetweenNodes:
    def __init__(
        self, nodes: Sequence[SmokeNode], ask: Ask, say: Say, seconds: float | None
    ) -> None:
        self.nodes = {node.name: node for node in nodes}
        self.ask = ask
        self.say = say
        self.seconds = seconds
        self.own_seconds: dict[str, float] = {}
        self.lines: list[str] = []
        self.networks: dict[str, NodeNetwork] = {}

    async def run(self) -> SmokeBetween:
        began = time.monotonic()
        ready, left_out = await self._warm()
        self.terms, why_not_nccl = terms_for(ready, self.seconds)
        isolation, rounds = await self._isolate(tuple(ready))
        group = await self._together(isolation, tuple(ready))
        return SmokeBetween(
            backend=self.terms.backend,
            why_backend=why_not_nccl,
            ranks=sum(self.terms.ranks.values()),
            left_out=left_out,
            rounds=rounds,
            isolation=isolation,
            group=group,
            slow_alone=slow_alone(self.own_seconds),
            diagnostics=self._diagnostics(ready, why_not_nccl),
            networks=self.networks,
            seconds=time.monotonic() - began,
        )

    async def _warm(self) -> tuple[dict[str, SmokeReady], tuple[LeftOut, ...]]:
        self.say(f"{len(self.nodes)} nodes: importing torch")
        requests = [
            SmokeWarm(seconds=WARM_SECONDS, leave_gpus=node.leave_gpus)
            for node in self.nodes.values()
        ]
        replies = await asyncio.gather(*map(reply_of, repeat(self.ask), self.nodes, requests))
        ready: dict[str, SmokeReady] = {}
        left_out: list[LeftOut] = []
        for name, reply in zip(self.nodes, replies, strict=True):
            if isinstance(reply, SmokeReady):
                ready[name] = reply
                continue
            why, broken = why_unable(reply), isinstance(reply, SmokeUnable) and reply.broken
            left_out.append(LeftOut(name=name, why=why, broken=broken))
            self.say(f"{name} does not take part: {why}")
        return ready, tuple(left_out)

    async def _isolate(
        self, names: tuple[str, ...]
    ) -> tuple[Isolation, tuple[tuple[PairResult, ...], ...]]:
        racks = {name: self.nodes[name].rack for name in names}
        state = IsolationState(nodes=names, racks=racks)
        while pairs := plan_round(state):
            listed = ", ".join(" and ".join(pair) for pair in pairs[:SHOWN])
            more = f" and {len(pairs) - SHOWN} more pairs" if len(pairs) > SHOWN else ""
            self.say(f"round {len(state.rounds) + 1}: {listed}{more}")
            busy = {name for pair in pairs for name in pair}
            results, _ = await asyncio.gather(
                asyncio.gather(*(self._pair(*pair) for pair in pairs)),
                self._warm_again([name for name in names if name not in busy]),
            )
            state = absorb(state, results)
        return conclude(state), state.rounds

    async def _warm_again(self, idle: Sequence[str]) -> None:
        """Ranks that failed are up again when they are needed; and no member takes the
        coordinator for lost while others are tested."""
        warm = SmokeWarm(seconds=WARM_SECONDS)
        await asyncio.gather(*(reply_of(self.ask, name, warm) for name in idle))

    async def _pair(self, first: str, second: str) -> PairResult:
        result = await self._meet([first, second])
        said = _speed(result.speed) if result.outcome is PairOutcome.PASSED else result.why
        self.say(f"{first} and {second}: {result.outcome.value}, {said}")
        return PairResult(
            first=first,
            second=second,
            outcome=result.outcome,
            speed=result.speed,
            why=result.why,
            missing=result.missing,
        )

    async def _together(self, isolation: Isolation, names: tuple[str, ...]) -> GroupTest:
        """All that pass in pairs; of a bad link one end stays out, since any ring may use it."""
        faulty = {one.name for one in (*isolation.bad, *isolation.undecided)}
        faulty |= {link.second for link in isolation.links}
        fit = [name for name in names if name not in faulty]
        if len(fit) < 3:
            why = f"{len(fit)} nodes are left, which were tested as a pair" if fit else "none left"
            return GroupTest(nodes=tuple(fit), outcome=PairOutcome.NOT_RUN, speed=None, why=why)
        self.say(f"all together: {len(fit)} nodes")
        result = await self._meet(fit)
        return GroupTest(
            nodes=tuple(fit), outcome=result.outcome, speed=result.speed, why=result.why
        )

    async def _meet(self, names: Sequence[str]) -> MeetingResult:
        result = await meet([self.nodes[name] for name in names], self.terms, self.ask)
        for name, reply in result.replies.items():
            self.lines.extend(reply.diagnostics)
            if network := network_of(reply.links):
                self.networks[name] = network
            if reply.own_seconds:
                best = self.own_seconds.get(name, reply.own_seconds)
                self.own_seconds[name] = min(best, reply.own_seconds)
        return result

    def _diagnostics(
        self, ready: Mapping[str, SmokeReady], why_not_nccl: str
    ) -> tuple[DiagnosticLine, ...] | Unread:
        if why_not_nccl:
            return Unread(why=f"NCCL was not used: {why_not_nccl}")
        return report_or_why(self.lines, (reply.nccl for reply in ready.values()))


def terms_for(ready: Mapping[str, SmokeReady], seconds: float | None) -> tuple[Terms, str]:
    """NCCL with a rank for each GPU where every node has it, else Gloo with one rank a node; and
    why it is not NCCL."""
    without = {name: reply.why_no_nccl for name, reply in ready.items() if not reply.nccl}
    backend = "gloo" if without or not ready else "nccl"
    why = next((f"{name}: {reason}" for name, reason in without.items()), "")
    if not ready:
        why = "no node takes part"
    ranks = {name: 1 if backend == "gloo" else reply.ranks for name, reply in ready.items()}
    return Terms(backend, SIZES[backend], seconds or PATIENCE[backend], ranks), why


def _speed(speed: float | None) -> str:
    return "not timed" if speed is None else text.bandwidth(speed)
