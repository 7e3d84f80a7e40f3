"""A small group of ranks on one machine, or of several nodes, does not form or sums wrongly.

What you see   The job hangs or dies in init_process_group or in its first collective, and the
               message names a layer far from the cause: `client socket has timed out` for a refused
               connection or an unknown name, `Software caused connection abort` from NCCL before
               2.24 for a refused or silent peer.
Why            A group is built in layers: loopback, processes that start, the store on MASTER_PORT,
               Gloo's connections between all ranks, NCCL's. A failure in a lower layer is reported
               by a higher one, in other words.
How to be sure `holdfast check --smoke` builds the layers one after the other, in separate processes
               with the job's own environment, and stops at the first that fails. The sums are
               compared exactly, so a pass also means that they were correct. Across nodes it tests
               pairs, all at once, in rounds: each node of a pair that fails meets another that
               passed. A node that fails with two of those is bad; where both pass elsewhere and
               fail again together, it is the link between them. Then all nodes together. On one
               machine NCCL runs once more without direct access between GPUs (NCCL_P2P_DISABLE),
               and once over the network alone (NCCL_SHM_DISABLE too), so a broken transport is told
               from a broken GPU. nccl-tests is a second opinion (`holdfast check --nccl-tests`).
Fix            Fix the layer that the finding names; the layers above it need nothing. If the sums
               are wrong although everything connects, do not train on this machine; run Gloo and
               NCCL separately, then check memory (ECC) and the network card.
Known limits   It uses few ranks and small tensors, so a fault that needs many ranks or long runs
               stays unseen. Two nodes that fail together stay undecided, and so does everything
               where more than a quarter of the nodes fail: then one shared cause is likelier. A
               node with several bad links looks like a bad node.
Sources        pytorch/pytorch torch/csrc/distributed/c10d/socket.cpp: what a client retries
               NVIDIA/nccl src/misc/socket.cc at v2.23.4-1 and v2.24.3-1
               https://github.com/NVIDIA/nccl-tests
               https://docs.pytorch.org/docs/stable/distributed.html
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from holdfast import text
from holdfast.analysis.logs.pattern import Role
from holdfast.analysis.logs.patterns import connections
from holdfast.analysis.logs.wreckage import Wreckage
from holdfast.analysis.machine import MachineFacts, Smoke, SmokeRank, SmokeStage, known
from holdfast.analysis.machine.nccl_links import in_words, transports
from holdfast.analysis.nodes import NodesFacts
from holdfast.analysis.nodes.isolation import JudgedNode, JudgedPair, PairOutcome
from holdfast.analysis.nodes.smoke import SmokeBetween, tests_of
from holdfast.fault import SHOWN, Fault
from holdfast.findings import Diagnosis, Evidence, Finding

FAULT = Fault(
    code="HOLD116",
    slug="group-does-not-form",
    related=("ranks-missing", "peer-unreachable", "loopback-blocked"),
)

NCCL_ERROR = FAULT.log_pattern(
    "bare",
    r"(?P<kind>ncclSystemError|ncclInternalError|ncclUnhandledCudaError|unhandled (?:system|cuda) "
    r"error|internal error)(?:(?=[,:])| \(run with NCCL_DEBUG| - please report this issue).*",
    anchors=(
        *("ncclSystemError", "ncclInternalError", "ncclUnhandledCudaError"),
        *("unhandled system", "unhandled cuda", "internal error, NCCL", "internal error - please"),
    ),
    example="RuntimeError: NCCL error in: ProcessGroupNCCL.cpp:784, unhandled system error, NCCL "
    "version 2.7.8",
    # it says that NCCL failed, and nothing about why
    role=Role.CASCADE,
)
INTERRUPTED = FAULT.log_pattern(
    "interrupted",
    r"(?:RuntimeError|DistNetworkError): Interrupted system call",
    anchors=("Error: Interrupted system call",),
    example="RuntimeError: Interrupted system call",
    role=Role.CASCADE,
)


@FAULT.check(needs=("smoke",))
def smoke_test_failed(facts: MachineFacts) -> Finding:
    if facts.smoke is None:
        return FAULT.does_not_apply("not asked for: add --smoke")
    smoke = known(facts.smoke)
    failed = next((stage for stage in smoke.stages if stage.status == "failed"), None)
    if failed is None:
        return FAULT.ok(_success(smoke))
    if failed.cause_speaks:
        return FAULT.skipped(f"the smoke test failed at '{failed.name}': see {failed.cause}")
    return FAULT.error(
        f"{smoke.world} ranks on this machine failed at stage '{failed.name}'",
        reason=failed.reason,
        evidence=[_stage(stage) for stage in smoke.stages] + _complaints(smoke),
        fix=_fix(smoke, failed),
    )


@FAULT.check(needs=("smoke",))
def a_transport_of_nccl_fails(facts: MachineFacts) -> Finding | Sequence[Finding]:
    """The job's own way works, and one that it falls back to does not."""
    if facts.smoke is None:
        return FAULT.does_not_apply("not asked for: add --smoke")
    smoke = known(facts.smoke)
    nccl = smoke.stage("nccl")
    if nccl is None or nccl.status != "ok":
        return ()  # the other face speaks of that
    failed = [one for one in smoke.rounds if one.status == "failed"]
    passed = [one for one in smoke.rounds if one.status == "ok"]
    # What was meant is not what was used: ranks that share a GPU take the network always.
    tried = [one.name for one in passed if transports(one.links) == {one.name.upper()}]
    if not failed:
        return FAULT.ok(f"NCCL passed as the job would use it{_also_by(tried)}")
    return [
        FAULT.warning(
            f"NCCL fails over {NAMES[one.name]}, which it would use where GPUs cannot reach each "
            "other",
            reason=f"{one.reason}; the job's own way works: {in_words(smoke.links)}",
            evidence=[
                Evidence(
                    quote=f"with {' '.join(f'{k}={v}' for k, v in one.settings.items())}: "
                    f"{one.reason}",
                    source="smoke test",
                )
            ],
            fix=FIXES[one.name],
        )
        for one in failed
    ]


