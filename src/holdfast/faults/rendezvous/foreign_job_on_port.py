"""Another job's store answers on the master port.

What you see   The job starts and hangs, or fails with keys, ranks or tensor sizes that make no
               sense; a second job on the same machine breaks at the same moment. Or plain
               `EADDRINUSE` on the node that should serve the store.
Why            torch's TCPStore has no authentication: any rank that reaches the port may join.
               Ranks of the new job (and torchrun's c10d agent, which becomes a client when it
               cannot listen) then use the old job's store, and the two jobs mix.
How to be sure The listener answered holdfast in the protocol of torch's TCPStore (validate, then
               ping); only a store does that. `ss -ltnp 'sport = :29500'` names its process.
Fix            Give each job its own port and, with c10d, its own `--rdzv-id`. For several jobs on
               one machine, `torchrun --standalone` picks a free port for each. If the other job is
               no longer needed, stop its launcher; holdfast stops no process that it did not start.
Known limits   The check runs before the job and sees only the master port of this machine. In a
               log, a store of another job is told apart only when it speaks another protocol; two
               jobs of one torch version look like any other hang.
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

FAULT = Fault(
    code="HOLD103",
    slug="foreign-job-on-port",
    related=("port-in-use", "stale-process", "rank-assignment"),
)
FAULT.error_text(FOREIGN_STORE, "another job's store answers at that address and port")

NOT_A_STORE = FAULT.log_pattern(
    "no-store",
    r"Ping failed, invalid value returned from server",
    anchors=("Ping failed, invalid value",),
    example="torch.distributed.DistNetworkError: Ping failed, invalid value returned from server. "
    "Expected: 4711, Got: 1347703880",
)

NOT_A_RANK = FAULT.log_pattern(
    "stranger",
    r"socketFinalizeAccept(?: from (?P<address>[^\s<]{1,80})<\d{1,5}>)?: wrong (?:magic|type)\b",
    anchors=("socketFinalizeAccept",),
    example="node-a:411:498 [0] misc/socket.cc:433 NCCL WARN socketFinalizeAccept: wrong magic "
    "1a2b != 3c4d",
    # NCCL drops the connection and keeps waiting, so it need not have done any harm.
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
        return FAULT.ok(f"the listener on port {port.port} is not a torch store")
    if any(_is_ours(plan, listener) for listener in port.listeners):
        return FAULT.ok(f"the store on port {port.port} belongs to the launcher you named")
    evidence = [port_evidence.listener(listener) for listener in port.listeners]
    if store.keys is not None:
        evidence.append(Evidence(quote=f"number of keys it holds: {store.keys}", source="store"))
    if "TORCHELASTIC_RUN_ID" in plan.environment:
        return FAULT.note(
            f"a torch store answers on port {port.port}",
            reason="this shell runs inside a torchrun job, so it is probably that job's own store",
            evidence=evidence,
        )
    speak = FAULT.error if plan.port_named else FAULT.warning
    alone = "" if plan.multi_node else ", or let torchrun pick one: `torchrun --standalone …`"
    return speak(
        f"another job's store answers on port {port.port}",
        reason="the listener spoke torch's store protocol, which has no authentication: ranks that "
        "reach it join that job",
        evidence=evidence,
        fix=rendezvous.choose_another_port(plan, facts.port_ranges) + alone,
    )


def _is_ours(plan: Plan, listener: Connection) -> bool:
    owner = listener.owner
    named = plan.launcher_pid
    return named is not None and isinstance(owner, Process) and named in (owner.pid, owner.parent)


@FAULT.explain
def store_of_another_job_answered(wreckage: Wreckage) -> Diagnosis | None:
    seen = wreckage.seen(NOT_A_STORE)
    if not seen:
        return _nccl_port_called_from_outside(wreckage) or _default_port_taken(wreckage)
    return FAULT.diagnosis(
        "the listener on the master port does not belong to this job: it answered in another "
        "protocol or another version of torch's store protocol",
        confidence=0.7,
        seen=seen,
        culprit=Culprit(what="the master port"),
        fix="find the listener on the master node with the command below; give this job its own "
        "port, and use the same version of torch on every node",
        next="ss -ltnp 'sport = :29500'",
    )


def _nccl_port_called_from_outside(wreckage: Wreckage) -> Diagnosis | None:
    seen = wreckage.seen(NOT_A_RANK)
    if not seen:
        return None
    caller = seen[0].fields.get("address", "")
    return FAULT.diagnosis(
        f"{caller or 'another process'} connected to a port of NCCL and is not a rank of this job: "
        "another job with the same addresses, a second service on the interface, or a port scanner",
        confidence=0.2 if wreckage.roots() else 0.4,
        seen=seen,
        culprit=Culprit(what=caller or "the process that connected to NCCL's port"),
        fix="keep port scanners off the job's network, and give each job its own nodes or "
        "interface (NCCL_SOCKET_IFNAME)",
        next="ss -tnp state established",
        unknown=["whether it did any harm: NCCL keeps waiting for the right peer"],
    )


def _default_port_taken(wreckage: Wreckage) -> Diagnosis | None:
    """A port in use is most likely just that; two jobs on the default port are one way to it."""
    port = port_taken.taken_port(wreckage)
    if port not in (rendezvous.C10D_PORT, 29500):
        return None
    return FAULT.diagnosis(
        f"port {port} is the default of every launcher: another job on this machine may use it, "
        "and ranks that reach its store join that job",
        confidence=0.25,
        seen=wreckage.seen(*port_taken.ALL),
        culprit=Culprit(what=f"port {port}"),
        fix="give each job its own port and `--rdzv-id`, or `torchrun --standalone`",
        next=f"ss -ltnp 'sport = :{port}'",
    )
