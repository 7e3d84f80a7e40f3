"""The master address points to the wrong machine.

What you see   Ranks wait for the store until it times out, each node alone (`1/2 clients joined`),
               or every node forms a small separate job.
Why            All ranks connect to MASTER_ADDR, including those on other machines. 127.0.0.1 is a
               different machine on each of them. An address on Docker's or libvirt's bridge
               (172.17.x.x by default) exists on its own host only. If the address belongs to no
               interface of rank 0's machine, its ranks look for their own store elsewhere. A
               link-local IPv6 address is incomplete without the name of the interface.
How to be sure `getent ahosts $MASTER_ADDR` must give the same address on every node, and `ip -br
               address` on node rank 0 must list it.
Fix            Use the address of node rank 0 on the network that all nodes share:
               `hostname -I` there lists the candidates.
Known limits   NAT and service addresses can make an address correct that no node has, so inside a
               container, and between nodes, that is a warning. What other nodes resolve the name to
               is seen only when the check runs on them too.
Sources        SchedMD/slurm src/slurmd/slurmstepd/mgr.c: SLURM_LAUNCH_NODE_IPADDR is set for tasks
               that srun starts, not for a batch script
               https://docs.pytorch.org/docs/stable/distributed.html#environment-variable-initialization
               https://docs.docker.com/engine/network/drivers/bridge/
               torch/distributed/elastic/rendezvous/static_tcp_rendezvous.py
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from holdfast import shell_words
from holdfast.analysis.drill import hosts
from holdfast.analysis.drill.injection import Injection, Then
from holdfast.analysis.drill.network_acts import TypeOnHost
from holdfast.analysis.drill.rehearsal import Rehearsal
from holdfast.analysis.logs.patterns import connections
from holdfast.analysis.logs.wreckage import Wreckage
from holdfast.analysis.machine import (
    Container,
    Interface,
    MachineFacts,
    Plan,
    addresses,
    known,
    rendezvous,
)
from holdfast.analysis.nodes import NodesFacts, owners
from holdfast.analysis.source.launch import (
    asked_master,
    command_line,
    master,
    self_named_master,
)
from holdfast.analysis.source.source import Source
from holdfast.fault import Fault
from holdfast.findings import Culprit, Diagnosis, Evidence, Finding, Place

FAULT = Fault(
    code="HOLD105",
    slug="wrong-master-address",
    related=("master-not-listening", "loopback-multi-node", "hostname-misresolves", "dns-failure"),
)

NOT_OURS = FAULT.log_pattern(
    "not-ours",
    r"server socket has failed to (?:bind|listen).*(?:EADDRNOTAVAIL|errno: 99\b|"
    r"[Cc]annot assign requested address)"
    r"|(?:OSError|RuntimeError|bind failed ?): (?:\[Errno 99\] )?Cannot assign requested address",
    anchors=("EADDRNOTAVAIL", "annot assign requested address"),
    example="[E socket.cpp:435] [c10d] The server socket has failed to bind to [192.0.2.9]:29500 "
    "(errno: 99 - Cannot assign requested address).",
)


@FAULT.check(needs=("container", "interfaces", "master_name", "own_name", "routes"))
def master_address_is_wrong(facts: MachineFacts) -> Finding:
    plan = facts.plan
    host, origin = rendezvous.master_host(plan)
    if not host:
        return FAULT.does_not_apply("no master address is set")
    meant = rendezvous.addresses_of(facts, host)
    evidence = [Evidence(quote=f"{host} is {', '.join(meant)}", source=origin)]
    if plan.multi_node and addresses.is_loopback(meant[0]):
        return FAULT.error(
            f"master address {host} is each machine's own loopback",
            reason=f"{meant[0]} is a different machine on each node, and the job has up to "
            f"{plan.max_nodes} nodes: every node would wait for itself",
            evidence=evidence,
            fix=_use_instead(facts),
        )
    if addresses.is_link_local(meant[0]) and "%" not in meant[0]:
        return FAULT.warning(
            f"master address {host} is link-local and has no interface",
            reason="the kernel does not know which interface to use, so connections fail with "
            "EINVAL",
            evidence=evidence,
            fix=f"append the interface (`{shell_words.word(meant[0], 'ADDRESS')}%eth0`), or "
            f"better {_use_instead(facts)}",
        )
    return _on_this_machine(facts, host, meant, evidence)


def _on_this_machine(
    facts: MachineFacts, host: str, meant: tuple[str, ...], evidence: list[Evidence]
) -> Finding:
    interfaces = known(facts.interfaces)
    bridge = _private_bridge(interfaces, meant[0])
    if facts.plan.multi_node and bridge:
        return FAULT.error(
            f"master address {host} is on the bridge {bridge.name}",
            reason=f"{bridge.name} is private to this machine (containers or virtual machines): "
            "other nodes cannot reach it",
            evidence=evidence,
            fix=_use_instead(facts),
        )
    ours = any(addresses.carrier(interfaces, ip) for ip in meant)
    plan = facts.plan
    first = plan.node_rank == 0 and plan.rdzv_backend != "c10d"  # c10d ignores the node's rank
    must_be_ours = first or not plan.multi_node
    if must_be_ours and not ours:
        return _not_ours(facts, host, evidence)
    place = "this machine" if ours else "another machine"
    return FAULT.ok(f"master address {host} is {place} ({meant[0]})")


def _not_ours(facts: MachineFacts, host: str, evidence: list[Evidence]) -> Finding:
    """A service address or published port may be forwarded here: in a container a warning."""
    container = facts.container
    relayed = not isinstance(container, Container) or container.network != "host"
    who = "node rank 0" if facts.plan.multi_node else "the only node"
    speak = FAULT.warning if relayed else FAULT.error
    doubt = " (unless a service address or published port is forwarded here)" if relayed else ""
    return speak(
        f"no interface here has the master address {host}",
        reason=f"this is {who}, which will serve the store; its ranks would connect to another "
        f"machine{doubt}",
        evidence=evidence,
        fix=_use_instead(facts),
    )


def _private_bridge(interfaces: tuple[Interface, ...], ip: str) -> Interface | None:
    interface = addresses.carrier(interfaces, ip) or addresses.neighbour_on(interfaces, ip)
    return interface if interface and addresses.is_private_bridge(interface) else None


def _use_instead(facts: MachineFacts) -> str:
    plan = facts.plan
    if not plan.multi_node:
        return "use `torchrun --standalone …` on one node, or `export MASTER_ADDR=127.0.0.1`"
    way_out = addresses.outward(facts)
    if plan.node_rank != 0 or way_out is None:
        mine = f" (this machine's is {way_out[1]})" if way_out else ""
        return (
            f"use {_setting(plan, 'ADDRESS')} on every node, with node rank 0's address on the "
            f"shared network{mine}"
        )
    return f"use {_setting(plan, way_out[1])} on every node ({way_out[0]} of this machine)"


def _setting(plan: Plan, ip: str) -> str:
    """The setting, in the same form as the present one."""
    if plan.rdzv_endpoint:
        port = rendezvous.split_endpoint(plan.rdzv_endpoint)[1] or rendezvous.C10D_PORT
        return f"`--rdzv-endpoint {shell_words.word(f'{ip}:{port}', 'ADDRESS:PORT')}`"
    if plan.master_origin in ("MASTER_ADDR", "PET_MASTER_ADDR"):
        return f"`export {shell_words.setting(plan.master_origin, ip)}`"
    return f"`--master-addr {shell_words.word(ip, 'ADDRESS')}`"


@FAULT.check_nodes
def master_is_none_of_the_nodes(facts: NodesFacts) -> Finding | Sequence[Finding]:
    host, origin = rendezvous.master_host(facts.plan)
    if len(facts.nodes) < 2 or not host:
        return FAULT.does_not_apply("no master address is set, or there is one node")
    meant = owners.addresses_of(facts, host)
    if not meant:
        return FAULT.skipped(f"{host} was not resolved: see dns-failure")
    if all(addresses.is_loopback(ip) for ip in meant):
        return ()  # each node's own check says it
    for node in facts.nodes:
        known(node.facts.interfaces)
    found = owners.book(facts).owners_of(meant)
    if not found and facts.absent:
        return FAULT.skipped(f"{host} may be a node that did not answer: see node-lost")
    evidence = [Evidence(quote=f"{host} is {', '.join(meant)}", source=origin)]
    return _owned_by(host, found, len(facts.nodes), evidence)


def _owned_by(host: str, found: Sequence[str], count: int, evidence: list[Evidence]) -> Finding:
    if len(found) == 1:
        return FAULT.ok(f"the master {host} is {found[0]}")
    if found:
        return FAULT.warning(
            f"the master address {host} belongs to {len(found)} nodes: {', '.join(found[:4])}",
            reason="each of them would look for the store on itself",
            evidence=evidence,
            fix="use an address that one node has alone: `ip -br address`",
        )
    return FAULT.warning(
        f"the master address {host} belongs to none of the {count} nodes",
        reason="no node has it on an interface, so that rank 0 cannot serve the store there; fine "
        "only if it is translated (NAT, a service address) to one of them",
        evidence=evidence,
        fix="use the address of the first node on the network that all share: `hostname -I` there",
    )


@FAULT.explain
def ranks_used_a_wrong_store_address(wreckage: Wreckage) -> Diagnosis | None:
    calls = [c for c in connections.attempts(wreckage, connections.STORE) if c.address]
    several = len(wreckage.hosts) > 1
    for call in calls:
        why, confidence = _doubt(call.address, several=several)
        if why:
            return FAULT.diagnosis(
                f"the ranks connected to the store at {call.where}: {why}",
                confidence=confidence,
                seen=[c.seen for c in calls if c.address == call.address],
                culprit=Culprit(what=f"MASTER_ADDR={call.address}"),
                fix="set the master address to an address of rank 0's node on the network that all "
                "nodes share",
                next="hostname -I",
            )
    return None


@FAULT.explain
def store_address_is_not_on_this_machine(wreckage: Wreckage) -> Diagnosis | None:
    seen = wreckage.seen(NOT_OURS)
    if not seen:
        return None
    return FAULT.diagnosis(
        "the store was told to listen on an address that this machine does not have",
        confidence=0.75,
        seen=seen,
        culprit=Culprit(host=seen[0].line.host, what="the master address"),
        fix="start rank 0 on the machine that has the address, or set an address of this machine",
        next="ip -br address",
    )


def _doubt(address: str, *, several: bool) -> tuple[str, float]:
    if "/" in address:
        return "that is a URL, and MASTER_ADDR must be a plain name or address", 0.9
    if several and (address == "localhost" or addresses.is_loopback(address)):
        return "on each node that is the node itself, and the job has several nodes", 0.85
    if address.startswith("172.17."):
        return "that is Docker's default bridge, which exists on one machine only", 0.5
    return "", 0.0


# --- in what a user wrote ------------------------------------------------------------------------

USE_SHARED_ADDRESS = (
    "use node rank 0's address on the network that all nodes share; `hostname -I` there lists them"
)
FIRST_SLURM_NODE = (
    '`export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)`'
)


@FAULT.lint
def launch_sets_loopback_as_master(source: Source) -> Iterator[Finding]:
    """Options of a launcher that spans several nodes."""
    if master.rehearsed(source):
        return
    for launch in source.launches:
        count = command_line.nodes(launch)
        fewest = count[0] if count else None
        most = launch.machines or (source.machines if "srun" in launch.around else 1) or 1
        for said in master.addresses(launch):
            yield from _malformed(said.what, said.value, said.place, most=most)
            if most > 1 and _means_this_machine(said.value) and launch.flag("standalone") is None:
                speak = FAULT.warning if fewest == 1 else FAULT.error
                yield speak(
                    f"{said.what} {said.value} is each machine's own loopback",
                    reason=f"the job has {'up to ' if fewest == 1 else ''}{most} nodes, and every "
                    "one of them would wait for itself",
                    fix=USE_SHARED_ADDRESS,
                    at=said.place,
                )


@FAULT.lint
def variable_sets_a_wrong_master(source: Source) -> Iterator[Finding]:
    started = (*source.launches, *source.started_by)
    most = max((launch.machines or 1 for launch in started), default=1)
    for setting in master.variables(source):
        if not setting.known:
            continue
        yield from _malformed("MASTER_ADDR", setting.value, setting.place, most=most)
        if most > 1 and _means_this_machine(setting.value) and _is_read(source):
            yield FAULT.error(
                f"MASTER_ADDR={setting.value} is each machine's own loopback",
                reason=f"the job has {most} nodes, and every one of them would wait for itself",
                fix=f"in a Slurm job, {FIRST_SLURM_NODE}; elsewhere {USE_SHARED_ADDRESS}",
                at=setting.place,
            )


def _is_read(source: Source) -> bool:
    """torchrun and similar launchers overwrite the variable; another fault covers that."""
    kinds = {launch.kind for launch in (*source.launches, *source.started_by)}
    overwrites = kinds & {"torchrun", "torch.distributed.launch", "deepspeed", "accelerate"}
    return not overwrites and not master.rehearsed(source)


def _means_this_machine(value: str) -> bool:
    return command_line.is_loopback(value) or value in ("0.0.0.0", "::", "[::]")


def _malformed(what: str, value: str, at: Place, *, most: int) -> Iterator[Finding]:
    """Wrong for any number of nodes, and Docker's bridge for several."""
    if re.match(r"[a-z]+://", value):
        yield FAULT.error(
            f"{what} {value} is a URL, but must be a plain name or address",
            reason="it is looked up as a host name, which does not exist",
            fix=f"use `{shell_words.word(re.split('[/:]', value.partition('://')[2])[0], 'HOST')}`",
            at=at,
        )
    elif re.fullmatch(r"[\w.\-]+:\d{2,5}", value):
        host, _, port = value.partition(":")
        yield FAULT.error(
            f"{what} {value} contains a port",
            reason="it is looked up as a host name, including the colon, which does not exist",
            fix=f"set `MASTER_ADDR={host}` and `MASTER_PORT={port}` separately",
            at=at,
        )
    elif value.startswith("172.17.") and most > 1:
        yield FAULT.warning(
            f"{what} {value} is on Docker's default bridge",
            reason=f"172.17.0.0/16 is Docker's default network for containers and exists on one "
            f"machine only; this job has {most} nodes",
            fix=USE_SHARED_ADDRESS,
            at=at,
        )


