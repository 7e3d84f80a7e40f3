"""NCCL chose an interface that does not reach the other machines.

What you see   `Bootstrap: Using lo:127.0.0.1<0>` (or docker0, virbr0, a VPN) with NCCL_DEBUG=INFO,
               then connections that are refused or time out, or a hang in the first collective. The
               store works, because it uses MASTER_ADDR and not this choice. NCCL before 2.24:
               `Software caused connection abort`.
Why            Each rank announces one address to the others: that of the first interface that NCCL
               admits. Without NCCL_SOCKET_IFNAME it prefers `ib*`, then anything that is not called
               docker*, lo or virbr*: a bridge br-*, a veth or a tunnel is admitted. A filter that
               only excludes, such as `^docker0`, replaces these rules, so lo is admitted, and it
               comes first. On one machine all of that works, which hides it.
How to be sure `holdfast check -v` says which interface NCCL and Gloo will take here, and why.
               NCCL_DEBUG=INFO prints the choice of every rank; other machines must be able to reach
               each of these addresses. `ip route get ADDRESS_OF_A_PEER` names the interface to use.
Fix            Set the interface: `export NCCL_SOCKET_IFNAME==eth0` (exact), and
               GLOO_SOCKET_IFNAME=eth0 for Gloo. If you must exclude, exclude lo as well:
               `^docker,lo`. Where names differ between machines, set it per machine
               (/etc/nccl.conf).
Known limits   The check knows NCCL's rules from 2.4 to 2.32. One machine cannot tell whether the
               others reach an ordinary interface: `holdfast check --hosts` can. Without
               NCCL_DEBUG=INFO in the log the chosen interface is not known; a private address is
               then recognised by the interface's name, by loopback and by Docker's default network
               172.17.0.0/16, not by routing.
Sources        NVIDIA/nccl src/misc/socket.cc: ncclFindInterfaces
               NVIDIA/nccl src/bootstrap.cc: only the first match counts
               https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html
               https://github.com/horovod/horovod/issues/700
               https://github.com/NVIDIA/nccl/issues/913
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from holdfast import shell_words, text
from holdfast.analysis.logs import announced_addresses
from holdfast.analysis.logs.pattern import Role
from holdfast.analysis.logs.patterns import connections, nccl
from holdfast.analysis.logs.wreckage import Wreckage
from holdfast.analysis.machine import (
    MachineFacts,
    Software,
    addresses,
    gloo_choice,
    known,
    nccl_choice,
    nic_filter,
    way_out,
)
from holdfast.analysis.machine.interface_choice import ChoiceRule, InterfaceChoice
from holdfast.analysis.machine.way_out import Doubt
from holdfast.analysis.nodes import Node, NodesFacts, announced, blocked
from holdfast.analysis.nodes.announced import Misplaced
from holdfast.analysis.source.source import Source, SourceSetting
from holdfast.analysis.variables.in_source import at, machines, readable
from holdfast.fault import SHOWN, Fault
from holdfast.findings import Culprit, Diagnosis, Evidence, Finding

FAULT = Fault(
    code="HOLD201",
    slug="wrong-nic",
    related=("loopback-multi-node", "nic-filter-syntax", "nic-name-missing", "peer-unreachable"),
)

CHOSE = FAULT.log_pattern(
    "chose",
    r"NET ?: Using interface (?P<interface>[^\s:]+):(?P<address>[^\s<]+)",
    anchors=("Using interface ",),
    example="node-a:411:411 [0] NCCL INFO NET : Using interface eth0:192.0.2.2<0>",  # before 2.4
    role=Role.CONTEXT,
)
NO_COMMON = FAULT.log_pattern(
    "no-common",
    r"Unable to find a set of common task-to-task communication interfaces",
    anchors=("common task-to-task communication",),
    example="Exception: Unable to find a set of common task-to-task communication interfaces: "
    "[(0, {'eth0': [('192.0.2.2', 40001)]})]",
)

LOCAL_PREFIXES = ("docker", "virbr", "br-", "veth")
"""of those, the ones that never reach another machine: overlays (flannel) do"""


NCCL_DECIDES = (nic_filter.NCCL, nccl_choice.COMM_ID, nccl_choice.FAMILY)
NETWORK = ("interfaces", "master_name", "own_name", "routes", "settings", "software")


@FAULT.check(needs=(*NETWORK, "accelerators", "rdma_ports"))
def nccl_takes_an_unreachable_interface(facts: MachineFacts) -> Finding:
    if _has_no_nccl(facts) and not any(map(facts.setting, NCCL_DECIDES)):
        return FAULT.does_not_apply("NCCL is not installed, and there is no GPU")
    first, every = nccl_choice.bootstrap(facts), nccl_choice.sockets(facts)
    if first.error:
        return FAULT.does_not_apply(f"{first.sentence}: see nic-name-missing")
    doubts = _doubts(facts, first) if facts.plan.multi_node else []
    if doubts and _is_named_loopback(facts, first):
        return FAULT.does_not_apply(f"{first.sentence}: see loopback-multi-node")
    if doubts:
        return _announces(facts, first, doubts[0])
    if facts.plan.multi_node and _sends_over_sockets(facts):
        doubts = _doubts(facts, every)
    return _sends_data(facts, every, doubts) if doubts else FAULT.ok(_sentence(first, every))


@FAULT.check(needs=NETWORK)
def gloo_takes_an_unreachable_interface(facts: MachineFacts) -> Finding:
    choice = gloo_choice.choose(facts)
    if choice.error:
        return FAULT.does_not_apply(f"{choice.sentence}: see nic-name-missing")
    doubts = _doubts(facts, choice) if facts.plan.multi_node else []
    if not doubts:
        return FAULT.ok(choice.sentence)
    if addresses.is_loopback(doubts[0].taken.address):
        named = choice.rule is ChoiceRule.NAMED
        better = "loopback-multi-node" if named else "hostname-misresolves"
        return FAULT.does_not_apply(f"{choice.sentence}: see {better}")
    return _announces(facts, choice, doubts[0])


def _doubts(facts: MachineFacts, choice: InterfaceChoice) -> list[Doubt]:
    """That an interface which was named has no carrier, nic-name-missing says."""
    by_name = choice.rule is ChoiceRule.NAMED
    return [one for one in way_out.doubts(choice, facts) if not (by_name and one.is_down)]


def _has_no_nccl(facts: MachineFacts) -> bool:
    installed = isinstance(facts.software, Software) and facts.software.nccl == ()
    return installed and facts.accelerators == ()


def _sends_over_sockets(facts: MachineFacts) -> bool:
    """Not where there is RDMA, nor with a network plugin that was asked for."""
    network = facts.setting("NCCL_NET")
    return facts.rdma_ports == () and (network is None or network.value.lower() == "socket")


def _sentence(first: InterfaceChoice, every: InterfaceChoice) -> str:
    also = [f"{one.name} ({one.address})" for one in every.taken if one != first.taken[0]]
    return f"{first.sentence}{'; for data also ' if also else ''}{text.names(also)}"


def _is_named_loopback(facts: MachineFacts, choice: InterfaceChoice) -> bool:
    """Selected on purpose, not let in by a filter that excludes others."""
    setting = facts.setting(nic_filter.NCCL)
    named = choice.rule is ChoiceRule.NAMED and setting and not setting.value.startswith("^")
    return bool(named) and addresses.is_loopback(choice.taken[0].address)


def _announces(facts: MachineFacts, choice: InterfaceChoice, doubt: Doubt) -> Finding:
    program = choice.library.partition(" ")[0]
    unused = program == "NCCL" and _has_no_nccl(facts)
    speak = FAULT.error if doubt.certain and not unused else FAULT.warning
    taken = f"{doubt.taken.name} ({doubt.taken.address})"
    setting = facts.setting(nic_filter.NCCL) if program == "NCCL" else None
    widened = setting is not None and _excludes_but_admits(setting.value, doubt.taken.name)
    replaced = "; a filter that only excludes replaces NCCL's own order" if widened else ""
    return speak(
        f"{program} will announce {taken} to the other machines, which "
        f"{'cannot' if doubt.certain else 'may not'} reach it",
        reason=f"{doubt.taken.name} {doubt.why}. {program} takes it: {choice.because}{replaced}"
        + ("; NCCL was not found here, and the job may do without" if unused else ""),
        evidence=_evidence(facts, choice),
        fix=_name_another(facts, choice),
    )


def _sends_data(facts: MachineFacts, choice: InterfaceChoice, doubts: list[Doubt]) -> Finding:
    names = text.names(f"{one.taken.name} ({one.taken.address})" for one in doubts)
    return FAULT.warning(
        f"NCCL will send data over {names} too, which other machines may not reach",
        reason=f"{doubts[0].taken.name} {doubts[0].why}; without RDMA NCCL spreads its data "
        "over every interface that it admits",
        evidence=_evidence(facts, choice),
        fix=_name_another(facts, choice),
    )


def _evidence(facts: MachineFacts, choice: InterfaceChoice) -> list[Evidence]:
    names = (nic_filter.GLOO,) if choice.library == gloo_choice.LIBRARY else NCCL_DECIDES
    settings = [setting.evidence for name in names if (setting := facts.setting(name))]
    return [*settings, choice.evidence]


def _name_another(facts: MachineFacts, choice: InterfaceChoice) -> str:
    gloo = choice.library == gloo_choice.LIBRARY
    name = nic_filter.GLOO if gloo else nic_filter.NCCL
    right = way_out.leads_out(facts)
    if not right or any(one.name == right for one in choice.taken[:1]):
        return f"set {name} to the interface that `ip route get ADDRESS_OF_A_PEER` shows"
    return f"`export {shell_words.setting(name, right if gloo else f'={right}')}`"


# --- between nodes -------------------------------------------------------------------------------


@FAULT.check_nodes
def announced_addresses_do_not_reach_each_other(facts: NodesFacts) -> Finding | Sequence[Finding]:
    if len(facts.nodes) < 2:
        return FAULT.does_not_apply("one node: every address is its own")
    every, gaps = announced.announced(facts)
    unknown = [FAULT.skipped(gap.why, host=gap.node) for gap in gaps]
    if not every:
        return unknown or FAULT.does_not_apply("no address is announced: see nic-name-missing")
    alike: dict[tuple[str, str, str, bool], list[Misplaced]] = {}
    for one in announced.misplaced(facts, every, known(facts.reach)):
        key = (one.announced.program, one.announced.interface, one.better, bool(one.same_on))
        alike.setdefault(key, []).append(one)
    found = [_misplaced(facts, group) for group in alike.values()]
    if found:
        return [*found, *unknown]
    chosen = dict.fromkeys(f"{one.program} {one.interface}" for one in every)
    return [FAULT.ok(f"nodes get to each other's addresses: {', '.join(chosen)}"), *unknown]


def _misplaced(facts: NodesFacts, group: Sequence[Misplaced]) -> Finding:
    first = group[0].announced
    nodes = [one.announced.node for one in group]
    if group[0].same_on:
        summary = (
            f"{first.program} will announce {first.address} ({first.interface}) on "
            f"{text.names(nodes)}: each has this address for itself"
        )
    else:
        where = text.names(f"{one.announced.address} of {one.announced.node}" for one in group)
        summary = f"{first.program} will announce {where} ({first.interface}): {_who(facts, group)}"
    works = f"; over {group[0].better} every other node gets there" if group[0].better else ""
    tries = [t for one in group for t in one.tries[:1]]
    unused = first.program == announced.NCCL and not any(
        announced.has_nccl(facts.node(name).facts) for name in nodes
    )
    speak = FAULT.warning if unused else FAULT.error
    return speak(
        summary,
        reason=f"ranks connect to the address that they are told and wait{works}. "
        f"{first.program} takes it: {first.choice.because}"
        + ("; NCCL was not found there, and the job may do without" if unused else ""),
        evidence=[
            *_evidence(facts.node(first.node).facts, first.choice),
            *map(blocked.connect_evidence, tries),
        ][:SHOWN],
        fix=_use_interface(group),
        host=nodes[0] if len(nodes) == 1 else "",
    )


def _who(facts: NodesFacts, group: Sequence[Misplaced]) -> str:
    sources = {one.source for each in group for one in each.tries}
    if len(sources) < len(facts.nodes) - 1:
        return f"{text.names(sources)} {text.plural(sources, 'has', 'have')} no way there"
    return "no node gets there"


def _use_interface(group: Sequence[Misplaced]) -> str:
    gloo = group[0].announced.program == announced.GLOO
    name = nic_filter.GLOO if gloo else nic_filter.NCCL
    where = text.names(one.announced.node for one in group)
    if not group[0].better:
        return f"set {name} to the interface that `ip route get ADDRESS_OF_A_PEER` shows on {where}"
    value = group[0].better if gloo else f"={group[0].better}"
    return f"`export {shell_words.setting(name, value)}` on {where}"


@FAULT.refuted_by_nodes
def others_know_its_addresses_better(facts: NodesFacts, node: Node) -> bool:
    suspects = any(one.slug == FAULT.slug and one.status.concern for one in node.findings)
    return suspects and announced.is_settled(facts, node)


# --- in what is left of a job -------------------------------------------------------------------


@FAULT.explain
def nccl_announced_a_private_address(wreckage: Wreckage) -> Diagnosis | None:
    chosen = [
        s for s in wreckage.seen(nccl.BOOTSTRAP_USING, CHOSE) if announced_addresses.is_private(s)
    ]
    failed = [
        one
        for one in connections.attempts(wreckage, connections.NCCL)
        if announced_addresses.is_private_address(one.address) or (chosen and not one.address)
    ]
    if not chosen and not failed:
        return None
    named = announced_addresses.interface_of(chosen, failed)
    confidence = announced_addresses.confidence(wreckage, chosen, failed)
    if not confidence:
        return None
    setting = wreckage.settings.get(nic_filter.NCCL, "")
    where = f"{chosen[0].fields['interface']} ({chosen[0].fields['address']})" if chosen else named
    return FAULT.diagnosis(
        f"NCCL announced {where} to the other ranks, an address that other machines cannot "
        f"reach{_filter_effect(setting, named)}",
        confidence=confidence,
        seen=[*chosen, *(one.seen for one in failed)],
        culprit=Culprit(what=f"{named}{_filter_origin(setting, named)}"),
        fix="set the interface that reaches the other machines: `export NCCL_SOCKET_IFNAME==eth0` "
        "(exact name) and `export GLOO_SOCKET_IFNAME=eth0`",
        next="ip -br address",
    )


@FAULT.explain
def mpi_used_a_private_address(wreckage: Wreckage) -> Diagnosis | None:
    """Open MPI tries every interface that both machines have, Docker's bridge among them."""
    failed = [
        one
        for one in connections.attempts(wreckage, connections.MPI)
        if announced_addresses.is_private_address(one.address)
    ]
    missed = wreckage.seen(NO_COMMON)
    if not failed and not missed:
        return None
    return FAULT.diagnosis(
        f"Open MPI connected to {failed[0].address}, an address that every machine has for itself"
        if failed
        else "Horovod found no interface name that all hosts can use to reach each other",
        confidence=0.6,
        seen=[*(one.seen for one in failed), *missed],
        culprit=Culprit(
            what=announced_addresses.interface_of([], failed) if failed else "network interfaces"
        ),
        fix="set the interface that reaches the other machines: `mpirun --mca btl_tcp_if_include "
        "eth0 --mca oob_tcp_if_include eth0`, or `horovodrun --network-interfaces eth0`",
        next="ip -br address",
    )


