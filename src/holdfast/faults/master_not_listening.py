"""The master does not answer on its port.

What you see   Ranks print `The client socket has timed out`, `connect … failed` or
               `DistNetworkError` and give up minutes later; rank 0 says nothing, or
               `1/2 clients joined`.
Why            Three different things look alike. Refused: the machine is there and nobody
               listens: not up yet, already dead, or the wrong port. Silence: packets are dropped
               by a firewall, or the address is not the master's. Unreachable: no route, or a
               firewall that rejects. A late master is no fault: clients retry for the store's
               timeout (300 s for a plain TCPStore, 600 s under torchrun's static rendezvous), torch
               2.13 in all three cases.
How to be sure Start node rank 0 first, run `ss -ltn 'sport = :29500'` there, and `holdfast check`
               here again: now a refusal means the wrong host or port, silence the path.
Fix            Start rank 0's node; use the same address and port on every node; open the port,
               and the ephemeral ports that NCCL and Gloo use, between the machines of the job.
Sources        torch/csrc/distributed/c10d/TCPStore.cpp and socket.cpp: what is retried
               torch/distributed/elastic/rendezvous/static_tcp_rendezvous.py: 600 s
               torvalds/linux net/ipv4/icmp.c: what a rejected connection reports
"""

from __future__ import annotations

from holdfast.facts import MachineFacts, known
from holdfast.model import Evidence, Fault, Finding

FAULT = Fault(code="HOLD104", slug="master-not-listening")

NO_WAY = {
    "EHOSTUNREACH": "no machine has this address on the last hop, or a firewall rejects: "
    "unless that changes, torch tries until the store's timeout, in vain",
    "ENETUNREACH": "this machine has no route to that network",
    "EACCES": "this machine itself forbids the connection (firewall or security module)",
    "EPERM": "this machine itself forbids the connection (firewall or security module)",
}


@FAULT.foresee
def master_answers(facts: MachineFacts) -> Finding:
    if facts.master_reach is None:
        return FAULT.does_not_apply("the master is this machine, or none was named")
    reach = known(facts.master_reach)
    where = f"{reach.address} port {reach.port}"
    if not reach.error:
        return FAULT.ok(f"{where} answers")
    evidence = [Evidence(quote=f"connect to {where}: {reach.error}", source="connect(2)")]
    if reach.error == "ECONNREFUSED":
        return FAULT.note(
            f"nobody listens on {where} yet",
            reason="the machine is there and refused: right before rank 0 is started, wrong "
            "once it runs (then it is another host or port, or a firewall that resets)",
            evidence=evidence,
            fix=f"start node rank 0, then `holdfast check --only {FAULT.slug}` here again",
        )
    if reach.error == "ETIMEDOUT":
        return FAULT.warning(
            f"{where} stays silent",
            reason=f"nothing came back within {reach.seconds:.1f} s: a firewall drops the "
            "packets, the machine is off, or the address is not the master's",
            evidence=evidence,
            fix=f"`ping -c 3 {reach.address}`; if that answers, open TCP port {reach.port} on the "
            "master for this machine",
        )
    return FAULT.warning(
        f"{where} cannot be reached: {reach.error}",
        reason=NO_WAY.get(reach.error, "the connection failed for a reason of its own"),
        evidence=evidence,
        fix=f"see which way packets take: `ip route get {reach.address}`",
    )