@FAULT.lint
def each_node_sets_itself_as_master(source: Source) -> Iterator[Finding]:
    for own in self_named_master.found(source):
        speak = FAULT.error if own.sure else FAULT.warning
        given = "Slurm's" if own.by == "Slurm" else "given from outside"
        runs = (
            f"this script runs on every node (its node rank is {given})"
            if own.by in ("Slurm", "")
            else f"{own.by} runs this on every node"
        )
        yield speak(
            "each node sets itself as the master",
            reason=f"{runs}, and `hostname` differs on each",
            fix="set it once, before the ranks are started, to the name of the first node; in a "
            "Slurm "
            f"job: {FIRST_SLURM_NODE}",
            at=own.place,
        )


@FAULT.lint
def master_is_asked_for_at_the_start(source: Source) -> Iterator[Finding]:
    if not master.rehearsed(source):
        yield from map(FAULT.from_problem, asked_master.problems(source))


# --- drill ---------------------------------------------------------------------------------------


@FAULT.drill(needs=("hosts",))
def one_host_is_given_another_address(rehearsal: Rehearsal) -> Injection:
    host = hosts.other_host(rehearsal)
    return Injection(
        does=f"{host} is told to meet the others at {NOBODY}, which no machine has",
        act=TypeOnHost(host=host, flags=("--rdzv-endpoint", f"{NOBODY}:29400")),
        then=Then.REFUSES,
        from_start=True,
        culprits=(),
        hosts=(host,),
        beside=("ranks-missing", "join-timeout"),
        join_timeout=15.0,
    )


NOBODY = "10.77.0.99"
"""in the network of the drill's hosts"""