@FAULT.explain
def hosts_announced_different_networks(wreckage: Wreckage) -> Diagnosis | None:
    """Each address may be correct by itself, but they are not on one network."""
    chosen = [
        s for s in wreckage.seen(nccl.BOOTSTRAP_USING) if not announced_addresses.is_private(s)
    ]
    if any(announced_addresses.is_private(s) for s in wreckage.seen(nccl.BOOTSTRAP_USING)):
        return None
    by_name = {s.fields["interface"]: s for s in chosen}
    networks = {announced_addresses.network(s.fields["address"]) for s in chosen} - {""}
    failed = connections.attempts(wreckage, connections.NCCL)
    if len(networks) < 2 or len(wreckage.hosts) < 2 or not failed:
        return None
    announced = ", ".join(f"{s.line.host or 'one'}: {name}" for name, s in by_name.items())
    return FAULT.diagnosis(
        f"the hosts announced addresses of different networks ({announced}) and could not connect",
        confidence=0.5,
        seen=[*by_name.values(), *(one.seen for one in failed)],
        culprit=Culprit(what=", ".join(by_name)),
        fix="choose the network that all hosts share: set NCCL_SOCKET_IFNAME on each of them",
        next="ip -br address",
    )


def _excludes_but_admits(setting: str, name: str) -> bool:
    return setting.startswith("^") and nic_filter.read_nccl(setting).admits(name)


