"""Tables of cases for what a fault says about several nodes:

from tests.faults import between

test_check_nodes = between.table(
    "peer-unreachable",
    between.speaks("error", path(some_nodes(), "node-a", "node-b"), saying=["a → node-b"]),
    between.silent(some_nodes()),
)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import pytest

from holdfast.analysis.nodes import NodesFacts
from holdfast.catalogue import by_slug
from holdfast.findings import Status
from tests.faults.table import caller, case_id, words_of


class NodesCase(NamedTuple):
    expected: str
    """a status, or 'silent', or 'n/a' (does not apply)"""
    facts: NodesFacts
    line: int
    saying: tuple[str, ...] = ()
    not_saying: tuple[str, ...] = ()
    hosts: tuple[str, ...] | None = None
    findings: int = 1

    @property
    def speaks(self) -> bool:
        return self.expected in ("error", "warning", "note")


def speaks(
    status: str,
    facts: NodesFacts,
    *,
    saying: Sequence[str],
    not_saying: Sequence[str] = (),
    hosts: Sequence[str] | None = None,
    count: int = 1,
) -> NodesCase:
    """So many findings of this status and no graver one, with these words, about these hosts."""
    assert status in ("error", "warning", "note")
    assert saying, "say which words the user must see"
    named = None if hosts is None else tuple(hosts)
    return NodesCase(status, facts, caller(), tuple(saying), tuple(not_saying), named, count)


def silent(facts: NodesFacts) -> NodesCase:
    """Looked, and nothing found: `ok`."""
    return NodesCase("silent", facts, caller())


def not_applicable(facts: NodesFacts, *, saying: Sequence[str]) -> NodesCase:
    return NodesCase("n/a", facts, caller(), tuple(saying))


def skips(facts: NodesFacts, *, saying: Sequence[str]) -> NodesCase:
    """It could not look, at some node at least, and must say why."""
    return NodesCase("skipped", facts, caller(), tuple(saying))


def table(slug: str, *cases: NodesCase) -> Callable[[NodesCase], None]:
    @pytest.mark.parametrize("case", cases, ids=case_id)
    def test_check_nodes(case: NodesCase) -> None:
        findings = by_slug(slug).ask_nodes(case.facts)
        assert findings
        assert {f.slug for f in findings} == {slug}
        assert not any("bug in holdfast" in f.reason for f in findings), findings
        if case.expected == "silent":
            assert {f.status for f in findings if f.applies} == {Status.OK}, findings
            return
        if case.expected == "n/a":
            chosen = [f for f in findings if not f.applies]
        else:
            chosen = [f for f in findings if f.status.value == case.expected and f.applies]
        assert chosen, f"expected {case.expected}, got {findings}"
        text = " || ".join(words_of(f) for f in chosen)
        assert [word for word in case.saying if word not in text] == [], text
        assert [word for word in case.not_saying if word in text] == [], text
        if case.hosts is not None:
            assert sorted(f.host for f in chosen) == sorted(case.hosts), chosen
        if case.speaks:
            assert len(chosen) == case.findings, chosen
            worst = max(f.status.concern for f in findings)
            assert worst == chosen[0].status.concern, findings
            assert all(f.reason and f.evidence for f in chosen), "say what was seen, what it means"

    test_check_nodes.cases = cases  # type: ignore[attr-defined]
    return test_check_nodes
