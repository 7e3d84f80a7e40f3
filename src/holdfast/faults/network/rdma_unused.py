"""RDMA is available, but NCCL does not use it.

What you see   `NET/IB : No device found.` and `Using network Socket` with NCCL_DEBUG=INFO on a
               machine with InfiniBand, RoCE or EFA: the job runs at a fraction of its speed and may
               hit its timeouts. Where RDMA was demanded (NCCL_NET), an error: `network IB not
               found`. Where only some machines lack it, the job hangs or fails when they connect.
Why            NCCL_IB_DISABLE=1 left over from debugging another problem; a container without
               /dev/infiniband or without the user-space drivers (`Failed to open libibverbs.so`); a
               plugin that is not on LD_LIBRARY_PATH. NCCL falls back to TCP without a warning.
How to be sure `holdfast check --nnodes 2` says which ports NCCL will use, or why none; on several
               nodes it names the node without. By hand: `ls /dev/infiniband /sys/class/infiniband`
               inside the job's container; `env | grep NCCL`; NCCL_DEBUG=INFO on every machine: all
               must use the same network.
Fix            `unset NCCL_IB_DISABLE`; run the container with `--device /dev/infiniband` and
               rdma-core installed; for EFA install the aws-ofi-nccl plugin. Set NCCL_NET=IB to fail
               at once instead of running slowly.
Known limits   `check` opens the cards as NCCL does; of NCCL's network plugins, through which it
               reaches EFA, it only looks for the file. Switching RoCE off is a note: many
               Ethernet networks are not fit for it. A log shows that TCP was used, not that the
               machine has RDMA cards; without another sign of cards nothing is said.
Sources        NVIDIA/nccl src/transport/net_ib/init.cc: No device found
               NVIDIA/nccl src/plugin/net.cc: Failed to initialize any NET plugin
               NVIDIA/nccl src/plugin/net.cc at v2.18.6-1: network … not found
               NVIDIA/nccl src/misc/ibvsymbols.cc: libibverbs is loaded at run time
               NVIDIA/nccl src/plugin/plugin_open.cc: names of network plugins
               https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/efa-start-nccl.html
               https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html#nccl-ib-disable
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from holdfast import text
from holdfast.analysis.logs.patterns import nccl
from holdfast.analysis.logs.patterns.rdma_devices import NO_DEVICE, NOT_FOUND
from holdfast.analysis.logs.wreckage import Wreckage
from holdfast.analysis.machine import (
    MachineFacts,
    RdmaCard,
    RdmaPort,
    known,
    rdma_evidence,
    rdma_use,
)
from holdfast.analysis.machine.rdma import NO_DRIVER, NO_LIBRARY
from holdfast.analysis.nccl_numbers import nccl_int
from holdfast.analysis.nodes import NodesFacts, differences, rdma
from holdfast.analysis.source.source import Source, SourceSetting
from holdfast.analysis.variables.in_source import (
    as_fact,
    at,
    judged,
    machines,
    may_be_of_here,
    readable,
    without,
)
from holdfast.fault import SHOWN, Fault
from holdfast.findings import Culprit, Diagnosis, Evidence, Finding

FAULT = Fault(
    code="HOLD213",
    slug="rdma-unused",
    related=("hca-name-missing", "ib-misconfig", "container-flags", "slow-nic"),
    gpus_only=True,
)
FAULT.log_patterns.extend((NO_DEVICE, NOT_FOUND))


# --- on a machine -------------------------------------------------------------------------------


@FAULT.check(needs=("rdma_cards", "rdma_ports", "settings", "software"))
def rdma_is_not_used_here(facts: MachineFacts) -> Finding:
    if why := _why_it_does_not_matter(facts):
        return FAULT.does_not_apply(why)
    off = rdma_use.switched_off(facts)
    worth = [port for port in rdma_use.admitted(facts) if rdma_use.is_worth_using(facts, port)]
    if off:
        return _switched_off(facts, off, worth)
    if rdma_use.is_efa_only(facts):
        return _efa(facts)
    cards = {card.name: card for card in known(facts.rdma_cards)}
    lacking = [cards[p.device] for p in worth if p.device in cards]
    lacking = [card for card in lacking if card.verbs_error in (NO_LIBRARY, NO_DRIVER)]
    if lacking:
        return _no_user_space(lacking, worth)
    usable = rdma_use.use(facts).ports
    if worth and usable:
        return FAULT.ok(f"NCCL uses {text.names(port.name for port in usable)}")
    return FAULT.does_not_apply(
        "the cards cannot be opened: see ib-misconfig"
        if worth
        else "no active port that NCCL's own RDMA transport can use"
    )


def _why_it_does_not_matter(facts: MachineFacts) -> str:
    if not known(facts.rdma_ports):
        return "no RDMA card is visible"
    if not facts.plan.multi_node:
        return "one node: NCCL uses no network"
    plugin = rdma_use.plugin(facts)
    return f"{plugin}: a plugin transfers the data" if plugin else ""


def _switched_off(facts: MachineFacts, off: str, worth: Sequence[RdmaPort]) -> Finding:
    if not worth:
        return FAULT.does_not_apply(f"{off}, and no RDMA port here is worth using")
    infiniband = [port for port in worth if port.link_layer == rdma_use.INFINIBAND]
    setting = facts.setting(off.partition("=")[0])
    return (FAULT.warning if infiniband else FAULT.note)(
        f"{off} prevents NCCL from using {text.names(port.name for port in worth)}",
        reason="between machines it then uses TCP, at a fraction of the speed"
        + ("" if infiniband else "; right where the network is not fit for RoCE"),
        evidence=[*([setting.evidence] if setting else []), *rdma_evidence.rates(worth)],
        fix=f"{without(setting) if setting else 'remove it'}, unless it is set to debug a problem",
    )


def _no_user_space(lacking: Sequence[RdmaCard], worth: Sequence[RdmaPort]) -> Finding:
    infiniband = any(port.link_layer == rdma_use.INFINIBAND for port in worth)
    missing = lacking[0].verbs_error == NO_LIBRARY
    what = "libibverbs is not installed" if missing else "libibverbs has no driver for the cards"
    drivers = text.names(card.driver or card.name for card in lacking)
    return (FAULT.warning if infiniband else FAULT.note)(
        f"NCCL will not use {text.names(card.name for card in lacking)}: {what}",
        reason="NCCL loads libibverbs when it starts; without it, or without the part of it for "
        f"{drivers}, it uses TCP and says so at INFO only",
        evidence=[
            Evidence(quote=f"{card.name}: {card.verbs_error}", source="libibverbs")
            for card in lacking[:SHOWN]
        ],
        fix="install it in the job's image: `apt-get install libibverbs1 ibverbs-providers`, or "
        "`dnf install libibverbs rdma-core`",
    )


def _efa(facts: MachineFacts) -> Finding:
    """NCCL reaches EFA through a plugin only."""
    plugins = known(facts.software).net_plugins
    if plugins is None:
        return FAULT.skipped("network plugins of NCCL were not looked for")
    if plugins:
        return FAULT.ok(f"NCCL finds the network plugin {plugins[0]}")
    cards = [card.name for card in known(facts.rdma_cards)]
    return FAULT.warning(
        f"no network plugin of NCCL was found, so that {text.names(cards)} (EFA) will not be used",
        reason="NCCL reaches EFA through a plugin only, and uses TCP without it. Looked for "
        "libnccl-net*.so in LD_LIBRARY_PATH, the loader's cache and the system's folders",
        evidence=[Evidence(quote=f"EFA: {', '.join(cards)}", source="/sys/class/infiniband")],
        fix="install aws-ofi-nccl, or let the loader find it: `export "
        "LD_LIBRARY_PATH=/opt/amazon/ofi-nccl/lib:$LD_LIBRARY_PATH`",
    )


@FAULT.check_nodes
def some_nodes_do_without_rdma(facts: NodesFacts) -> Finding | Sequence[Finding]:
    if len(facts.nodes) < 2:
        return FAULT.does_not_apply("one node: there is nothing to compare")
    nodes, gaps = differences.of_each(facts, rdma.of_node)
    unknown = [FAULT.skipped(gap.why, host=gap.node) for gap in gaps]
    using = {name: one for name, one in nodes.items() if one.ports}
    others = {name: one.why for name, one in nodes.items() if not one.ports}
    if not using:
        return unknown or FAULT.does_not_apply("NCCL's own RDMA transport is used on no node")
    if not others:
        return [FAULT.ok(f"NCCL uses RDMA on {text.counted(len(using), 'node')}"), *unknown]
    names = sorted(others, key=text.natural_order)
    return [
        FAULT.error(
            f"NCCL uses RDMA on {text.names(using)} and not on {text.names(names)}",
            reason="NCCL connects two nodes only if both use the same network: the job will hang "
            "or fail when they connect",
            evidence=[
                Evidence(quote=f"{name}: {others[name]}", source="RDMA cards", host=name)
                for name in names[:SHOWN]
            ],
            fix="give every node its cards and the same settings; on the nodes without: "
            "`holdfast check --nnodes 2`",
            host=names[0] if len(names) == 1 < len(using) else "",
        ),
        *unknown,
    ]


# --- in what a user wrote -----------------------------------------------------------------------


@FAULT.lint
def rdma_is_switched_off(source: Source) -> Iterator[Finding]:
    for setting in readable(source, "NCCL_IB_DISABLE", "NCCL_NET"):
        if setting.name == "NCCL_NET":
            off = setting.value.lower() == "socket"
        else:
            off = nccl_int(setting.value) != 0 and not _uses_libfabric(source)
        if off:
            yield at(_off(setting, source), setting)


def _uses_libfabric(source: Source) -> bool:
    """A plugin transfers the data, on AWS over EFA: NCCL_IB_DISABLE has no effect on it."""
    return any(s.name.startswith(("FI_", "OFI_NCCL_")) for s in judged(source))


def _off(setting: SourceSetting, source: Source) -> Finding:
    said = f"{setting.name}={setting.value}"
    count = machines(source, setting)
    cards = source.here.rdma_devices if may_be_of_here(setting, source) else None
    if cards:
        return FAULT.warning(
            f"{said} prevents NCCL from using the RDMA cards of this machine ({', '.join(cards)})",
            reason="between machines it then uses TCP, at a fraction of the speed",
            fix=f"{without(as_fact(setting))}, unless it is set to debug a problem",
        )
    speak = FAULT.warning if (count or 1) > 1 else FAULT.note
    return speak(
        f"{said} makes NCCL use TCP between machines",
        reason="where RDMA exists, it is not used, without a warning; where there is none, NCCL "
        "detects that and uses sockets by itself. Within one machine it changes nothing",
        fix=f"{without(as_fact(setting))}; it is for debugging, not for production",
    )


# --- in what is left of a job -------------------------------------------------------------------


@FAULT.explain
def requested_network_was_not_found(wreckage: Wreckage) -> Diagnosis | None:
    seen = wreckage.seen(NOT_FOUND)
    if not seen:
        return None
    wanted = seen[0].fields.get("network") or wreckage.settings.get("NCCL_NET", "")
    return FAULT.diagnosis(
        f"NCCL was told to use the network {wanted or 'set in NCCL_NET'} and did not find it: its "
        "plugin, drivers or devices are missing on this machine",
        confidence=0.75 if wreckage.settings.get("NCCL_IB_HCA") else 0.85,
        seen=seen,
        culprit=Culprit(what=f"NCCL_NET={wanted}" if wanted else "NCCL_NET"),
        fix="give the container its devices and drivers (`--device /dev/infiniband`, rdma-core; "
        "for EFA aws-ofi-nccl on LD_LIBRARY_PATH), or `unset NCCL_NET` to use TCP",
        next="ls /dev/infiniband /sys/class/infiniband",
    )


@FAULT.explain
def hosts_used_different_networks(wreckage: Wreckage) -> Diagnosis | None:
    """TCP alone is no failure; hosts that use different networks cannot connect."""
    used: dict[str, set[str]] = {}
    seen = [s for s in wreckage.seen(nccl.NET_USING) if s.fields.get("network")]
    for one in seen:
        used.setdefault(one.fields["network"], set()).add(one.line.host or str(one.rank))
    by_socket = used.pop("Socket", set())
    if wreckage.seen(NOT_FOUND) or not by_socket or not used:
        return None
    rdma, others = next(iter(used.items()))
    if others & by_socket:
        return None
    return FAULT.diagnosis(
        f"{', '.join(sorted(by_socket))} used TCP while {', '.join(sorted(others))} used {rdma}: "
        "NCCL connects only if both ends use the same network",
        confidence=0.75,
        seen=[s for s in seen if s.fields["network"] == "Socket"] + seen[:1],
        culprit=Culprit(what=sorted(by_socket)[0]),
        fix="give every machine its RDMA devices and the same NCCL settings",
        next="ls /dev/infiniband /sys/class/infiniband",
    )


@FAULT.explain
def rdma_was_switched_off(wreckage: Wreckage) -> Diagnosis | None:
    """Only with a sign that the machine has RDMA cards: without any, the setting is correct."""
    off = wreckage.settings.get("NCCL_IB_DISABLE", "")
    cards = wreckage.settings.get("NCCL_IB_HCA", "")
    sockets = [s for s in wreckage.seen(nccl.NET_USING) if s.fields.get("network") == "Socket"]
    if off != "1" or not cards or not sockets:
        return None
    return FAULT.diagnosis(
        f"NCCL_IB_DISABLE=1 prevented NCCL from using the cards of NCCL_IB_HCA={cards}: it used "
        "TCP",
        confidence=0.3,
        seen=sockets,
        culprit=Culprit(what="NCCL_IB_DISABLE=1"),
        fix="`unset NCCL_IB_DISABLE`, unless it is set on purpose",
        next="env | grep NCCL_IB",
    )
