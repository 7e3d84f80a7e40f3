"""The stages of a check across nodes, in the order of a first-move checklist.

Each node looks at itself; names; listeners; paths; clocks. All nodes do a stage at the same time.
A node that fails a stage takes no part in later ones, and the others go on without it.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeVar

import msgspec

from holdfast.analysis.machine import Plan, Unread
from holdfast.analysis.machine.gpus_in_use import why_leave_alone
from holdfast.analysis.nodes import (
    Absence,
    ClockOffset,
    Listening,
    Node,
    NodesFacts,
    Outcome,
    PortKind,
    Target,
)
from holdfast.analysis.nodes.smoke import SmokeBetween
from holdfast.check.collect import longest
from holdfast.check.nodes import messages
from holdfast.check.nodes.gather import Gathered
from holdfast.check.nodes.member import RESOLVE_SECONDS
from holdfast.check.nodes.smoke import messages as smoke_messages
from holdfast.check.nodes.smoke.coordinate import smoke
from holdfast.check.nodes.smoke.meeting import SmokeNode
from holdfast.check.plan import Flags
from holdfast.nodes.channel_errors import ChannelError
from holdfast.nodes.clock_exchange import ClockPong, compare_clocks
from holdfast.nodes.probing.messages import OpenedListeners, OpenListeners, TriedPaths
from holdfast.nodes.probing.plan import (
    PATH_SECONDS,
    all_paths,
    listening_addresses,
    without_lost,
)

M = TypeVar("M", bound=msgspec.Struct)

CLOCK_SECONDS = 2.0
SLACK = 20.0
"""seconds beyond what a stage needs: a busy machine must not be taken for a lost one"""


class SurveyQuestion(NamedTuple):
    """What is asked of every node."""

    flags: Flags
    plan: Plan
    only: tuple[str, ...]
    skip: tuple[str, ...]
    deadline: float
    store_host: str
    """the host of the job's store; '' when none is named"""


