from __future__ import annotations

from holdfast.analysis.nodes import Absence
from holdfast.findings import Evidence, Finding, Status
from holdfast.view import nodes_text
from tests.faults.made_nodes import replace, some_nodes

NODES = some_nodes(3)


def a_finding(host: str, summary: str = "memlock is 64 KiB", **changes: object) -> Finding:
    found = Finding(
        code="HOLD402",
        slug="memlock-low",
        status=Status.WARNING,
        summary=summary,
        reason="RDMA needs more",
        fix="`ulimit -l unlimited`",
        host=host,
        evidence=(Evidence(quote="64 KiB", source="getrlimit"),),
    )
    return replace(found, **changes)


def report(*findings: Finding, verbose: bool = False) -> str:
    return nodes_text.report(findings, NODES, verbose=verbose, colour=False)


def test_what_several_nodes_say_stands_once() -> None:
    said = report(a_finding("node-a"), a_finding("node-c"))

    assert said.count("memlock is 64 KiB") == 1
    assert "memlock-low: node-a, node-c: memlock is 64 KiB" in said


def test_what_every_node_says_names_none() -> None:
    said = report(*(a_finding(node.name) for node in NODES.nodes))

    assert "memlock-low: all 3 nodes: memlock is 64 KiB" in said


def test_the_same_fault_with_other_words_is_added_to_the_first() -> None:
    said = report(a_finding("node-a"), a_finding("node-b", "memlock is 8 MiB"))

    assert "node-a: memlock is 64 KiB" in said
    assert "\n  and on node-b: memlock is 8 MiB\n  --> node-a: 64 KiB (getrlimit)\n" in said
    assert said.count("help:") == 1


def test_findings_about_paths_stand_alone() -> None:
    said = report(a_finding("", "a → b is blocked"), a_finding("", "b → c is blocked"))

    assert "memlock-low: a → b is blocked" in said
    assert "memlock-low: b → c is blocked" in said


def test_the_worst_comes_first_and_passed_ones_only_when_asked_for() -> None:
    fine = a_finding("node-a", "enough", status=Status.OK)
    bad = a_finding("node-b", "none at all", status=Status.ERROR)

    assert "enough" not in report(fine, bad)
    said = report(fine, a_finding("node-a"), bad, verbose=True)
    assert said.index("none at all") < said.index("64 KiB") < said.index("enough")


def test_a_gap_names_its_nodes() -> None:
    gap = a_finding("node-b", "not looked at", status=Status.SKIPPED, reason="no answer")

    assert report(gap) == "skipped[HOLD402] memlock-low: no answer (node-b)"


def test_long_lists_of_nodes_are_counted() -> None:
    names = [f"n{number}" for number in range(40)]

    assert nodes_text.node_list(names, 64) == "n0, n1, n2, n3, n4, n5 and 34 more"


def test_the_banner_counts_who_is_missing() -> None:
    facts = replace(NODES, absent=(Absence(name="", why="did not join"),))

    assert nodes_text.banner(facts).startswith("3 nodes, 1 missing, seen from node-a: port ")
