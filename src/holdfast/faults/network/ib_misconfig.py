"""InfiniBand or RoCE is present but does not work.

What you see   NCCL: `Call to ibv_modify_qp failed`, `Got completion from peer … status=12` (older:
               `with error 12`, newer: `IBV_WC_RETRY_EXC_ERR(12)`), `async fatal event`,
               `GID table changed`, `Unable to open device`; then ncclSystemError or ncclRemoteError
               on every rank of the group.
Why            In modify_qp two cards agree on a path: 'Invalid argument' is a GID index that does
               not exist or another type of address on the other side; 'timed out' and 'unreachable'
               are rails that are not connected to each other, or no route for RoCE. Status 12 means
               that the other card never acknowledged: unreachable from the start, a link that
               flapped, a lossy RoCE network, or a peer that died. Statuses 1, 2 and 8 at the first
               transfer are often two different MTUs. Status 5 only follows from an earlier error.
               A port in state INIT has a cable but no subnet manager; a card whose device node
               cannot be opened does not exist for NCCL.
How to be sure `holdfast check -v` lists what it found; on several nodes it compares link type, MTU,
               subnet and type of address. By hand: `ibstat` or `rdma link` (state ACTIVE, same rate
               everywhere), `show_gids`, then `ib_write_bw` between the two machines with the same
               devices as in NCCL's line. In a container: `ls -l /dev/infiniband`.
Fix            Unset NCCL_IB_GID_INDEX (NCCL from 2.21 on finds it), give RoCE ports addresses that
               reach each other, and use one MTU on all. Rails that are not connected:
               NCCL_CROSS_NIC=0. Try NCCL_IB_TIMEOUT last: it only waits longer. To confirm that
               RDMA is the cause: one run with NCCL_IB_DISABLE=1.
Known limits   `check` sees each card's own state, not the fabric: switches, partition keys, PFC and
               ECN are not looked at, and no packet is sent. EFA says ACTIVE whatever the network
               does, so its ports are not judged; nor are parts of a card made for guests. The MTU
               is known only where libibverbs can open the card. During `run` ports are compared
               with the start; which end of a link is sick, their counters do not tell. In logs
               status 12 of a broken path and of a peer that died are the same line; only the log
               of the peer tells them apart.
Sources        NVIDIA/nccl src/misc/ibvwrap.cc: ibvModifyQpLog, printIbModifyQpHint
               NVIDIA/nccl src/transport/net_ib/p2p.cc and common.cc: completions, async events
               https://github.com/NVIDIA/nccl/issues/2013
               https://github.com/NVIDIA/nccl/issues/902
               NVIDIA/nccl src/transport/net_ib/connect.cc: ncclIbGetGidIndex
               linux-rdma/rdma-core libibverbs/verbs.h: ibv_port_attr; util/open_cdev.c
               https://docs.kernel.org/admin-guide/abi-stable.html (/sys/class/infiniband)
               https://github.com/NVIDIA/nccl/issues/1524
               https://github.com/NVIDIA/nccl/pull/2135
               https://github.com/NVIDIA/NVSentinel/issues/1325
               https://github.com/aws-samples/aws-do-eks/pull/63
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from holdfast import shell_words, text
from holdfast.analysis.collectives import waits
from holdfast.analysis.job import rdma_ports
from holdfast.analysis.logs import rdma_failures
from holdfast.analysis.logs.patterns import rdma_errors
from holdfast.analysis.logs.wreckage import Sighting, Wreckage
from holdfast.analysis.machine import (
    Container,
    MachineFacts,
    RdmaCard,
    RdmaPort,
    Unread,
    gid_choice,
    hca_choice,
    known,
    rdma_evidence,
    rdma_health,
    rdma_use,
)
from holdfast.analysis.machine.rdma import NO_ANSWER, NO_DRIVER, NO_LIBRARY
from holdfast.analysis.machine.rdma_health import DownAmongOthers
from holdfast.analysis.machine.rdma_use import PortAddress
from holdfast.analysis.nodes import NodesFacts, differences, rdma
from holdfast.analysis.scene.scene import Scene
from holdfast.fault import SHOWN, Fault, RunTraits
from holdfast.findings import Culprit, Diagnosis, Evidence, Finding, Verdict

FAULT = Fault(
    code="HOLD210",
    slug="ib-misconfig",
    related=("ib-memlock", "rdma-unused", "packet-loss", "peer-unreachable"),
    gpus_only=True,
    traits=RunTraits(priority=475, needs_stall=True, never_acts=True, whole_job=True),
)
FAULT.log_patterns.extend(rdma_errors.ALL)


MTU_STATUSES = {"1", "2", "8"}
FLUSHED, ACCESS_ERROR, RETRIES_EXCEEDED = "5", "4", "12"
CONFIRM_RDMA = (
    "confirm it with one run with NCCL_IB_DISABLE=1, then fix the path between the two cards"
)


# --- check ---------------------------------------------------------------------------------------


@FAULT.check(needs=("container", "rdma_cards", "settings"))
def cards_cannot_be_opened(facts: MachineFacts) -> Finding | list[Finding]:
    cards = known(facts.rdma_cards)
    if idle := _why_idle(facts, cards):
        return FAULT.does_not_apply(idle)
    closed = [card for card in cards if card.open_error]
    opened = [card for card in cards if not card.open_error]
    if not opened:
        return _none_opens(facts, closed)
    broken = [c for c in opened if c.verbs_error and c.verbs_error not in (NO_LIBRARY, NO_DRIVER)]
    if broken:
        return [_card_fails(facts, card) for card in broken]
    # A container often gets some of the machine's cards, and works with those.
    some = "" if not closed else f"; {len(closed)} others are not meant for it"
    if any(c.driver == rdma_use.EFA for c in opened) and any(
        c.open_error in ("EACCES", "EPERM") and c.driver != rdma_use.EFA for c in closed
    ):
        return _libfabric_stumbles(closed)
    return FAULT.ok(f"this user can open {text.counted(len(opened), 'RDMA card')}{some}")


def _why_idle(facts: MachineFacts, seen: Sequence[object]) -> str:
    if not seen:
        return "no RDMA card is visible"
    off = rdma_use.switched_off(facts)
    return f"{off}: NCCL uses no RDMA" if off else ""


def _speak(facts: MachineFacts) -> Callable[..., Finding]:
    """On one machine NCCL does not use RDMA; a job on several would be hit."""
    return FAULT.warning if facts.plan.multi_node else FAULT.note


def _none_opens(facts: MachineFacts, closed: Sequence[RdmaCard]) -> Finding:
    missing = all(card.open_error == "ENOENT" for card in closed)
    return _speak(facts)(
        f"{text.counted(len(closed), 'RDMA card')} here, and this user can open none",
        reason="the kernel shows the cards, but "
        + ("their device nodes are missing: " if missing else "refuses to open them: ")
        + "NCCL warns 'Unable to open device' and uses TCP between machines",
        evidence=[
            Evidence(quote=f"{card.name}: {card.open_error}", source=card.uverbs or "/dev")
            for card in closed[:SHOWN]
        ],
        fix=_way_in(facts, missing=missing),
    )


def _way_in(facts: MachineFacts, *, missing: bool) -> str:
    container = facts.container
    kind = container.kind if isinstance(container, Container) else ""
    if kind in ("docker", "podman"):
        return f"start the container with `{kind} run --device /dev/infiniband`"
    if kind == "kubernetes":
        return "request the cards for the pod: the resource of the cluster's RDMA device plugin"
    if missing:
        return "load the module that makes the device nodes: `sudo modprobe ib_uverbs`"
    return "see who may open them: `ls -l /dev/infiniband`; rdma-core's udev rules allow all users"


def _card_fails(facts: MachineFacts, card: RdmaCard) -> Finding:
    hangs = card.verbs_error == NO_ANSWER
    what = "does not answer" if hangs else f"cannot be opened by libibverbs ({card.verbs_error})"
    return _speak(facts)(
        f"RDMA card {card.name} {what}",
        reason="NCCL opens every card when it starts, and "
        + ("will hang there" if hangs else "leaves this one out, or fails"),
        evidence=[Evidence(quote=f"{card.name}: {card.verbs_error}", source="libibverbs")],
        fix=f"see what its driver ({card.driver or 'unknown'}) says: `dmesg | grep -i "
        f"{shell_words.word(card.bus_id, 'rdma')}`; then reset or replace the card",
    )


def _libfabric_stumbles(closed: Sequence[RdmaCard]) -> Finding:
    names = text.names(card.name for card in closed)
    return FAULT.note(
        f"EFA cards can be opened, but {names} cannot, though their device nodes are visible",
        reason="libfabric opens every card that it sees, and some versions then find no EFA at all",
        evidence=[
            Evidence(quote=f"{card.name}: {card.open_error}", source=card.uverbs)
            for card in closed[:SHOWN]
        ],
        fix="give the container only the cards of its device plugin, not all of /dev/infiniband; "
        "verify with `fi_info -p efa`",
    )


@FAULT.check(needs=("accelerators", "rdma_cards", "rdma_ports", "settings"))
def ports_are_not_active(facts: MachineFacts) -> Finding | list[Finding]:
    ports = known(facts.rdma_ports)
    if _why_idle(facts, ports):
        return []  # cards_cannot_be_opened says so
    cards = {card.name: card for card in known(facts.rdma_cards)}
    gpus = facts.accelerators if not isinstance(facts.accelerators, Unread) else ()
    waiting = rdma_health.unconfigured(ports)
    found = [_no_subnet_manager(facts, waiting)] if waiting else []
    groups = rdma_health.down_among_others(_meant(facts, ports), cards, len(gpus))
    found += [_missing_rail(facts, group) for group in groups]
    active = [port for port in ports if port.state == rdma_health.ACTIVE]
    return found or FAULT.ok(
        f"{len(active)} of {text.counted(len(ports), 'RDMA port')} active, no other is missed"
    )


def _meant(facts: MachineFacts, ports: Sequence[RdmaPort]) -> Sequence[RdmaPort]:
    """Those that NCCL_IB_HCA does not exclude; of a list that selects, hca-name-missing judges."""
    setting = facts.setting(hca_choice.HCA)
    value = setting.value if setting else ""
    if value and not value.startswith("^"):
        return ()
    choice = hca_choice.choose(ports, value)
    return (*choice.taken, *choice.inactive)


def _no_subnet_manager(facts: MachineFacts, waiting: Sequence[RdmaPort]) -> Finding:
    names = [port.name for port in waiting]
    return _speak(facts)(
        f"{text.names(names)} {text.plural(names, 'waits', 'wait')} for a subnet manager",
        reason="the link is up, but no subnet manager has configured the port, so that NCCL does "
        "not use it",
        evidence=rdma_evidence.states(waiting),
        fix="see whether a subnet manager runs in that fabric: `sudo sminfo`; it is in the switch, "
        "or started by `sudo systemctl start opensm` on one machine",
    )


def _missing_rail(facts: MachineFacts, group: DownAmongOthers) -> Finding:
    names = [port.name for port in group.ports]
    speak = _speak(facts) if group.is_rail else FAULT.note
    count = len(group.ports) + len(group.active)
    why = (
        f"there is one for each GPU: NCCL will use {len(group.active)} of {count}, without a "
        "warning, and the slowest node slows all others down"
        if group.is_rail
        else "it may be a spare port; NCCL leaves it out without a warning"
    )
    return speak(
        f"{text.names(names)} {text.plural(names, 'is', 'are')} down, while the other "
        f"{len(group.active)} ports of that kind of card are active",
        reason=why,
        evidence=rdma_evidence.states(group.ports),
        fix="check cable, transceiver and switch port: Polling means that nothing answers at the "
        "other end",
    )


@FAULT.check(needs=("rdma_ports", "settings", "software"))
def roce_port_has_no_usable_address(facts: MachineFacts) -> Finding | list[Finding]:
    taken = rdma_use.admitted(facts)
    ports = rdma_use.roce_addresses(facts, taken)
    if _why_idle(facts, ports) or rdma_use.plugin(facts):
        return []
    how = gid_choice.settings_of(facts)
    foreign = [one for one in ports if gid_choice.foreign(one.port.gids, how)]
    empty = [one for one in ports if one.gid is None]
    local = [one for one in ports if one.gid and not one.reaches_others]
    if how.fails_on_foreign and foreign:
        return _foreign_addresses(facts, foreign, how.version)
    if how.forced is not None and empty:
        return _empty_entry(facts, empty)
    fastest = max(port.rate or 0 for port in taken)
    # A slower one beside them is not for the job's data: accelerated networking, management.
    useless = [one for one in (*empty, *local) if (one.port.rate or 0) >= fastest]
    if useless:
        return _no_address(facts, useless, every=len(useless) == len(taken))
    usable = [one for one in ports if one.reaches_others]
    return FAULT.ok(f"NCCL finds an address for {len(usable)} of {len(ports)} RoCE ports")


def _foreign_addresses(
    facts: MachineFacts, foreign: Sequence[PortAddress], version: str
) -> Finding:
    names = text.names(one.port.name for one in foreign)
    return _speak(facts)(
        f"{names}: the kernel does not tell the type of some addresses",
        reason=f"{rdma_failures.FOREIGN_GID}; NCCL {version} ends with an error when it asks",
        evidence=rdma_evidence.addresses(foreign),
        fix=rdma_failures.SKIP_GID,
    )


def _empty_entry(facts: MachineFacts, empty: Sequence[PortAddress]) -> Finding:
    setting = facts.setting(gid_choice.INDEX)
    value = setting.value if setting else ""
    return _speak(facts)(
        f"{gid_choice.INDEX}={value} is an empty entry of "
        f"{text.names(one.port.name for one in empty)}",
        reason="NCCL uses that entry unseen: connections fail with 'Invalid argument'",
        evidence=[*([setting.evidence] if setting else []), *rdma_evidence.addresses(empty)],
        fix=f"`unset {gid_choice.INDEX}`: NCCL from 2.21 on finds the address itself",
    )


def _no_address(facts: MachineFacts, ports: Sequence[PortAddress], *, every: bool) -> Finding:
    names = text.names(one.port.name for one in ports)
    speak = _speak(facts) if every else FAULT.note
    return speak(
        f"{names}: NCCL finds no IP address for RoCE",
        reason="it will use a link-local address, which reaches no other network"
        + ("" if every else "; other ports have one, and NCCL uses all of them"),
        evidence=rdma_evidence.addresses(ports),
        fix="give the interface of the port an IPv4 address (NCCL_IB_ADDR_FAMILY=AF_INET6 for IPv6 "
        "only), leave the port out with NCCL_IB_HCA, or use TCP: `export NCCL_IB_DISABLE=1`",
    )


@FAULT.check(needs=("rdma_ports", "settings"))
def link_counts_errors_now(facts: MachineFacts) -> Finding | list[Finding]:
    ports = known(facts.rdma_ports)
    if _why_idle(facts, ports):
        return []  # cards_cannot_be_opened says so
    failing = rdma_health.failing_links(ports)
    return [_bad_link(facts, port) for port in failing] or FAULT.ok("no RDMA link counts errors")


def _bad_link(facts: MachineFacts, port: RdmaPort) -> Finding:
    grown = rdma_health.link_errors(port)
    counts = ", ".join(f"{name} +{count}" for name, count in grown.items())
    return _speak(facts)(
        f"the link of {port.name} counts errors right now",
        reason="a good link counts none; on a bad one transfers are repeated, and may time out",
        evidence=[
            Evidence(
                quote=f"{counts} between two looks",
                source=f"/sys/class/infiniband/{port.device}/ports/{port.number}",
            )
        ],
        fix="clean or replace cable and transceiver, then try another switch port",
    )


# --- check, between nodes ------------------------------------------------------------------------


@FAULT.check_nodes
def cards_differ_between_nodes(facts: NodesFacts) -> Finding | Sequence[Finding]:
    if len(facts.nodes) < 2:
        return FAULT.does_not_apply("one node: there is nothing to compare")
    nodes, gaps = differences.of_each(facts, rdma.of_node)
    unknown = [FAULT.skipped(gap.why, host=gap.node) for gap in gaps]
    using = {name: one for name, one in nodes.items() if one.ports}
    if not using and not unknown:
        return FAULT.does_not_apply("NCCL uses RDMA on no node")
    if len(using) < 2:
        return unknown or FAULT.does_not_apply("NCCL uses RDMA on one node only: see rdma-unused")
    found = [_unequal(one) for one in rdma.compare(using)]
    return [*(found or [FAULT.ok(f"{len(using)} nodes use RDMA alike")]), *unknown]


def _unequal(found: rdma.RdmaDifference) -> Finding:
    values, odd = found.unequal.values, found.unequal.odd
    order = sorted(values, key=lambda node: (node not in odd, node))
    return (FAULT.error if found.apart else FAULT.warning)(
        f"{found.what} differs between nodes: {found.unequal.listed}",
        reason=found.meaning,
        evidence=[
            Evidence(quote=f"{node}: {values[node]}", source="RDMA cards", host=node)
            for node in order[:SHOWN]
        ],
        fix=found.fix,
        host=odd[0] if len(odd) == 1 else "",
    )


# --- run -----------------------------------------------------------------------------------------


@FAULT.run
def port_failed_while_all_ranks_wait(scene: Scene) -> Verdict | None:
    """Every rank is in the collective, so that no rank is to blame; where one is missing, the
    ports are evidence beside it. Within one machine NCCL uses no RDMA."""
    every = rdma_ports.changed(scene, (view.rank for view in scene.ranks))
    failed = [one for one in every if one.is_grave]
    if not scene.nodes or not failed:
        return None
    seen = waits.analyse(scene)
    if seen.roots or seen.mismatch or seen.deadlock or waits.moved_on(scene):
        return None
    waiting = rdma_ports.in_flight(scene)
    if not waiting:
        return None
    worst = failed[0]
    more = f" (and {len(failed) - 1} more ports)" if len(failed) > 1 else ""
    card = shell_words.word(worst.change.port.rpartition(":")[0], "")
    titles = text.names(dict.fromkeys(waiting.values()), shown=2)
    ranks = f"{text.ranks(waiting)} {text.plural(waiting, 'waits', 'wait')}"
    return FAULT.verdict(
        f"RDMA port {worst.change.port} of node {worst.node} {worst.what_happened}, since the "
        f"ranks were started{more}; {ranks} in {titles}, which no rank is missing from",
        ranks=(),
        victims=waiting,
        certain=False,
        fix=f"on node {worst.node} look at that port: `ibstat {card}`, then its "
        "cable, transceiver and switch port",
        evidence=rdma_ports.evidence(failed),
    )


# --- explain -------------------------------------------------------------------------------------


@FAULT.explain
def cards_could_not_connect(wreckage: Wreckage) -> Diagnosis | None:
    seen = wreckage.seen(rdma_errors.MODIFY_QP)
    if not seen:
        return None
    first = seen[0].fields
    said = (first.get("why") or first.get("said", "")).strip()
    why = rdma_failures.WHY_MODIFY.get(said, "they found no common path")
    forced = wreckage.settings.get("NCCL_IB_GID_INDEX", "")
    return FAULT.diagnosis(
        f"two RDMA cards could not set up a connection ({said or 'no error given'}): "
        f"{why}{f'; NCCL_IB_GID_INDEX={forced} is set' if forced else ''}",
        confidence=0.9,
        seen=seen,
        culprit=_card(seen[0], f"NCCL_IB_GID_INDEX={forced}" if forced else ""),
        fix="unset NCCL_IB_GID_INDEX and let NCCL (from 2.21) find it; check that the addresses of "
        "both cards reach each other; set NCCL_CROSS_NIC=0 for rails that are not connected",
        next="show_gids; rdma link",
    )


@FAULT.explain
def rdma_transfer_failed(wreckage: Wreckage) -> Diagnosis | None:
    if wreckage.seen(rdma_errors.MODIFY_QP):
        return None
    seen = [
        s
        for s in wreckage.seen(rdma_errors.COMPLETION)
        if s.fields["status"] not in (FLUSHED, ACCESS_ERROR)
    ]
    if not seen:
        return None
    first = seen[0].fields
    status, peer = first["status"], first.get("peer", "the other side")
    if status == RETRIES_EXCEEDED:
        meaning = (
            "the other card never acknowledged: it is unreachable, the link flaps or loses "
            "packets, or the peer died"
        )
    elif status in MTU_STATUSES:
        meaning = "the data did not fit the buffer, as with different MTUs on the two machines"
    else:
        meaning = "the transfer failed in the cards"
    return FAULT.diagnosis(
        f"an RDMA transfer with {peer} ended with status {status}: {meaning}",
        confidence=_transfer_confidence(wreckage, status),
        seen=seen,
        culprit=_card(seen[0], f"the path to {peer}" if "peer" in first else ""),
        victims=[s.rank for s in seen if s.rank is not None],
        fix=f"check whether the process at {peer} was alive; if so, {CONFIRM_RDMA}",
        next=shell_words.command("ibstat; ping -c 3 {}", first.get("peer", "")) or "ibstat",
        unknown=[f"whether {peer} had died before: see its own log"],
    )


@FAULT.explain
def card_was_unusable(wreckage: Wreckage) -> Diagnosis | None:
    if wreckage.seen(rdma_errors.MODIFY_QP, rdma_errors.COMPLETION):
        return None
    seen = wreckage.seen(
        rdma_errors.BAD_EVENT,
        rdma_errors.NOT_OPENED,
        rdma_errors.NO_GID,
        rdma_errors.MIXED,
        rdma_errors.REG_MR,
        rdma_errors.FAILED,
        rdma_errors.UNEQUAL,
    )
    if not seen:
        return None
    reason, confidence, fix = rdma_failures.card_was_unusable(seen[0])
    return FAULT.diagnosis(
        reason,
        confidence=confidence,
        seen=seen,
        culprit=_card(seen[0], "the RDMA card"),
        fix=fix,
        next="ibstat; ls -l /dev/infiniband",
    )


@FAULT.explain
def efa_failed(wreckage: Wreckage) -> Diagnosis | None:
    seen = wreckage.seen(rdma_errors.OFI_ERROR)
    if not seen or wreckage.roots(but=[FAULT.slug]):
        return None
    return FAULT.diagnosis(
        "a transfer through libfabric (EFA) failed: the network card or security group blocks it, "
        "or the peer died",
        confidence=0.4,
        seen=seen,
        culprit=Culprit(host=seen[0].line.host, what="libfabric"),
        fix="allow all traffic within the security group, in both directions; then read the log of "
        "the peer",
        next="fi_info -p efa",
    )


@FAULT.explain
def efa_could_not_be_opened(wreckage: Wreckage) -> Diagnosis | None:
    seen = wreckage.seen(rdma_errors.OFI_ABSENT)
    if not seen or wreckage.seen(rdma_errors.OFI_ERROR) or wreckage.roots():
        return None
    return FAULT.diagnosis(
        "libfabric is installed but could open no EFA card: the container has no access to the "
        "devices, the locked-memory limit is too low, or its version does not match the plugin's",
        confidence=0.55,
        seen=seen,
        culprit=Culprit(host=seen[0].line.host, what="libfabric"),
        fix="start the container with the cards (`--device /dev/infiniband/uverbs0`, one for each) "
        "and `--ulimit memlock=-1`; use libfabric and plugin from the same EFA installer",
        next="fi_info -p efa; ls /dev/infiniband",
        unknown=["whether this machine has EFA: without it NCCL uses TCP"],
    )


def _transfer_confidence(wreckage: Wreckage, status: str) -> float:
    if wreckage.roots(but=[FAULT.slug]):
        return 0.35
    return 0.6 if status == RETRIES_EXCEEDED else 0.65


def _card(seen: Sighting, fallback: str) -> Culprit:
    return Culprit(host=seen.line.host, what=seen.fields.get("device") or fallback)
