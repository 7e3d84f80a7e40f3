"""Another job's store answers on the master port.

What you see   The job starts and hangs, or fails with keys, ranks or tensor sizes that make no
               sense; a second job on the same machine breaks at the same moment. Or plain
               `EADDRINUSE` on the node that should host the store.
Why            torch's store asks nobody who they are: any rank that reaches the port may join.
               Ranks of the new job (and torchrun's c10d agent, which falls back to being a
               client when it cannot listen) then talk to the old job's store, and two jobs merge
               into one.
How to be sure The listener answered holdfast in the protocol of torch's TCPStore (validate, then
               ping); only a store does that. `ss -ltnp 'sport = :29500'` names its process.
Fix            Give each job its own port and, for c10d, its own `--rdzv-id`. Jobs on one machine:
               `torchrun --standalone` picks a free port for each. If the other job is dead to
               you, end its launcher; holdfast ends nothing.
Sources        https://docs.pytorch.org/docs/stable/elastic/run.html: stacked single-node jobs
               torch/distributed/elastic/rendezvous/c10d_rendezvous_backend.py: _create_tcp_store
               torch/csrc/distributed/c10d/TCPStoreBackend.hpp: query types
"""

from __future__ import annotations

from holdfast.analysis.logs.pattern import Role
from holdfast.analysis.logs.patterns import port_taken
from holdfast.analysis.logs.wreckage import Wreckage
from holdfast.analysis.machine import (
    Connection,
    MachineFacts,
    Plan,
    Process,
    known,
    port_evidence,
    rendezvous,
)
from holdfast.analysis.machine.smoke_failures import FOREIGN_STORE
from holdfast.fault import Fault
from holdfast.findings import Culprit, Diagnosis, Evidence, Finding

FAULT = Fault(code="HOLD103", slug="foreign-job-on-port")
FAULT.error_text(FOREIGN_STORE, "another job's store answers at that address and port")

NO_STORE = FAULT.log_pattern(
    "no-store",
    r"Ping failed, invalid value returned from server",
    anchors=("Ping failed, invalid value",),
    example="torch.distributed.DistNetworkError: Ping failed, invalid value returned from server. "
    "Expected: 4711, Got: 1347703880",
)

STRANGER = FAULT.log_pattern(
    "stranger",
    r"socketFinalizeAccept(?: from (?P<address>[^\s<]{1,80})<\d{1,5}>)?: wrong (?:magic|type)\b",
    anchors=("socketFinalizeAccept",),
    example="node-a:411:498 [0] misc/socket.cc:433 NCCL WARN socketFinalizeAccept: wrong magic "
    "1a2b != 3c4d",
    # NCCL lets it go and waits for the next one: somebody knocked, not more.
    role=Role.CASCADE,
)


@FAULT.check(needs=("port", "port_ranges"))
def another_store_answers(facts: MachineFacts) -> Finding:
    plan = facts.plan
    if plan.port == 0:
        return FAULT.does_not_apply("the launcher picks the port itself")
    port = known(facts.port)
    if not port.listeners or port.store is None:
        return FAULT.ok(f"no store answers on port {port.port}")
    store = known(port.store)
    if not store.is_store:
        return FAULT.ok(f"what listens on port {port.port} is no torch store")
    if any(_is_ours(plan, listener) for listener in port.listeners):
        return FAULT.ok(f"the store on port {port.port} belongs to the launcher you named")
    evidence = [port_evidence.listener(listener) for listener in port.listeners]
    if store.keys is not None:
        evidence.append(Evidence(quote=f"number of keys it holds: {store.keys}", source="store"))
    if "TORCHELASTIC_RUN_ID" in plan.environment:
        return FAULT.note(
            f"a torch store answers on port {port.port}",
            reason="this shell is inside a job of torchrun, so it is probably that job's own",
            evidence=evidence,
        )
    speak = FAULT.error if plan.port_named else FAULT.warning
    alone = "" if plan.multi_node else ", or let torchrun pick one: `torchrun --standalone …`"
    return speak(
        f"another job's store answers on port {port.port}",
        reason="it spoke torch's store protocol, which checks no identity: ranks that reach it "
        "join that job",
        evidence=evidence,
        fix=rendezvous.choose_another_port(plan, facts.port_ranges) + alone,
    )


def _is_ours(plan: Plan, listener: Connection) -> bool:
    owner = listener.owner
    named = plan.launcher_pid
    return named is not None and isinstance(owner, Process) and named in (owner.pid, owner.parent)


@FAULT.explain
def a_stranger_answered(wreckage: Wreckage) -> Diagnosis | None:
    seen = wreckage.seen(NO_STORE)
    if not seen:
        return _somebody_knocked(wreckage) or _maybe_another_job(wreckage)
    return FAULT.diagnosis(
        "what answered on the master port does not belong to this job: it spoke another protocol "
        "or another version of the store's",
        confidence=0.7,
        seen=seen,
        culprit=Culprit(what="the master port"),
        fix="find out on the master machine who listens there; give this job its own port, and use "
        "the same version of torch on every node",
        next="ss -ltnp 'sport = :29500'",
    )


def _somebody_knocked(wreckage: Wreckage) -> Diagnosis | None:
    seen = wreckage.seen(STRANGER)
    if not seen:
        return None
    who = seen[0].fields.get("address", "")
    return FAULT.diagnosis(
        f"{who or 'somebody'} called a port of NCCL and did not speak as a rank of this job does: "
        "another job with the same addresses, a second service on the interface, or a port scanner",
        confidence=0.2 if wreckage.roots() else 0.4,
        seen=seen,
        culprit=Culprit(what=who or "whoever called NCCL's port"),
        fix="keep scanners off the job's network, and give each job and service its own machines "
        "or interface (NCCL_SOCKET_IFNAME)",
        next="ss -tnp state established",
        unknown=["whether it did any harm: NCCL goes on waiting for the right caller"],
    )


def _maybe_another_job(wreckage: Wreckage) -> Diagnosis | None:
    """A taken port is most likely just taken; two jobs with the default port are one way to it."""
    port = port_taken.taken_port(wreckage)
    if port not in (rendezvous.C10D_PORT, 29500):
        return None
    return FAULT.diagnosis(
        f"port {port} is the one that every launcher takes by default: another job on this machine "
        "may have it, and ranks that reach it would join that job",
        confidence=0.25,
        seen=wreckage.seen(*port_taken.ALL),
        culprit=Culprit(what=f"port {port}"),
        fix="give each job its own port and `--rdzv-id`, or `torchrun --standalone`",
        next=f"ss -ltnp 'sport = :{port}'",
    )
