import msgspec

from holdfast.analysis.machine import Reach, Smoke, SmokeRound, Unread
from holdfast.analysis.nodes.isolation import Isolation, JudgedPair, PairOutcome
from holdfast.analysis.nodes.smoke import GroupTest, LeftOut
from holdfast.catalogue import by_slug
from holdfast.check.smoke.stages import Record
from tests.analysis.logs.patterns.made import wreckage
from tests.check.smoke.smokes import a_smoke, error, exit_of, gpu_smoke, up_to, verdict
from tests.faults import between
from tests.faults.machines import a_machine
from tests.faults.made_nodes import name_of, replace, some_nodes
from tests.faults.made_smokes import smoked
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

TAKEN = verdict([*up_to("start"), error(0, "store", "DistNetworkError: name: EADDRINUSE")])
REFUSED = verdict([*up_to("store"), error(1, "gloo", "SO_ERROR: Connection refused")])
STRANGE = verdict([*up_to("store"), error(1, "gloo", "RuntimeError: never seen before")])
WRONG = verdict(
    [
        *up_to("gloo"),
        Record(rank=1, kind="rung", stage="gloo", size=1024, correct=False, text="element 7: 1"),
    ]
)
DROPPED = verdict(
    [], loopback=(Reach(address="127.0.0.1", port=1, error="ETIMEDOUT", seconds=0.5),)
)
MISSING = verdict([*up_to("store"), exit_of(2, "gloo", -9)])


def without(name: str, status: str) -> Smoke:
    """NCCL passed, and once more with its faster transports switched off."""
    seen = SmokeRound(
        name=name, settings={"NCCL_P2P_DISABLE": "1"}, status=status, reason="no such file"
    )
    return msgspec.structs.replace(gpu_smoke(), rounds=(seen,))


def test_a_round_passes_over_what_nccl_says_it_used_and_not_over_what_was_meant() -> None:
    def claims(way: str) -> str:
        seen = SmokeRound(name="shm", settings={}, status="ok", links=gpu_smoke(way=way).links)
        facts = a_machine(smoke=msgspec.structs.replace(gpu_smoke(), rounds=(seen,)))
        return " ".join(one.summary for one in by_slug("group-does-not-form").ask_check(facts))

    assert "over shared memory alone" in claims("SHM/direct/direct")
    assert "shared memory" not in claims("NET/Socket/0")


test_check = check_table(
    "group-does-not-form",
    speaks(
        "error",
        a_machine(smoke=TAKEN),
        saying=[
            "4 ranks on this machine failed at stage 'store'",
            "another program holds the port (EADDRINUSE)",
            "holdfast explain port-in-use",
            "stage 'start': ok",
            "rank 0: DistNetworkError",
        ],
        not_saying=["rank 1:"],
    ),
    speaks("error", a_machine(smoke=REFUSED), saying=["stage 'gloo'", "nft list ruleset"]),
    speaks("error", a_machine(smoke=STRANGE), saying=["never seen before", "NCCL_DEBUG=INFO"]),
    speaks("error", a_machine(smoke=WRONG), saying=["wrong sum on rank 1", "do not train"]),
    speaks("error", a_machine(smoke=DROPPED), saying=["stage 'loopback'", "dropped"]),
    silent(a_machine(smoke=a_smoke())),
    speaks(
        "warning",
        a_machine(smoke=without("shm", "failed")),
        saying=["NCCL fails over shared memory", "P2P/CUMEM", "/dev/shm"],
    ),
    silent(a_machine(smoke=without("net", "ok"))),
    silent(a_machine(smoke=without("net", "skipped"))),
    skips(a_machine(smoke=MISSING), saying=["see ranks-missing"]),
    skips(a_machine(smoke=Unread(why="torch is broken")), saying=["torch is broken"]),
    not_applicable(a_machine(), saying=["not asked for: add --smoke"]),
)


# --- explain --------------------------------------------------------------------------

SYSTEM_ERROR = (
    "[rank1]: RuntimeError: NCCL error in: ProcessGroupNCCL.cpp:784, unhandled system error, NCCL "
    "version 2.7.8"
)

