"""Nodes before their first round: facts are made, paths are answered by the test."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import pytest

from holdfast.analysis.machine import NcclLibrary
from holdfast.analysis.nodes import ClockOffset, Listening, Outcome, PortKind, Reached, Target
from holdfast.nodes.probing.messages import (
    OpenedListeners,
    OpenListeners,
    ProbeReply,
    ProbeRequest,
    TriedPaths,
)
from holdfast.run.nodes.messages import NodeCard
from holdfast.run.nodes.path_trials import PathTrials
from holdfast.run.nodes.start_gate import GateNews, StartGate, pairs_to_try
from tests.faults.made_nodes import on_node, some_nodes

Blocked = Mapping[tuple[str, str], Outcome]


def cards(count: int, *, identity: str = "", **changed: Any) -> dict[str, NodeCard]:
    facts = some_nodes(count)
    for name, machine in changed.items():
        facts = on_node(facts, name.replace("_", "-"), **machine)
    return {
        node.name: NodeCard(
            name=node.name,
            identity=f"{node.name}{identity}",
            nproc=1,
            boot_id=str(node.boot_id),
            addresses=(f"10.0.0.{number}",),
            facts=node.facts,
        )
        for number, node in enumerate(facts.nodes)
    }


def gate(least: int) -> StartGate:
    return StartGate(own="node-a", port=29400, least=least, trials=PathTrials())


def answer(request: ProbeRequest, blocked: Blocked) -> ProbeReply:
    if isinstance(request, OpenListeners):
        targets = tuple(
            Target(
                node=request.node,
                interface=interface,
                address=address,
                port=40000,
                kind=PortKind.EPHEMERAL,
            )
            for interface, address in request.addresses
        )
        return OpenedListeners(
            trial=request.trial, listening=Listening(targets=targets, left_out=())
        )
    reach = tuple(
        Reached(
            source=request.node,
            target=target,
            outcome=blocked.get((request.node, target.node), Outcome.OK),
            error="",
            seconds=0.1,
            local_address="",
        )
        for target in request.targets
    )
    return TriedPaths(trial=request.trial, routes=(), reach=reach, sizes=(), losses=())


def play(
    gate: StartGate,
    here: Mapping[str, NodeCard],
    blocked: Blocked | None = None,
    *,
    mute: Sequence[str] = (),
) -> tuple[list[str], GateNews | None, int]:
    """What was said, the decision if there was one, and how many questions were asked."""
    now, lines, asked = 0.0, list[str](), 0
    while not gate.passed(here) and now < 60:
        news = gate.look(here, now)
        lines += news.lines
        for node, request in news.requests:
            asked += 1
            if node not in mute:
                gate.trials.heard(node, answer(request, blocked or {}))
        if news.stop or news.without:
            return lines, news, asked
        now += 0.1
    assert gate.passed(here)
    return lines, None, asked


def test_healthy_nodes_pass_and_are_asked_once() -> None:
    one = gate(4)
    assert play(one, cards(4)) == ([], None, 8)
    assert play(one, cards(4)) == ([], None, 0)


def test_a_node_that_joins_later_is_tried_with_the_others() -> None:
    one = gate(2)
    play(one, cards(2))
    _, _, asked = play(one, cards(3))
    assert asked == 6
    assert not one.passed(cards(3, identity=" again"))


@pytest.mark.parametrize(("ahead", "said"), [(90.0, True), (-90.0, True), (1.5, False)])
def test_a_clock_that_is_far_off_is_said_and_stops_nothing(ahead: float, *, said: bool) -> None:
    """As nodes join it is measured within two seconds."""
    one = gate(2)
    one.clocks["node-b"] = ClockOffset(seconds=ahead, bound=2.0)
    lines, news, _ = play(one, cards(2))
    assert news is None
    assert any("clock-skew" in line for line in lines) == said


def test_a_way_that_is_blocked_stops_the_start_with_the_finding() -> None:
    lines, news, _ = play(gate(2), cards(2), {("node-b", "node-a"): Outcome.DROPPED})
    assert news
    assert news.stop.startswith("peer-unreachable: node-b → node-a is blocked on ephemeral ports")
    assert "NCCL and Gloo listen on ports that the kernel picks" in " ".join(
        " ".join(lines).split()
    )


def test_nodes_that_are_cut_off_are_left_out_where_the_others_are_enough() -> None:
    cut = {("node-c", other): Outcome.DROPPED for other in ("node-a", "node-b")}
    cut |= {(b, a): outcome for (a, b), outcome in cut.items()}
    one = gate(2)
    _, news, _ = play(one, cards(3), cut)
    assert news
    assert (news.without, news.stop) == (("node-c",), "")
    left = {name: card for name, card in cards(3).items() if name != "node-c"}
    assert one.passed(left)
    _, news, _ = play(gate(3), cards(3), cut)
    assert news
    assert news.stop


def test_another_version_on_one_node_stops_before_any_path_is_tried() -> None:
    software = some_nodes(2).nodes[1].facts.software
    library = NcclLibrary(path="/usr/lib/libnccl.so.2", version="2.19.3", origin="system")
    other = msgspec.structs.replace(software, nccl=(library,))
    lines, news, asked = play(gate(2), cards(2, node_b={"software": other}))
    assert news
    assert news.stop.startswith("version-skew: NCCL differs between nodes")
    assert asked == 0
    assert any("2.19.3" in line for line in lines)


def test_one_of_two_nodes_that_do_not_reach_each_other_is_left_out() -> None:
    """The coordinator reaches both: no island, and still they cannot train together."""
    cut = {("node-b", "node-c"): Outcome.DROPPED}
    _, news, _ = play(gate(2), cards(3), cut)
    assert news
    assert news.without == ("node-c",)
    assert news.why.startswith("peer-unreachable: node-b → node-c is blocked")


def test_a_newcomer_that_differs_does_not_stop_those_that_trained_together() -> None:
    software = some_nodes(3).nodes[2].facts.software
    library = NcclLibrary(path="/usr/lib/libnccl.so.2", version="2.19.3", origin="system")
    other = msgspec.structs.replace(software, nccl=(library,))
    one = gate(2)
    play(one, cards(2))
    _, news, _ = play(one, cards(3, node_c={"software": other}))
    assert news
    assert (news.without, news.stop) == (("node-c",), "")
    _, news, _ = play(gate(2), cards(3, node_c={"software": other}))
    assert news
    assert news.stop


def test_another_command_on_a_node_is_said_and_stops_nothing() -> None:
    jobs = {"node-a": "train.py", "node-b": "train.py --lr 1"}
    two = {n: msgspec.structs.replace(card, job=jobs[n]) for n, card in cards(2).items()}
    lines, news, _ = play(gate(2), two)
    assert news is None
    assert lines == ["node-b was started with another command: `train.py --lr 1`, here `train.py`"]


def test_a_node_that_does_not_answer_is_said_and_not_held_back() -> None:
    lines, news, _ = play(gate(2), cards(2), mute=["node-b"])
    assert news is None
    assert lines == ["the paths of node-b were not tried: it did not answer"]


def test_two_launchers_on_one_machine_are_no_duplicate() -> None:
    both = cards(1)
    second = both["node-a"]
    both["node-a#2"] = NodeCard(
        name="node-a#2",
        identity="second",
        nproc=1,
        boot_id=second.boot_id,
        addresses=second.addresses,
        facts=second.facts,
    )
    assert play(gate(2), both) == ([], None, 0)


@pytest.mark.parametrize("least", [1, 2])
def test_without_checks_nothing_is_asked(least: int) -> None:
    blind = {name: msgspec.structs.replace(card, facts=None) for name, card in cards(2).items()}
    assert play(gate(least), blind) == ([], None, 0)


@pytest.mark.parametrize("count", [2, 256, 1000])
def test_of_very_many_nodes_each_tries_a_few(count: int) -> None:
    cards = {f"n{n}": NodeCard(name=f"n{n}", identity=f"{n}", nproc=8) for n in range(count)}
    pairs = pairs_to_try(cards)
    assert len(pairs) == len(set(pairs))
    assert {identity for pair in pairs for identity in pair} == {str(n) for n in range(count)}
    assert len(pairs) <= (count * (count - 1) / 2 if count <= 256 else 6 * count)
