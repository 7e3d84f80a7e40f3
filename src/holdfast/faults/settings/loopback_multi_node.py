"""Loopback is selected for a job that spans machines.

What you see   Several machines: the ranks hang at the first collective, or NCCL prints `Connection
               refused` for 127.0.0.1; NCCL before 2.24 prints `Software caused connection abort`.
               One machine: nothing, it works.
Why            NCCL_SOCKET_IFNAME=lo or GLOO_SOCKET_IFNAME=lo makes each rank announce 127.0.0.1 as
               its address. A rank on another machine that connects there reaches itself, not its
               peer. Guides for one machine call the setting 'required'; it never is: on one machine
               NCCL uses NVLink, PCI or shared memory and picks an interface by itself.
How to be sure NCCL_DEBUG=INFO prints `Bootstrap: Using lo:127.0.0.1<0>` (`Bootstrap : Using` up to
               NCCL 2.23).
Fix            `unset NCCL_SOCKET_IFNAME GLOO_SOCKET_IFNAME`, or set the interface that reaches the
               other machines: `ip route get ADDRESS_OF_ANOTHER_NODE` shows it.
Known limits   The check knows the number of nodes from its options and the environment; without
               them it assumes one machine and gives a note.
Sources        NVIDIA/nccl docs/userguide/source/env.rst (NCCL_SOCKET_IFNAME), src/misc/socket.cc
               https://github.com/NVIDIA/nccl/issues/1515
               pytorch/gloo gloo/transport/tcp/device.cc
"""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.analysis.logs.patterns import connections, peers, watchdog
from holdfast.analysis.logs.wreckage import Wreckage
from holdfast.analysis.machine import (
    CouldNotLook,
    MachineFacts,
    Setting,
    addresses,
    gloo_choice,
    known,
    nccl_choice,
    nic_filter,
)
from holdfast.analysis.source.source import Source
from holdfast.analysis.variables.in_source import as_fact, at, machines, readable, without
from holdfast.fault import Fault
from holdfast.findings import Culprit, Diagnosis, Finding

FAULT = Fault(
    code="HOLD508",
    slug="loopback-multi-node",
    related=("wrong-nic", "nic-filter-syntax", "wrong-master-address", "hostname-misresolves"),
)


@FAULT.check(needs=("interfaces", "master_name", "own_name", "settings", "software"))
def loopback_is_selected(facts: MachineFacts) -> Finding | list[Finding]:
    known(facts.settings)
    named = [s for s in map(facts.setting, (nic_filter.NCCL, nic_filter.GLOO)) if s]
    if not named:
        return FAULT.does_not_apply("NCCL_SOCKET_IFNAME and GLOO_SOCKET_IFNAME are not set")
    loopback = [s for s in named if _selects_loopback(s) and _takes_loopback(s, facts) is not False]
    if not loopback:
        return FAULT.ok(", ".join(f"{s.name}={s.value} does not select lo" for s in named))
    return [
        _across_machines(
            setting, facts.plan.max_nodes, certain=_takes_loopback(setting, facts) is True
        )
        if facts.plan.multi_node
        else _on_one_machine(setting)
        for setting in loopback
    ]


def _takes_loopback(setting: Setting, facts: MachineFacts) -> bool | None:
    """By the rules of the installed version; None where that cannot be told."""
    try:
        choice = (
            gloo_choice.choose(facts)
            if setting.name == nic_filter.GLOO
            else nccl_choice.sockets(facts)
        )
    except CouldNotLook:
        return None
    # Gloo uses every interface of the list in turn. NCCL announces the first; when another is
    # first, lo is still used for data.
    return choice.error == "" and any(addresses.is_loopback(one.address) for one in choice.taken)


def _selects_loopback(setting: Setting) -> bool:
    """Is lo selected by name? (That `^docker0` admits it is reported by wrong-nic.)"""
    if nic_filter.is_ignored(setting.value):
        return False
    if setting.name == nic_filter.GLOO:
        names = nic_filter.read_gloo(setting.value)
        # A name in NCCL's syntax is not an interface for Gloo, which then fails to start.
        return "lo" in names and not any(name.startswith(("^", "=")) for name in names)
    chosen = nic_filter.read_nccl(setting.value)
    return bool(chosen.names) and not chosen.exclude and chosen.admits("lo")


def _program(setting: Setting) -> str:
    return "NCCL" if setting.name == nic_filter.NCCL else "Gloo"


def _on_one_machine(setting: Setting) -> Finding:
    return FAULT.note(
        f"{setting.name}={setting.value} is not needed on one machine",
        reason=f"{_program(setting)} chooses its interface by itself; the setting breaks the job "
        "as soon as a second machine joins",
        evidence=[setting.evidence],
        fix=without(setting),
    )


def _across_machines(setting: Setting, count: int, *, certain: bool = False) -> Finding:
    """`certain`: the interfaces of this machine are known, and lo is taken."""
    sure = certain or setting.value.lstrip("=") == "lo"
    speak = FAULT.error if sure else FAULT.warning
    doubt = (
        ""
        if sure
        else "; whether it uses lo or another interface of the list depends on their order"
    )
    return speak(
        f"{setting.name}={setting.value} selects loopback for a job on up to {count} machines",
        reason=f"{_program(setting)} announces 127.0.0.1, which on another machine is that machine "
        f"itself{doubt}",
        evidence=[setting.evidence],
        fix=f"{without(setting)}, or set the interface that `ip route get` shows for a peer",
    )


# --- in what a user wrote -----------------------------------------------------------------------


@FAULT.lint
def script_selects_loopback(source: Source) -> Iterator[Finding]:
    for setting in readable(source, nic_filter.NCCL, nic_filter.GLOO):
        fact = as_fact(setting)
        if not _selects_loopback(fact):
            continue
        count = machines(source, setting) or 1
        finding = _across_machines(fact, count) if count > 1 else _on_one_machine(fact)
        yield at(finding, setting)


# --- in what is left of a job -------------------------------------------------------------------


@FAULT.explain
def ranks_connected_to_themselves(wreckage: Wreckage) -> Diagnosis | None:
    chosen = [
        Setting(name=name, value=wreckage.settings[name], origin="log")
        for name in (nic_filter.NCCL, nic_filter.GLOO)
        if name in wreckage.settings
    ]
    chosen = [setting for setting in chosen if _selects_loopback(setting)]
    failed = connections.attempts(wreckage, connections.NCCL, connections.GLOO)
    waited = wreckage.seen(
        watchdog.WATCHDOG, watchdog.GLOO_MESH, watchdog.STORE_GET, peers.NCCL_REMOTE
    )
    several = len(wreckage.hosts) > 1
    if not chosen or not (failed or (waited and several)):
        return None
    said = f"{chosen[0].name}={chosen[0].value}"
    return FAULT.diagnosis(
        f"{said} made every rank announce 127.0.0.1, which on another machine is that machine "
        "itself: the ranks connected to themselves instead of their peers",
        confidence=0.9 if several else 0.65,
        seen=[*(one.seen for one in failed), *waited],
        culprit=Culprit(what=said),
        fix=f"`unset {chosen[0].name}`, or set it to the interface that reaches the other machines",
        next="ip -br address",
    )