NAMES = {"shm": "shared memory", "net": "the network"}
FIXES = {
    "shm": "look at it: `df -h /dev/shm`; in containers `--ipc=host` or a larger `--shm-size`",
    "net": "a job on several machines fails the same way: `holdfast check --smoke --verbose`",
}


def _also_by(names: Sequence[str]) -> str:
    return f", and over {text.names(NAMES[name] for name in names)} alone" if names else ""


def _success(smoke: Smoke) -> str:
    passed = [stage.name for stage in smoke.stages if stage.status == "ok"]
    top = smoke.top_rung("nccl") or smoke.top_rung("gloo")
    speed = ""
    if top:
        speed = (
            f"; all_reduce of {text.size(top.size)} over {top.stage}: correct, "
            f"{top.bandwidth / 1e9:.2f} GB/s bus bandwidth"
        )
    return f"{text.counted(smoke.world, 'rank')} passed {', '.join(passed)}{speed}"


def _fix(smoke: Smoke, failed: SmokeStage) -> str:
    if failed.fix:
        return failed.fix
    if failed.cause:
        return f"see `holdfast explain {failed.cause}`"
    if any(rung.stage == failed.name and not rung.correct for rung in smoke.ladder):
        return "do not train on this machine; see `holdfast explain group-does-not-form`"
    return "for more detail: `TORCH_CPP_LOG_LEVEL=INFO NCCL_DEBUG=INFO holdfast check --smoke`"


def _stage(stage: SmokeStage) -> Evidence:
    took = f" after {stage.seconds:.1f} s" if stage.seconds else ""
    return Evidence(quote=f"stage '{stage.name}': {stage.status}{took}", source="smoke test")


def _complaints(smoke: Smoke) -> list[Evidence]:
    return [_complaint(rank) for rank in smoke.ranks if rank.error]


def _complaint(rank: SmokeRank) -> Evidence:
    first_line = rank.error.splitlines()[0]
    return Evidence(quote=f"rank {rank.rank}: {first_line}", source="smoke test", rank=rank.rank)


# --- several nodes -------------------------------------------------------------------------------

DRAIN = "leave it out of the job and look at it by itself: `holdfast check --smoke` on {}"
ADD_A_NODE = "add a node that is known to be good, and run it again"
WHAT_THEY_SHARE = "look for what they share: a switch, a firewall, settings, a version of a library"
MANY_LINKS = 3
"""so many bad links are told one by one; more have a common cause"""


@FAULT.check_nodes
def nodes_fail_together(facts: NodesFacts) -> Finding | Sequence[Finding]:
    if facts.smoke is None:
        return FAULT.does_not_apply("not asked for: add --smoke")
    smoke = known(facts.smoke)
    said = [
        *_broken_nodes(smoke),
        *(_bad_node(smoke, node) for node in smoke.isolation.bad),
        *_bad_links(smoke),
        *_group(smoke),
        *(_transient(smoke, pair) for pair in smoke.isolation.transient),
        *_undecided(smoke),
        *(FAULT.skipped(f"{one.name}: {one.why}") for one in smoke.left_out if not one.broken),
    ]
    return said or FAULT.ok(_all_passed(smoke))


def _all_passed(smoke: SmokeBetween) -> str:
    count = len(smoke.isolation.cleared)
    group = smoke.group
    together = f", and together at {text.bandwidth(group.speed)}" if group.speed else ""
    return f"{count} nodes passed in pairs over {smoke.backend}{together}; all sums were right"


def _broken_nodes(smoke: SmokeBetween) -> Iterator[Finding]:
    for one in smoke.left_out:
        if one.broken:
            yield FAULT.error(
                f"the ranks of {one.name} do not start",
                reason=one.why,
                evidence=[Evidence(quote=one.why, source="smoke test", host=one.name)],
                fix=f"on {one.name}: `python -c 'import torch.distributed'`",
                host=one.name,
            )


