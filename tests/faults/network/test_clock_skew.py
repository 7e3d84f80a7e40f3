from __future__ import annotations

from holdfast.analysis.machine import ClockSync, Unread
from holdfast.analysis.nodes import ClockOffset, NodesFacts
from holdfast.catalogue import by_slug
from tests.analysis.logs.patterns.made import wreckage
from tests.faults import between
from tests.faults.machines import a_machine, a_plan
from tests.faults.made_nodes import on_node, some_nodes
from tests.faults.table import (
    check_table,
    explain_table,
    not_applicable,
    passes_over,
    recognises,
    silent,
    skips,
    speaks,
)

TWO_NODES = a_plan(min_nodes=2, max_nodes=2)
ADRIFT = ClockSync(synchronised=False, max_error=16.0)

test_check = check_table(
    "clock-skew",
    speaks(
        "warning",
        a_machine(TWO_NODES, clock=ADRIFT),
        saying=["is not synchronised", "cannot be put in order", "error up to 16 s", "chronyd"],
    ),
    speaks("warning", a_machine(a_plan(max_nodes=4), clock=ADRIFT), saying=["STA_UNSYNC"]),
    silent(a_machine(TWO_NODES)),
    not_applicable(a_machine(clock=ADRIFT), saying=["same clock"]),
    skips(a_machine(TWO_NODES, clock=Unread(why="seccomp forbids adjtimex")), saying=["seccomp"]),
)


# --- explain --------------------------------------------------------------------------

test_explain = explain_table(
    "clock-skew",
    recognises(
        wreckage(
            "botocore.exceptions.ClientError: An error occurred (RequestTimeTooSkewed) when "
            "calling the PutObject operation"
        ),
        sure=0.9,
        what="the clock",
        saying=["a service rejected its requests"],
    ),
    recognises(  # AWS signs requests with a time
        wreckage(
            "botocore.exceptions.ClientError: An error occurred (InvalidSignatureException): "
            "Signature expired: 20240101T000000Z is now earlier than 20240101T001500Z"
        ),
        sure=0.9,
        what="the clock",
        saying=["a service rejected its requests"],
    ),
    recognises(
        wreckage("chronyd[812]: System clock wrong by 84.213811 seconds"),
        sure=0.35,
        what="the clock",
        saying=["wrong by 84.213811 s"],
    ),
    passes_over(wreckage("chronyd[812]: Selected source 192.0.2.1")),
)


# --- between nodes -------------------------------------------------------------------------------

FOUR = some_nodes(4)


def ahead(facts: NodesFacts, name: str, seconds: float, bound: float = 0.001) -> NodesFacts:
    return on_node(facts, name, clock=ClockOffset(seconds=seconds, bound=bound))


test_check_nodes = between.table(
    "clock-skew",
    between.speaks(
        "warning",
        ahead(FOUR, "node-c", 84.2),
        saying=[
            "the clock of node-c is 84 s (± 2 ms) ahead of node-a; node-c differs from the rest",
            "node-c: +84.200 s ± 0.001 s against node-a",
            "on node-c: `sudo timedatectl set-ntp true`",
        ],
        hosts=["node-c"],
    ),
    between.speaks(
        "warning",
        ahead(FOUR, "node-c", -7.5),
        saying=["ahead of node-c; node-c differs from the rest"],
        hosts=["node-c"],
    ),
    between.speaks(  # the coordinator's own clock is the odd one
        "warning",
        ahead(ahead(ahead(FOUR, "node-b", 9.0), "node-c", 9.0), "node-d", 9.001),
        saying=["node-a differs from the rest"],
        hosts=["node-a"],
    ),
    between.speaks(  # of two, neither is known to be right
        "warning",
        ahead(some_nodes(2), "node-b", 3.0),
        saying=["the clock of node-b is 3 s", "ahead of node-a", "on node-a and node-b"],
        not_saying=["differs from the rest"],
        hosts=[""],
    ),
    between.speaks(
        "error", ahead(FOUR, "node-c", 4000.0), saying=["munge", "Kerberos"], hosts=["node-c"]
    ),
    between.speaks("note", ahead(FOUR, "node-c", 0.5), saying=["500 ms", "cannot be put in order"]),
    between.silent(FOUR),
    between.silent(ahead(FOUR, "node-c", 0.05)),
    between.silent(ahead(FOUR, "node-c", 5.0, bound=5.5)),  # a tie
    between.skips(on_node(FOUR, "node-c", clock=Unread(why="node-c left")), saying=["node-c left"]),
    between.not_applicable(some_nodes(1), saying=["one node"]),
)


def test_clocks_that_agree_refute_that_one_is_not_synchronised() -> None:
    fault = by_slug("clock-skew")
    agree = some_nodes(3)
    apart = on_node(agree, "node-b", clock=ClockOffset(seconds=2.0, bound=0.001))
    unknown = on_node(agree, "node-b", clock=Unread(why="no answer"))

    def refuted(facts: NodesFacts) -> set[bool]:
        return {fault.is_refuted(facts, node) for node in facts.nodes}

    assert refuted(agree) == {True}
    assert refuted(apart) == {False}
    assert refuted(unknown) == {False}
