"""What holds for every fault that speaks of several nodes, whatever is broken."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast import catalogue
from holdfast.analysis.machine import Software
from holdfast.analysis.nodes import ClockOffset, NodesFacts, Outcome, PortKind
from holdfast.findings import Finding, Status
from tests.faults.machines import settings as variables
from tests.faults.made_nodes import (
    PROBES,
    loss,
    name_of,
    on_node,
    path,
    probes,
    renamed,
    replace,
    resolving,
    sizes,
    some_nodes,
)

FAULTS = [entry.fault for entry in catalogue.entries() if entry.fault.nodes_faces]
QUICK = settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
Damage = tuple[str, Any, Any]
"""what, to which node or from which to which, how"""


@st.composite
def damages(draw: st.DrawFn, count: int, most: int | None = None) -> list[Damage]:
    """To at most so many of the nodes."""
    every = draw(st.permutations([name_of(n) for n in range(count)]))
    names = st.sampled_from(every[:most])
    pairs = st.tuples(names, names).filter(lambda pair: pair[0] != pair[1])
    one = st.one_of(
        st.tuples(st.just("path"), pairs, st.sampled_from(sorted(Outcome, key=str))),
        st.tuples(st.just("port"), pairs, st.sampled_from(sorted(PortKind, key=str))),
        st.tuples(st.just("sizes"), pairs, st.sampled_from([576, 1280, 1500])),
        st.tuples(st.just("loss"), pairs, st.integers(0, PROBES)),
        st.tuples(st.just("name"), pairs, st.sampled_from(["127.0.1.1", "10.0.0.1", "10.9.9.9"])),
        st.tuples(st.just("clock"), names, st.floats(-500, 500)),
        st.tuples(st.just("torch"), names, st.sampled_from(["2.12.0", "2.13.1", ""])),
        st.tuples(st.just("setting"), names, st.sampled_from(["Ring", "Tree"])),
        st.tuples(st.just("boot"), names, st.just("boot-0")),
    )
    return draw(st.lists(one, max_size=6))


def damaged(facts: NodesFacts, found: list[Damage]) -> NodesFacts:
    for what, where, how in found:
        if what == "path":
            facts = path(facts, where[0], where[1], how)
        elif what == "port":
            facts = path(facts, where[0], where[1], Outcome.DROPPED, how)
        elif what == "sizes":
            facts = sizes(facts, *where, datagrams=probes(how, mtu=1500))
        elif what == "loss":
            facts = loss(facts, *where, arrived=how, answered=how)
        elif what == "name":
            facts = resolving(facts, *where, how)
        elif what == "clock":
            facts = on_node(facts, where, clock=ClockOffset(seconds=how, bound=0.01))
        elif what == "torch":
            software = facts.node(where).facts.software
            assert isinstance(software, Software)
            facts = on_node(facts, where, software=replace(software, torch=how))
        elif what == "setting":
            facts = on_node(facts, where, settings=variables(NCCL_ALGO=how))
        else:
            facts = on_node(facts, where, boot_id=how, host="node-a")
    return facts


def said(facts: NodesFacts) -> list[Finding]:
    return [finding for fault in FAULTS for finding in fault.ask_nodes(facts)]


def touched(found: list[Damage]) -> set[str]:
    ends = (where if isinstance(where, tuple) else (where,) for _, where, _ in found)
    return {name for each in ends for name in each}


@pytest.mark.parametrize("count", [2, 3, 5, 16, 40])
def test_healthy_nodes_of_any_number_give_no_finding(count: int) -> None:
    assert [f for f in said(some_nodes(count)) if f.status not in (Status.OK, Status.SKIPPED)] == []


@QUICK
@given(damages(5))
def test_nothing_that_can_be_seen_breaks_a_face(found: list[Damage]) -> None:
    findings = said(damaged(some_nodes(5, master_addr="node-b"), found))
    assert [f for f in findings if "bug in holdfast" in f.reason] == []
    for finding in findings:
        if finding.status.concern:
            assert finding.reason, finding
            assert finding.evidence, finding
            assert finding.status is Status.NOTE or finding.fix, finding


@QUICK
@given(damages(5, most=2))
def test_a_node_that_nothing_happened_to_is_never_the_subject(found: list[Damage]) -> None:
    """Where few are damaged. It may be quoted as a witness."""
    findings = said(damaged(some_nodes(5), found))
    subjects = {finding.host for finding in findings if finding.status.concern} - {""}
    assert subjects <= touched(found), [f for f in findings if f.host in subjects - touched(found)]


@QUICK
@given(damages(4))
def test_other_names_and_another_order_change_nothing_that_is_said(found: list[Damage]) -> None:
    other = {"node-a": "node-w", "node-b": "node-x", "node-c": "node-y", "node-d": "node-z"}
    facts = damaged(some_nodes(4), [one for one in found if one[0] not in ("name", "boot")])
    assert tally(said(facts), {}) == tally(said(renamed(facts, other)), other)


def tally(findings: list[Finding], names: dict[str, str]) -> list[tuple[str, str, str]]:
    back = {new: old for old, new in names.items()}
    return sorted((f.slug, f.status.value, back.get(f.host, f.host)) for f in findings)