class Survey:
    """Asks all members, stage by stage, and keeps what they said."""

    def __init__(
        self,
        gathered: Gathered,
        *,
        coordinator: str,
        say: Callable[[str], None],
    ) -> None:
        self._members = dict(gathered.members)
        self._absent = list(gathered.absent)
        self._racks = gathered.racks
        self._coordinator = coordinator
        self._say = say

    async def conduct(self, question: SurveyQuestion) -> NodesFacts:
        key = secrets.token_bytes(32)
        reports = await self._self_checks(question)
        clocks = await self._clocks()
        names = await self._names(question, reports)
        listening = await self._listeners(question, reports, key)
        targets = {name: one.targets for name, one in listening.items()}
        paths = await self._paths(targets, key)
        return NodesFacts(
            plan=question.plan,
            nodes=tuple(
                _node(name, report, clocks.get(name), names.get(name), self._racks.get(name, ""))
                for name, report in reports.items()
            ),
            absent=tuple(self._absent),
            coordinator=self._coordinator,
            routes=tuple(one for path in paths.values() for one in path.routes),
            reach=tuple(one for path in paths.values() for one in path.reach),
            sizes=tuple(one for path in paths.values() for one in path.sizes),
            losses=tuple(one for path in paths.values() for one in path.losses),
            not_listening=tuple(one for up in listening.values() for one in up.left_out),
        )

    async def finish(self, exit_code: int, words: str) -> None:
        """Let every member end; one that cannot be told ends by its closed connection."""
        farewell = messages.Finish(exit_code=exit_code, words=words)
        await asyncio.gather(
            *(member.send(farewell) for member in self._members.values()), return_exceptions=True
        )
        await asyncio.gather(
            *(member.close() for member in self._members.values()), return_exceptions=True
        )

    # --- stages -----------------------------------------------------------------------------------

    async def _self_checks(self, question: SurveyQuestion) -> dict[str, messages.SelfReport]:
        self._say(f"each of {len(self._members)} nodes looks at itself")
        request = messages.LookAtYourself(
            flags=question.flags,
            only=question.only,
            skip=question.skip,
            deadline=question.deadline,
        )
        requests = dict.fromkeys(self._members, request)
        return await self._ask(
            requests, messages.SelfReport, "looking at itself", longest(question.deadline) + SLACK
        )

    async def _names(
        self, question: SurveyQuestion, reports: Mapping[str, messages.SelfReport]
    ) -> dict[str, messages.ResolvedNames]:
        hosts = [report.facts.host for report in reports.values()]
        wanted = dict.fromkeys([*hosts, *self._members, question.store_host])
        names = tuple(name for name in wanted if name)
        request = messages.ResolveNames(names=names, endpoint=question.store_host)
        requests = dict.fromkeys(self._members, request)
        return await self._ask(
            requests, messages.ResolvedNames, "resolving names", RESOLVE_SECONDS + SLACK
        )

    async def _listeners(
        self, question: SurveyQuestion, reports: Mapping[str, messages.SelfReport], key: bytes
    ) -> dict[str, Listening]:
        requests = {
            name: OpenListeners(
                node=name,
                addresses=listening_addresses(report.facts),
                master_port=question.plan.port,
                key=key,
            )
            for name, report in reports.items()
            if name in self._members
        }
        opened = await self._ask(requests, OpenedListeners, "opening its listeners", SLACK)
        return {name: reply.listening for name, reply in opened.items()}

    async def _paths(
        self, targets: Mapping[str, tuple[Target, ...]], key: bytes
    ) -> dict[str, TriedPaths]:
        tried_by = {name: found for name, found in targets.items() if name in self._members}
        self._say(f"the paths between {len(tried_by)} nodes are tried, in both directions")
        requests = all_paths(tried_by, self._racks, key=key)
        limit = 4 * PATH_SECONDS + SLACK
        tried = await self._ask(requests, TriedPaths, "trying the paths", limit)
        return {name: without_lost(paths, self._members) for name, paths in tried.items()}

    async def _clocks(self) -> dict[str, ClockOffset | Unread]:
        """One node after the other: what is measured is a delay."""
        offsets: dict[str, ClockOffset | Unread] = {}
        for name, member in list(self._members.items()):
            try:
                compared = await compare_clocks(member, node=name, seconds=CLOCK_SECONDS)
            except ChannelError as problem:
                self._lose(name, "comparing clocks", problem.sentence)
                continue
            offsets[name] = compared.offset
            for step in compared.steps:
                self._say(step)
        return offsets

    async def smoke(self, facts: NodesFacts) -> SmokeBetween | Unread:
        """Pairs of nodes exchange data in rounds, then all of them."""
        nodes = [
            SmokeNode(
                name,
                address,
                rack=self._racks.get(name, ""),
                leave_gpus=why_leave_alone(facts.node(name).facts),
            )
            for name in self._members
            if (address := first_address(facts, name))
        ]
        if len(nodes) < 2:
            return Unread(why="fewer than two nodes can be reached by others")

        async def ask(name: str, request: smoke_messages.Requests) -> smoke_messages.Replies:
            member = self._members[name]
            await member.send(request)
            reply: smoke_messages.Replies = await member.receive(seconds=request.reply_within)
            return reply

        return await smoke(nodes, ask, self._say)

    # --- asking -----------------------------------------------------------------------------------

    async def _ask(
        self,
        requests: Mapping[str, msgspec.Struct],
        kind: type[M],
        stage: str,
        seconds: float,
    ) -> dict[str, M]:
        """The replies by node, of those that gave one; the others are absent from now on."""
        asked = list(requests)
        replies = await asyncio.gather(
            *(self._ask_one(name, requests[name], kind, seconds) for name in asked)
        )
        good: dict[str, M] = {}
        for name, reply in zip(asked, replies, strict=True):
            if isinstance(reply, str):
                self._lose(name, stage, reply)
            else:
                good[name] = reply
        return good

    async def _ask_one(
        self, name: str, request: msgspec.Struct, kind: type[M], seconds: float
    ) -> M | str:
        """The reply, or why there is none."""
        member = self._members[name]
        try:
            await member.send(request)
            reply = await member.receive(seconds=seconds)
            while isinstance(reply, ClockPong):  # late: its clock is no longer waited for
                reply = await member.receive(seconds=seconds)
        except ChannelError as problem:
            return str(problem)
        if isinstance(reply, kind):
            return reply
        if isinstance(reply, messages.Sorry):
            return reply.why
        return f"it answered with {type(reply).__name__}, which was not asked for"

    def _lose(self, name: str, stage: str, why: str) -> None:
        self._absent.append(Absence(name=name, why=f"lost while {stage}: {why}"))
        self._say(f"{name} is lost while {stage}: {why}")
        del self._members[name]


def first_address(facts: NodesFacts, name: str) -> str:
    """An address of this node to which every other node got through; '' when there is none."""
    reach = () if isinstance(facts.reach, Unread) else facts.reach
    tried: dict[str, list[Outcome]] = {}
    for one in reach:
        if one.target.node == name and one.target.kind is PortKind.EPHEMERAL:
            tried.setdefault(one.target.address, []).append(one.outcome)
    best = sorted(tried, key=lambda address: -tried[address].count(Outcome.OK))
    return best[0] if best else ""


def _node(
    name: str,
    report: messages.SelfReport,
    clock: ClockOffset | Unread | None,
    names: messages.ResolvedNames | None,
    rack: str,
) -> Node:
    lost = Unread(why="the node was lost before it could be asked")
    return Node(
        name=name,
        facts=report.facts,
        findings=report.findings,
        boot_id=report.boot_id,
        clock=clock or lost,
        names=names.names if names else lost,
        store=names.store if names else lost,
        rack=rack,
    )