def _bad_node(smoke: SmokeBetween, node: JudgedNode) -> Finding:
    remarks = "".join(f"; {remark}" for remark in smoke.isolation.remarks)
    return FAULT.error(
        f"{node.name} is bad: collectives with it fail, whichever node it meets",
        reason=f"it {node.why}{remarks}",
        evidence=_tests(smoke, node.name),
        fix=DRAIN.format(node.name),
        host=node.name,
    )


def _bad_links(smoke: SmokeBetween) -> Iterator[Finding]:
    links = smoke.isolation.links
    if len(links) <= MANY_LINKS:
        for link in links:
            yield FAULT.error(
                f"the link between {link.first} and {link.second} is bad",
                reason="neither node is at fault by itself, unless one of them fails now and then: "
                f"the pair {link.why}",
                evidence=_tests(smoke, link.first, link.second),
                fix="look at the path between them: cables, switch ports and firewall rules for "
                "this pair; or use only one of them",
            )
        return
    remarks = "; ".join(smoke.isolation.remarks)
    pairs = ", ".join(f"{link.first} and {link.second}" for link in links[:MANY_LINKS])
    yield FAULT.error(
        f"{len(links)} links between nodes are bad: {pairs} and others",
        reason=remarks or f"{links[0].why}: what these pairs share is the likely cause",
        evidence=[e for link in links for e in _tests(smoke, link.first, link.second)][:SHOWN],
        fix="look at the switches and firewall rules between these nodes",
    )


def _group(smoke: SmokeBetween) -> Iterator[Finding]:
    if smoke.group.outcome is PairOutcome.FAILED:
        yield FAULT.error(
            f"{len(smoke.group.nodes)} nodes fail together, although each passes in a pair",
            reason=f"{smoke.group.why}; a fault that shows only with many nodes: a limit of "
            "connections or files, a path that no pair used, a switch under load",
            evidence=[Evidence(quote=smoke.group.why, source="smoke test")],
            fix="run it with half of the nodes, then with half of those, until it passes",
        )


def _transient(smoke: SmokeBetween, pair: JudgedPair) -> Finding:
    return FAULT.warning(
        f"{pair.first} and {pair.second} failed once and passed later",
        reason=f"{pair.why}; one of them, or their link, fails now and then: a job meets that "
        "sooner or later",
        evidence=_tests(smoke, pair.first, pair.second),
        fix="run the smoke test again, and watch these two",
    )


def _undecided(smoke: SmokeBetween) -> Iterator[Finding]:
    by_reason: dict[str, list[str]] = {}
    for node in smoke.isolation.undecided:
        by_reason.setdefault(node.why, []).append(node.name)
    for why, names in by_reason.items():
        yield FAULT.note(
            f"undecided: {text.names(names)}",
            reason=why,
            evidence=_tests(smoke, *names) or [Evidence(quote=why, source="smoke test")],
            fix=ADD_A_NODE if _tested(smoke) == 2 else WHAT_THEY_SHARE,
            host=names[0] if len(names) == 1 else "",
        )


def _tested(smoke: SmokeBetween) -> int:
    return len({name for results in smoke.rounds for one in results for name in one.pair})


def _tests(smoke: SmokeBetween, *names: str) -> list[Evidence]:
    return [Evidence(quote=words, source="smoke test") for words in tests_of(smoke, names)[:SHOWN]]


# --- wreckage ------------------------------------------------------------------------------------


@FAULT.explain
def nccl_failed_without_its_warning(wreckage: Wreckage) -> Diagnosis | None:
    """The last resort: NCCL's own warning, which would say why, is not in the log."""
    seen = wreckage.seen(NCCL_ERROR)
    explained = wreckage.roots() or connections.attempts(wreckage)
    if not seen or explained:
        return None
    kind = seen[0].fields["kind"]
    return FAULT.diagnosis(
        f"NCCL gave up with '{kind}', and its own warning, which says why, is not in this log",
        confidence=0.25,
        seen=seen,
        fix="run the job again with NCCL_DEBUG=INFO and explain that log: its first 'NCCL WARN' "
        "line names the layer that failed",
        next="export NCCL_DEBUG=INFO",
        unknown=["the cause: failures of system calls, CUDA and the network all end in this error"],
    )


@FAULT.explain
def signal_interrupted_the_wait(wreckage: Wreckage) -> Diagnosis | None:
    seen = wreckage.seen(INTERRUPTED)
    if not seen or wreckage.roots() or wreckage.seen(NCCL_ERROR):
        return None
    return FAULT.diagnosis(
        "a signal interrupted the process while it waited for the store: a launcher or a user "
        "stopped the job, or a profiler or debugger sent it",
        confidence=0.3,
        seen=seen,
        fix="find the process that ended first; the others were only told to stop. Start a "
        "profiler that sends signals after init_process_group",
        next="grep -nE 'signal|SIGTERM|Traceback' *.log",
    )
