"""One node's part in a check: it answers what it is asked, from a fixed list, and ends."""

from __future__ import annotations

import contextlib
import os
from typing import Any

import msgspec

from holdfast import catalogue
from holdfast.analysis.machine import MachineFacts, Resolution, Unread
from holdfast.check.collect import collect
from holdfast.check.nodes import messages
from holdfast.check.nodes.smoke.member import SmokeMember
from holdfast.check.nodes.smoke.messages import SmokeEnd, SmokeHost, SmokeMeet, SmokeWarm
from holdfast.check.nodes.store_belief import store_belief
from holdfast.check.plan import make_plan
from holdfast.check.reader_list import readers, readers_for
from holdfast.check.readers.devices import accelerator_nodes
from holdfast.check.readers.names import resolve
from holdfast.nodes.channel import Channel
from holdfast.nodes.clock_exchange import ClockPing, answer_ping
from holdfast.nodes.probing.answer import open_listeners, try_paths
from holdfast.nodes.probing.messages import OpenListeners, TryPaths
from holdfast.system import deadline
from holdfast.system.paths.identity import boot_id

QUIET_SECONDS = 120.0
"""so long may the coordinator be busy with others; then it is gone, and so are we"""
RESOLVE_SECONDS = 2.0
COMPARED = ("interfaces", "routes", "software", "settings", "port_ranges", "accelerators", "clock",
            "rdma_devices", "rdma_ports", "rdma_cards", "own_name", "limits", "shm", "nvidia",
            "fabric")  # fmt: skip
"""facts that are compared between nodes, also when `--only` leaves out the checks that need them"""


async def serve(channel: Channel, arrival: messages.Arrival) -> messages.Finish:
    """Answer until the coordinator says that the check is over."""
    await channel.send(arrival)
    smoke = SmokeMember()
    async with contextlib.AsyncExitStack() as until_the_end:
        until_the_end.callback(smoke.close)
        while True:
            request = await channel.receive(seconds=QUIET_SECONDS)
            if isinstance(request, messages.Finish):
                return request
            try:
                reply = await _answer(request, until_the_end, smoke)
            except Exception as bug:  # noqa: BLE001 - the others must hear of it, whatever it is
                reply = messages.Sorry(why=f"{type(bug).__name__}: {bug}")
            await channel.send(reply)


async def _answer(
    request: Any, until_the_end: contextlib.AsyncExitStack, smoke: SmokeMember
) -> msgspec.Struct:
    reply: msgspec.Struct
    match request:
        case messages.LookAtYourself():
            reply = _look_at_yourself(request)
        case messages.ResolveNames():
            reply = _resolve_names(request)
        case OpenListeners():
            reply = await open_listeners(request, until_the_end)
        case TryPaths():
            reply = await try_paths(request)
        case ClockPing():
            reply = answer_ping(request)
        case SmokeWarm() | SmokeHost() | SmokeMeet() | SmokeEnd():
            reply = await smoke.handle(request)
        case _:
            reply = messages.Sorry(why=f"{type(request).__name__} is not a question for a member")
    return reply


def _look_at_yourself(request: messages.LookAtYourself) -> messages.SelfReport:
    plan = make_plan(request.flags, os.environ, accelerators=len(accelerator_nodes()))
    faults = catalogue.choose(request.only, request.skip)
    wanted = {**readers(COMPARED), **readers_for(faults)}
    facts = collect(plan, wanted, seconds=request.deadline)
    return messages.SelfReport(
        facts=_without_environment(facts),
        findings=tuple(catalogue.check(facts, faults)),
        boot_id=boot_id(),
    )


def _without_environment(facts: MachineFacts) -> MachineFacts:
    """It may hold secrets; what matters of it is in `settings`, with secrets taken out."""
    return msgspec.structs.replace(facts, plan=msgspec.structs.replace(facts.plan, environment={}))


def _resolve_names(request: messages.ResolveNames) -> messages.ResolvedNames:
    """In children: a resolver whose server is gone may block for half a minute."""
    questions = {name: _question(name) for name in request.names}
    raw = deadline.ask(questions, seconds=RESOLVE_SECONDS)
    return messages.ResolvedNames(
        names=tuple(_resolution(name, raw[name]) for name in request.names),
        store=store_belief(request.endpoint) if request.endpoint else None,
    )


def _question(name: str) -> deadline.Question:
    return lambda: msgspec.msgpack.encode(resolve(name))


def _resolution(name: str, answer: bytes | Unread) -> Resolution:
    if isinstance(answer, Unread):
        return Resolution(name=name, addresses=(), error=answer.why, seconds=RESOLVE_SECONDS)
    return msgspec.msgpack.decode(answer, type=Resolution)