test_explain = explain_table(
    "group-does-not-form",
    recognises(
        wreckage(SYSTEM_ERROR),
        sure=0.25,
        rank=1,
        saying=["unhandled system error", "NCCL_DEBUG=INFO"],
    ),
    recognises(
        wreckage("[rank1]: RuntimeError: Interrupted system call"),
        sure=0.3,
        rank=1,
        saying=["a signal interrupted the process"],
    ),
    passes_over(
        wreckage(SYSTEM_ERROR, "[rank1]: NCCL WARN Bootstrap : no socket interface found"),
    ),
    passes_over(
        wreckage(
            SYSTEM_ERROR,
            "[rank1]: NCCL WARN Net : Connect to 192.0.2.7<43210> failed : No route to host",
        ),
    ),
)


A, B, C, D, E, F, G, H = map(name_of, range(8))
LINKS = {frozenset(pair) for pair in ((A, E), (B, F), (C, G), (D, H))}
RACKS = {name_of(number): f"r{number // 4}" for number in range(8)}

FAILED_ONCE = Isolation(
    bad=(),
    stragglers=(),
    undecided=(),
    cleared=(B, D),
    links=(),
    slow_links=(),
    transient=(JudgedPair(first=A, second=C, why="failed once and passed later: boom"),),
    rounds=3,
)

test_check_nodes = between.table(
    "group-does-not-form",
    between.speaks(
        "error",
        smoked(8, fleet={"bad": {C}}),
        saying=["node-c is bad", "each of which passes with others; boom", "leave it out"],
        hosts=[C],
    ),
    between.speaks(
        "error",
        smoked(8, fleet={"bad": {C, D}}),
        saying=["node-c is bad", "node-d is bad"],
        hosts=[C, D],
        count=2,
    ),
    between.speaks(
        "error",
        smoked(8, fleet={"links": {frozenset((A, E))}}),
        saying=["the link between node-a and node-e is bad", "failed 2 times"],
        not_saying=["node-a is bad"],
        hosts=[""],
    ),
    between.speaks(
        "error",
        smoked(8, fleet={"links": LINKS}),
        saying=["4 links between nodes are bad"],
    ),
    between.speaks(
        "error",
        smoked(8, fleet={"racks": RACKS, "cut": frozenset({"r0", "r1"})}),
        saying=["4 links between nodes are bad", "rack r0 and rack r1 pass at home"],
    ),
    between.speaks(
        "note",
        smoked(2, fleet={"bad": {A}}),
        saying=["undecided: node-a and node-b", "no third node", "node-a and node-b failed: boom"],
        not_saying=["is bad"],
    ),
    between.speaks(
        "note",
        smoked(8, fleet={"bad": {A, B, C, D, E}}),
        saying=["undecided: ", "a shared cause is likelier"],
        not_saying=["is bad"],
        count=2,
    ),
    between.speaks(
        "error",
        smoked(
            4,
            group=GroupTest(
                nodes=(A, B, C, D), outcome=PairOutcome.FAILED, speed=None, why="node-b: too many"
            ),
        ),
        saying=["4 nodes fail together, although each passes in a pair", "node-b: too many"],
    ),
    between.speaks(
        "error",
        smoked(4, left_out=(LeftOut(name="node-e", why="ImportError: libcudart", broken=True),)),
        saying=["the ranks of node-e do not start", "ImportError: libcudart"],
        hosts=["node-e"],
    ),
    between.speaks(
        "warning",
        smoked(4, isolation=FAILED_ONCE),
        saying=["node-a and node-c failed once and passed later", "fails now and then"],
    ),
    between.skips(
        smoked(4, left_out=(LeftOut(name="node-e", why="its Python has no torch", broken=False),)),
        saying=["node-e: its Python has no torch"],
    ),
    between.skips(replace(some_nodes(3), smoke=Unread(why="too late")), saying=["too late"]),
    between.not_applicable(some_nodes(3), saying=["add --smoke"]),
    between.silent(smoked(8)),
    between.silent(smoked(3)),
    between.silent(smoked(8, fleet={"slow": {C}})),  # slow-rank speaks of it
)
