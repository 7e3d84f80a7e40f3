"""One test among some nodes: warm their ranks, open a store, let them meet, judge what they say."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import NamedTuple

from holdfast.analysis.nodes.isolation import PairOutcome
from holdfast.check.nodes.smoke.messages import (
    Replies,
    Requests,
    SmokeHost,
    SmokeHosted,
    SmokeMeet,
    SmokeMet,
    SmokeReady,
    SmokeUnable,
    SmokeWarm,
)
from holdfast.check.smoke.errno_words import translate

Ask = Callable[[str, Requests], Awaitable[Replies]]
"""node, request -> reply; raises when the node does not answer"""

WARM_SECONDS = 90.0
"""for importing torch, which may come from a slow file system; members wait longer for a word"""


class SmokeNode(NamedTuple):
    """A node, and the address at which the others reach it."""

    name: str
    address: str
    rack: str = ""
    leave_gpus: str = ""
    """why a test may not use its GPUs"""


class Terms(NamedTuple):
    """How a test is done."""

    backend: str
    sizes: tuple[int, ...]
    seconds: float
    ranks: Mapping[str, int]
    """of each node"""


class MeetingResult(NamedTuple):
    outcome: PairOutcome
    speed: float | None = None
    why: str = ""
    missing: tuple[str, ...] = ()
    replies: Mapping[str, SmokeMet] = {}


def why_unable(reply: Replies) -> str:
    """Its reason; a member that cannot answer at all has one, too."""
    return str(getattr(reply, "why", "")) or f"it answered with {type(reply).__name__}"


async def reply_of(ask: Ask, name: str, request: Requests) -> Replies:
    """Its reply; that it did not answer is one, too."""
    try:
        return await ask(name, request)
    except Exception as problem:  # noqa: BLE001 - whatever it was, the node did not answer
        return SmokeUnable(why=f"it did not answer: {problem or type(problem).__name__}")


async def meet(nodes: Sequence[SmokeNode], terms: Terms, ask: Ask) -> MeetingResult:
    """The first of them serves the store."""
    names = [node.name for node in nodes]
    # Ranks that failed in an earlier test start again first: a slow import is no network problem.
    warm = await asyncio.gather(
        *(reply_of(ask, name, SmokeWarm(seconds=WARM_SECONDS)) for name in names)
    )
    if gone := _unable(names, warm, SmokeReady):
        return _not_run(gone)
    first = nodes[0]
    host = SmokeHost(address=first.address, seconds=terms.seconds)
    hosted = await reply_of(ask, first.name, host)
    if isinstance(hosted, SmokeMet):  # its ranks are up, and cannot reach its own address
        return judge([first.name], [hosted], size=0, world=1)
    if not isinstance(hosted, SmokeHosted):
        return _not_run(_unable([first.name], [hosted], SmokeHosted))
    test = secrets.token_hex(8)
    world = sum(terms.ranks[name] for name in names)
    requests = []
    first_rank = 0
    for name in names:
        requests.append(
            SmokeMeet(
                test=test,
                address=first.address,
                port=hosted.port,
                first_rank=first_rank,
                ranks=terms.ranks[name],
                world=world,
                backend=terms.backend,
                sizes=terms.sizes,
                seconds=terms.seconds,
            )
        )
        first_rank += terms.ranks[name]
    replies = await asyncio.gather(*map(reply_of, [ask] * len(names), names, requests))
    return judge(names, replies, size=terms.sizes[-1], world=world)


def judge(
    names: Sequence[str], replies: Sequence[Replies], *, size: int, world: int
) -> MeetingResult:
    """A node that fell silent says nothing about the others; a failure is told by the side that
    saw more than 'the other did not answer'."""
    if gone := _unable(names, replies, SmokeMet):
        return _not_run(gone)
    met = {n: r for n, r in zip(names, replies, strict=True) if isinstance(r, SmokeMet)}
    failed = {name: reply for name, reply in met.items() if reply.error}
    if failed:
        teller = min(failed, key=lambda name: (failed[name].victim, names.index(name)))
        why = f"{teller}: {_in_words(failed[teller].error)}"
        return MeetingResult(PairOutcome.FAILED, why=why, replies=met)
    seconds = max(reply.seconds for reply in met.values())
    moved = 2 * (world - 1) / world * size
    speed = moved / seconds if seconds > 0 else None
    return MeetingResult(PairOutcome.PASSED, speed=speed, replies=met)


def _in_words(error: str) -> str:
    meaning = translate(error)
    return f"{meaning.words}; it said: {error}" if meaning else error


def _unable(
    names: Sequence[str], replies: Sequence[Replies], wanted: type[Replies]
) -> dict[str, str]:
    """node -> why it did not do what it was asked."""
    return {
        name: why_unable(reply)
        for name, reply in zip(names, replies, strict=True)
        if not isinstance(reply, wanted)
    }


def _not_run(gone: Mapping[str, str]) -> MeetingResult:
    return MeetingResult(
        PairOutcome.NOT_RUN,
        why="; ".join(f"{name}: {why}" for name, why in gone.items()),
        missing=tuple(gone),
    )
