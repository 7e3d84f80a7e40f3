"""The coordinator with simulated members: real decisions, no ranks."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec
import pytest

from holdfast.analysis.machine import NcclLink, Unread
from holdfast.analysis.machine.nccl_diagnostics import DiagnosticKind
from holdfast.analysis.nodes.isolation import PairOutcome
from holdfast.analysis.nodes.smoke import NodeNetwork, SmokeBetween, network_of, slow_alone
from holdfast.check.nodes.smoke import coordinate
from holdfast.check.nodes.smoke.coordinate import smoke, terms_for
from holdfast.check.nodes.smoke.meeting import SmokeNode, judge
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

GPUS = SmokeReady(torch="2.13", nccl="2.31.2", why_no_nccl="", ranks=8)
CPU = SmokeReady(torch="2.13", nccl="", why_no_nccl="no GPU is visible to torch", ranks=1)
SENT = "connecting to 10.0.0.1:4: Connection refused"


@dataclass
class Cluster:
    """Members as a coordinator sees them. A test knows who meets by the name of the test."""

    ready: dict[str, SmokeReady | SmokeUnable]
    bad: set[str] = field(default_factory=set)
    dies: set[str] = field(default_factory=set)
    """when it is to meet another"""
    slow: set[str] = field(default_factory=set)
    says: tuple[str, ...] = ()
    links: tuple[NcclLink, ...] = ()
    meeting: dict[str, set[str]] = field(default_factory=dict)
    worlds: list[tuple[str, int, int, int]] = field(default_factory=list)
    busy: set[str] = field(default_factory=set)
    ended: list[str] = field(default_factory=list)

    async def ask(self, name: str, request: Requests) -> Replies:
        assert name not in self.busy, "two requests at a time to one node"
        self.busy.add(name)
        try:
            return await self._answer(name, request)
        finally:
            self.busy.remove(name)

    async def _answer(self, name: str, request: Requests) -> Replies:
        if isinstance(request, SmokeWarm):
            return self.ready[name]
        if isinstance(request, SmokeHost):
            return SmokeHosted(port=4000)
        if isinstance(request, SmokeEnd):
            self.ended.append(name)
            return SmokeEnded()
        return await self._meet(name, request)

    async def _meet(self, name: str, request: SmokeMeet) -> Replies:
        self.meeting.setdefault(request.test, set()).add(name)
        self.worlds.append((request.test, request.first_rank, request.ranks, request.world))
        if name in self.dies:
            raise ConnectionError("connection lost")
        await asyncio.sleep(0)  # until all of them are there
        together = self.meeting[request.test]
        if together & self.bad:
            culprit = name in self.bad
            error = f"OSError: [Errno 111] {SENT}" if culprit else "wait timeout after 10000ms"
            return SmokeMet(error=error, victim=not culprit)
        return SmokeMet(
            seconds=0.4 if together & self.slow else 0.01, diagnostics=self.says, links=self.links
        )

    def asked_to_meet(self, name: str) -> bool:
        return any(name in together for together in self.meeting.values())

    def run(self) -> SmokeBetween:
        nodes = [SmokeNode(name, f"10.0.0.{n}") for n, name in enumerate(self.ready)]
        seen = asyncio.run(smoke(nodes, self.ask, lambda line: None))
        lost = {name for name in self.dies if self.asked_to_meet(name)}
        assert {*self.ended} == {*self.ready} - lost, "every node that answers ends its ranks"
        return seen


def names(count: int) -> list[str]:
    return [f"n{number:02}" for number in range(count)]


def cluster(count: int, ready: SmokeReady | SmokeUnable = CPU, **faults: object) -> Cluster:
    return Cluster(dict.fromkeys(names(count), ready), **faults)  # type: ignore[arg-type]


def test_healthy_nodes_meet_in_pairs_then_together() -> None:
    seen = cluster(64).run()
    assert seen.isolation.cleared == tuple(names(64))
    assert [len(results) for results in seen.rounds] == [32]
    assert (seen.group.outcome, len(seen.group.nodes)) == (PairOutcome.PASSED, 64)


def test_a_bad_node_is_named_with_its_words_and_left_out_of_the_group() -> None:
    seen = cluster(8, bad={"n03"}).run()
    (bad,) = seen.isolation.bad
    assert bad.name == "n03"
    assert SENT in bad.why
    assert "n03" not in seen.group.nodes
    assert seen.group.outcome is PairOutcome.PASSED


def test_a_straggler_stays_in_the_group() -> None:
    seen = cluster(8, slow={"n05"}).run()
    assert [node.name for node in seen.isolation.stragglers] == ["n05"]
    assert "n05" in seen.group.nodes


def test_a_node_that_falls_silent_is_undecided_and_its_partner_is_cleared() -> None:
    seen = cluster(4, dies={"n01"}).run()
    assert [node.name for node in seen.isolation.undecided] == ["n01"]
    assert "connection lost" in seen.isolation.undecided[0].why
    assert seen.isolation.cleared == ("n00", "n02", "n03")


def test_nodes_without_torch_are_left_out_with_the_reason() -> None:
    members = cluster(4)
    members.ready["n02"] = SmokeUnable(why="its Python has no torch")
    members.ready["n03"] = SmokeUnable(why="ImportError: x", broken=True)
    seen = members.run()
    assert [(one.name, one.why, one.broken) for one in seen.left_out] == [
        ("n02", "its Python has no torch", False),
        ("n03", "ImportError: x", True),
    ]
    assert seen.isolation.cleared == ("n00", "n01")
    assert "tested as a pair" in seen.group.why


def test_where_no_node_can_take_part_nothing_is_concluded() -> None:
    seen = cluster(3, SmokeUnable(why="its Python has no torch")).run()
    assert (seen.rounds, seen.isolation.cleared, len(seen.left_out)) == ((), (), 3)
    assert seen.group.outcome is PairOutcome.NOT_RUN


def test_ranks_are_numbered_without_gaps_when_nodes_have_several_gpus() -> None:
    members = cluster(3, GPUS)
    members.ready["n01"] = SmokeReady(torch="2.13", nccl="2.31.2", why_no_nccl="", ranks=4)
    seen = members.run()
    assert (seen.backend, seen.ranks) == ("nccl", 20)
    together = members.worlds[-1][0]
    ranks = sorted(
        rank
        for test, first, count, _ in members.worlds
        if test == together
        for rank in range(first, first + count)
    )
    assert ranks == list(range(20))


def test_one_node_without_gpus_makes_it_gloo_and_says_why() -> None:
    ready: dict[str, SmokeReady] = {"a": GPUS, "b": CPU}
    terms, why = terms_for(ready, None)
    assert (terms.backend, why) == ("gloo", "b: no GPU is visible to torch")
    assert terms.ranks == {"a": 1, "b": 1}
    assert terms.seconds == coordinate.PATIENCE["gloo"]


def test_which_network_nccl_took_is_known_of_every_node() -> None:
    links = tuple(
        NcclLink(sender=n, receiver=n + 8, transport="NET", way="IB", device=n, gpu_direct=True)
        for n in range(4)
    )
    by_nvlink = NcclLink(sender=0, receiver=1, transport="P2P", way="CUMEM")
    seen = cluster(3, GPUS, links=(by_nvlink, *links)).run()
    assert seen.networks == dict.fromkeys(
        ("n00", "n01", "n02"), NodeNetwork(way="IB", cards=4, gpu_direct=True)
    )
    assert network_of([by_nvlink]) is None
    mixed = network_of([*links, msgspec.structs.replace(links[0], gpu_direct=False)])
    assert mixed == NodeNetwork(way="IB", cards=4, gpu_direct=False)


def test_a_node_whose_gpus_are_in_use_is_told_to_leave_them() -> None:
    told: dict[str, str] = {}

    async def ask(name: str, request: Requests) -> Replies:
        if isinstance(request, SmokeWarm) and request.leave_gpus:
            told[name] = request.leave_gpus
        return SmokeEnded() if isinstance(request, SmokeEnd) else SmokeUnable(why="not now")

    nodes = [SmokeNode("a", "10.0.0.1", leave_gpus="pid 7 uses it"), SmokeNode("b", "10.0.0.2")]
    asyncio.run(smoke(nodes, ask, lambda _: None))
    assert told == {"a": "pid 7 uses it"}


def test_what_nccl_diagnoses_is_read_and_older_versions_say_that_they_do_not() -> None:
    line = "n00:7 NCCL DIAG [INFO] NVLink: 1 inactive link(s) on rank(s) {3} in comm 0x1"
    seen = cluster(4, GPUS, says=(line,)).run()
    assert not isinstance(seen.diagnostics, Unread)
    assert [(one.check, one.kind) for one in seen.diagnostics] == [("NVLink", DiagnosticKind.FAULT)]
    old = cluster(4, SmokeReady(torch="2.11", nccl="2.28.9", why_no_nccl="", ranks=1)).run()
    assert old.diagnostics == Unread(why="NCCL 2.28.9 has no diagnostics (2.31 has)")
    assert isinstance(cluster(4, GPUS).run().diagnostics, Unread)  # asked for, and not printed


@pytest.mark.parametrize(
    ("replies", "outcome", "why"),
    [
        ([SmokeMet(seconds=0.5), SmokeMet(seconds=0.25)], PairOutcome.PASSED, ""),
        (
            [SmokeMet(error="wait timeout", victim=True), SmokeMet(error="[Errno 111] refused")],
            PairOutcome.FAILED,
            "b: refused: a firewall rule rejects it",
        ),
        (
            [SmokeMet(error="wait timeout", victim=True), SmokeMet(seconds=1.0)],
            PairOutcome.FAILED,
            "a: wait timeout",
        ),
        (
            [SmokeMet(error="boom"), SmokeUnable(why="it did not answer: gone")],
            PairOutcome.NOT_RUN,
            "b: it did not answer: gone",
        ),
    ],
)
def test_the_more_telling_side_speaks(
    replies: Sequence[Replies], outcome: PairOutcome, why: str
) -> None:
    result = judge(["a", "b"], replies, size=1 << 20, world=2)
    assert result.outcome is outcome
    assert why in result.why
    assert result.speed == ((1 << 20) / 0.5 if outcome is PairOutcome.PASSED else None)


def test_a_node_that_works_slowly_without_any_network_is_named() -> None:
    times = {"a": 0.0011, "b": 0.001, "c": 0.0031, "d": 0.0012}
    (found,) = slow_alone(times)
    assert found.name == "c"
    assert slow_alone({"a": 1.0, "b": 9.0}) == ()
    assert slow_alone({}) == ()