def _filter_effect(setting: str, name: str) -> str:
    if _excludes_but_admits(setting, name):
        return (
            f"; NCCL_SOCKET_IFNAME={setting} replaces NCCL's own rules and admits {name}, which "
            "comes first"
        )
    return f" (NCCL_SOCKET_IFNAME={setting})" if setting else ""


def _filter_origin(setting: str, name: str) -> str:
    if _excludes_but_admits(setting, name):
        return f", re-admitted by {setting}"
    return f", chosen by NCCL_SOCKET_IFNAME={setting}" if setting else ""


# --- in what a user wrote -----------------------------------------------------------------------


@FAULT.lint
def filter_selects_an_unreachable_interface(source: Source) -> Iterator[Finding]:
    for setting in readable(source, nic_filter.NCCL, nic_filter.GLOO):
        if nic_filter.is_ignored(setting.value):
            continue
        count = machines(source, setting)
        finding = _admits_loopback(setting, count) or _selects_a_bridge(setting, count)
        if finding:
            yield at(finding, setting)


def _admits_loopback(setting: SourceSetting, count: int | None) -> Finding | None:
    chosen = nic_filter.read_nccl(setting.value)
    if setting.name != nic_filter.NCCL or not chosen.exclude or not chosen.admits("lo"):
        return None
    speak = FAULT.error if (count or 1) > 1 else FAULT.warning
    return speak(
        f"{setting.name}={setting.value} admits the loopback interface",
        reason="the filter replaces NCCL's rules, which put lo last; now it comes first. That "
        "works on one machine, but other machines cannot be reached over it: the job hangs or "
        "fails at its first collective",
        fix=f"use `{shell_words.setting(setting.name, nic_filter.excluding_loopback(chosen))}`, "
        "or better, name the "
        f"interface: `{setting.name}==eth0`",
    )


def _selects_a_bridge(setting: SourceSetting, count: int | None) -> Finding | None:
    if setting.name == nic_filter.NCCL:
        chosen = nic_filter.read_nccl(setting.value)
        names = () if chosen.exclude else chosen.names
    else:
        names = nic_filter.read_gloo(setting.value)
        if any(map(nic_filter.strange, names)):
            return None  # nic-filter-syntax says what `^docker0` means to Gloo
    bridges = [name for name in names if name.startswith(LOCAL_PREFIXES)]
    if not bridges or count == 1:
        return None
    return FAULT.warning(
        f"{setting.name}={setting.value} selects {bridges[0]}, which reaches no other machine",
        reason="that interface is created for containers or virtual machines on one host; its "
        "address means nothing elsewhere. Ranks on one machine can use it",
        fix=f"use the interface that `ip route get` shows for a peer, or remove {setting.name}",
    )
