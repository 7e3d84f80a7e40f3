"""A launcher joins its coordinator: it tries until the join timeout, and says what it sees."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable, Collection
from typing import NamedTuple

from holdfast.analysis.machine import StoreAnswer, Unread
from holdfast.nodes.channel_errors import (
    ChannelClosed,
    ChannelError,
    ChannelTimeout,
    CouldNotJoin,
    NotHoldfast,
    Refused,
    WrongToken,
    WrongVersion,
)
from holdfast.nodes.reach.meeting import MeetingPlan
from holdfast.nodes.token import Token
from holdfast.run.nodes.link.launcher_link import JoinedLink
from holdfast.run.nodes.meeting_sight import Answered, MeetingSight, SightWords, in_words
from holdfast.run.nodes.messages import NodeCard
from holdfast.run.nodes.round_source import ToldToEnd, WaitInterrupted
from holdfast.system import deadline
from holdfast.system.paths.neighbours import silent_neighbours
from holdfast.system.sockets import connect
from holdfast.system.store_protocol import ask_store
from holdfast.view import run_screen

ONE_TRY = 2.5
"""seconds of tries before what is seen there is looked at"""
CONNECT_SECONDS = 2.0
RESOLVE_SECONDS = 5.0
SAY_AGAIN = (30.0, 60.0, 120.0)
"""seconds until the same is said again, while nothing changes"""
REFUSED_SECONDS = 30.0
"""a coordinator of another run may be about to end; longer it is not waited for"""
REFUSED_PAUSE = 2.0

Say = Callable[[str], None]


class ThisNodeIsMeant(Exception):  # noqa: N818 - its name is what happened
    """The place's name resolves by now, and to this node: it does not join, it coordinates."""

    def __init__(self, resolved: tuple[str, ...]) -> None:
        self.resolved = resolved


class MayChange(NamedTuple):
    """What is asked again while the coordinator is awaited."""

    newer_token: Callable[[], Token | None] = lambda: None
    """that is handed over by now"""
    waits_for_token: bool = False
    """node 0 may hand it over much later"""
    is_meant: Callable[[tuple[str, ...]], bool] = lambda _: False
    """whether a name that resolves to these addresses means this node"""
    told: ToldToEnd = lambda: None
    """a signal that asks this launcher to end"""


NOTHING_CHANGES = MayChange()


def join_coordinator(
    plan: MeetingPlan,
    *,
    token: Token,
    card: NodeCard,
    rendezvous_id: str,
    seconds: float,
    own: Collection[str],
    say: Say,
    may_change: MayChange = NOTHING_CHANGES,
) -> JoinedLink:
    """Raises ThisNodeIsMeant; the last ChannelError when the join timeout is over, or what no
    waiting can change; WaitInterrupted for a signal."""
    began = time.monotonic()
    teller = _Teller(say)
    connected_before = False
    while True:
        if may_change.told() is not None:
            raise WaitInterrupted
        pause = 0.0
        left = began + seconds - time.monotonic()
        token = may_change.newer_token() or token
        try:
            return JoinedLink(
                plan.host,
                plan.port,
                token=token,
                card=card,
                seconds=max(0.1, min(left, ONE_TRY)),
                rendezvous_id=rendezvous_id,
            )
        except WrongVersion:
            raise
        except (CouldNotJoin, ChannelClosed, ChannelTimeout, NotHoldfast) as problem:
            sight = look(plan.host, plan.port)
            if sight.error and may_change.is_meant(sight.resolved):
                raise ThisNodeIsMeant(sight.resolved) from None
            if not sight.error and not sight.resolve_error and not connected_before:
                connected_before = True  # the coordinator may have come this very moment
                continue
            connected_before = False
            seen = in_words(plan, sight, own=own)
            end, problem.sentence = began + seconds, f"{seen.sentence} (waited {seconds:g} s)"
            problem.hint = seen.hint
            failure: ChannelError = problem
        except ChannelError as problem:  # it is known there, and not admitted
            slug = "rendezvous-config" if isinstance(problem, Refused) else ""
            seen = SightWords(problem.sentence, problem.hint, slug)
            in_time = isinstance(problem, WrongToken) and may_change.waits_for_token
            end, failure = began + (seconds if in_time else min(seconds, REFUSED_SECONDS)), problem
            pause = REFUSED_PAUSE
        teller.tell(seen, time.monotonic())
        if time.monotonic() >= end:
            raise failure
        time.sleep(pause)


class _Teller:
    """The same sentence is said again rarely, another one at once."""

    def __init__(self, say: Say) -> None:
        self._say = say
        self._last: SightWords | None = None
        self._again_at = 0.0
        self._times = 0

    def tell(self, seen: SightWords, now: float) -> None:
        if seen == self._last and now < self._again_at:
            return
        self._times = self._times + 1 if seen == self._last else 0
        self._last = seen
        self._again_at = now + SAY_AGAIN[min(self._times, len(SAY_AGAIN) - 1)]
        words = f"still waiting: {seen.sentence}" if self._times else seen.sentence
        # that nodes come one after the other is no fault
        is_fault = seen.slug and (self._times or seen.slug != "master-not-listening")
        self._say(run_screen.named("notice", seen.slug, words) if is_fault else words)
        if seen.hint:
            self._say(f"hint: {seen.hint}")


def look(host: str, port: int) -> MeetingSight:
    resolved, error = resolve(host)
    if error:
        return MeetingSight(resolve_error=error)
    seen = ""
    for address in resolved:
        seen = connect(address, port, seconds=CONNECT_SECONDS).error
        if not seen:
            return MeetingSight(resolved=(address,), answered=_answered(address, port))
    return MeetingSight(resolved=resolved, error=seen, no_neighbour=_no_neighbour(resolved))


def resolve(host: str) -> tuple[tuple[str, ...], str]:
    """Addresses, or why there are none. In a child: a resolver whose server is gone may block for
    half a minute."""

    def ask() -> bytes:
        try:
            found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
        except socket.gaierror as problem:
            return f"!{problem.strerror}".encode()
        except UnicodeError:
            return b"!not a possible host name"
        return ",".join(dict.fromkeys(str(one[4][0]) for one in found)).encode()

    answer = deadline.ask({"name": ask}, seconds=RESOLVE_SECONDS)["name"]
    if isinstance(answer, Unread):
        return (), f"no answer within {RESOLVE_SECONDS:g} s"
    words = answer.decode()
    return ((), words[1:]) if words.startswith("!") else (tuple(words.split(",")), "")


def own_names() -> tuple[str, ...]:
    """The name of this machine, and its full one, which a name server may have to be asked for."""

    def ask() -> bytes:
        return socket.getfqdn().encode()

    answer = deadline.ask({"name": ask}, seconds=RESOLVE_SECONDS)["name"]
    full = () if isinstance(answer, Unread) else (answer.decode(),)
    return (socket.gethostname(), *full)


def _answered(address: str, port: int) -> Answered:
    answer = ask_store(address, port)
    return (
        "torch's store" if isinstance(answer, StoreAnswer) and answer.is_store else "something else"
    )


def _no_neighbour(resolved: Collection[str]) -> bool:
    with contextlib.suppress(OSError):
        return bool(set(resolved) & set(silent_neighbours()))
    return False


def own_address_towards(addresses: Collection[str], port: int) -> str:
    """The address from which packets would go there, as the kernel routes them; none is sent."""
    for address in addresses:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((address, port or 9))
            return str(probe.getsockname()[0])
    return ""
