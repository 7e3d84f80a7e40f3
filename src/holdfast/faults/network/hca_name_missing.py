"""NCCL_IB_HCA matches no RDMA card of this machine.

What you see   `NET/IB : No device found.` on a machine that has InfiniBand, then `Using network
               Socket` and a slow job; with NCCL_NET=IB an error: `network IB not found` or
               `Failed to initialize any NET plugin`. On some machines of several only, where names
               differ.
Why            NCCL_IB_HCA takes `^` (not) and `=` (exact) once, in front of the whole list, then
               names with an optional port: `=mlx5_0:1,mlx5_1:1`. Without `=` each name is a prefix:
               `mlx5_1` also means mlx5_10 to mlx5_19. Names of network interfaces (ib0, eth0) are
               not names of cards (mlx5_0). When nothing matches, NCCL says so at INFO only and uses
               TCP.
How to be sure `ibdev2netdev` or `ls /sys/class/infiniband` lists the names to use;
               NCCL_DEBUG=INFO prints `NCCL_IB_HCA set to …` and what was found. `holdfast check`
               reads the value as NCCL does and compares it with the ports of this machine.
Fix            Use the names that `ls /sys/class/infiniband` lists, or unset the variable: NCCL then
               uses every active card.
Known limits   `lint` compares the value with the cards of the machine it runs on, and only if that
               has any. A log does not list the cards of the machine.
Sources        NVIDIA/nccl src/transport/net_ib/init.cc: NCCL_IB_HCA, No device found
               NVIDIA/nccl src/misc/utils.cc: parseStringList
               https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html#nccl-ib-hca
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from holdfast import shell_words, text
from holdfast.analysis.logs.patterns.rdma_devices import NO_DEVICE, NOT_FOUND
from holdfast.analysis.logs.wreckage import Wreckage
from holdfast.analysis.machine import (
    MachineFacts,
    Setting,
    Software,
    Unread,
    hca_choice,
    known,
    nic_filter,
    rdma_use,
)
from holdfast.analysis.machine.hca_choice import HCA, HcaChoice
from holdfast.analysis.source.source import Source, SourceSetting
from holdfast.analysis.variables.in_source import (
    as_fact,
    at,
    is_of_here,
    may_be_of_here,
    put,
    readable,
    without,
)
from holdfast.fault import Fault
from holdfast.findings import Culprit, Diagnosis, Evidence, Finding

FAULT = Fault(
    code="HOLD212",
    slug="hca-name-missing",
    related=("rdma-unused", "nic-name-missing", "ib-misconfig"),
    gpus_only=True,
)

INTERFACE_NAME = re.compile(r"(?:ib|eth|bond)\d+(?:\.\d+)?|en[opsx]\w+|lo|docker\d+")
"""names of network interfaces that no RDMA card has by default"""
DRIVER_PREFIX = re.compile(
    r"(?:mlx[45]?|bnxt_re|efa|irdma|hfi1?|hns|erdma|ionic|rdmap|rocep?|rxe)_?"
)
"""the part of a card's name that all cards of one driver have in common"""


@FAULT.check(needs=("rdma_cards", "rdma_ports", "settings", "software"))
def hca_filter_on_this_machine(facts: MachineFacts) -> Finding | list[Finding]:
    setting = facts.setting(HCA)
    if setting is None or not setting.value:
        return FAULT.does_not_apply(f"{HCA} is not set: NCCL uses every active port")
    if off := rdma_use.switched_off(facts):
        return FAULT.does_not_apply(f"{off}: NCCL uses no RDMA")
    ports = known(facts.rdma_ports)
    if not ports:
        return _no_device(facts, setting)
    if not isinstance(facts.rdma_cards, Unread) and rdma_use.is_efa_only(facts):
        return FAULT.does_not_apply(f"all cards are EFA: its plugin for NCCL does not read {HCA}")
    choice = hca_choice.choose(ports, setting.value)
    evidence = [setting.evidence, _ports_here(facts)]
    if not choice.taken:
        return _takes_nothing(facts, setting, choice, evidence)
    problems = [*_less_than_meant(facts, setting, choice, evidence)]
    problems += [*_more_than_meant(setting, choice, evidence)]
    taken = ", ".join(f"{port.name} ({port.link_layer})" for port in choice.taken)
    return problems or FAULT.ok(f"{HCA}={setting.value} selects {taken}")


def _no_device(facts: MachineFacts, setting: Setting) -> Finding:
    """NCCL ignores the filter then; on one machine it does not matter."""
    no_nccl = isinstance(facts.software, Software) and not facts.software.nccl
    if not facts.plan.multi_node or no_nccl:
        return FAULT.does_not_apply(f"this machine has no RDMA device: NCCL ignores {HCA}")
    return FAULT.note(
        f"{HCA}={setting.value} has no effect here: this machine has no RDMA device",
        reason="NCCL ignores the filter and uses TCP. If the machine has InfiniBand or RoCE cards, "
        "their driver is not loaded, or this container does not see them",
        evidence=[setting.evidence],
        fix=without(setting),
    )


def _takes_nothing(
    facts: MachineFacts, setting: Setting, choice: HcaChoice, evidence: list[Evidence]
) -> Finding:
    network = facts.setting("NCCL_NET")
    demanded = network is not None and network.value.upper() == "IB"
    speak = FAULT.error if demanded else FAULT.warning if facts.plan.multi_node else FAULT.note
    what = (
        f"selects only ports that are not active ({', '.join(p.name for p in choice.inactive)})"
        if choice.inactive
        else "matches no RDMA port of this machine"
    )
    return speak(
        f"{HCA}={setting.value} {what}",
        reason="NCCL_NET=IB demands RDMA: every rank here will fail at its start"
        if demanded
        else "NCCL finds no RDMA, says so at INFO only and uses TCP between machines",
        evidence=evidence,
        fix=_better(facts, setting),
    )


def _less_than_meant(
    facts: MachineFacts, setting: Setting, choice: HcaChoice, evidence: list[Evidence]
) -> Iterator[Finding]:
    named = [] if setting.value.startswith("^") else [port.name for port in choice.inactive]
    missing = [*choice.unknown, *named]
    if missing:
        speak = FAULT.warning if facts.plan.multi_node else FAULT.note
        why = "not active" if not choice.unknown else "not on this machine"
        yield speak(
            f"{HCA}={setting.value}: {', '.join(missing)} {why}",
            reason=f"NCCL uses {', '.join(p.name for p in choice.taken)} only, without a warning; "
            "a node with fewer ports slows the whole job down",
            evidence=evidence,
            fix=_better(facts, setting),
        )


def _more_than_meant(
    setting: Setting, choice: HcaChoice, evidence: list[Evidence]
) -> Iterator[Finding]:
    for name, longer in choice.widened:
        yield FAULT.note(
            f"{HCA}={setting.value}: {name} is a prefix and selects {', '.join(longer)} as well",
            reason="without `=` in front of the list every name is a prefix",
            evidence=evidence,
            fix=f"write `{shell_words.setting(HCA, f'={setting.value}')}` if only "
            f"{text.name(name)} is meant",
        )
    layers = {port.link_layer for port in choice.taken}
    if len(layers) > 1:
        yield FAULT.note(
            f"{HCA}={setting.value} selects ports of {' and '.join(sorted(layers))}",
            reason="one of them is usually a storage or management card; the other machines must "
            "reach both",
            evidence=evidence,
            fix=f"name the ports of one kind: `{HCA}==DEVICE:PORT`",
        )


def _ports_here(facts: MachineFacts) -> Evidence:
    ports = "; ".join(f"{p.name} {p.state} {p.link_layer}" for p in known(facts.rdma_ports))
    return Evidence(quote=f"here: {ports}", source="/sys/class/infiniband")


def _better(facts: MachineFacts, setting: Setting) -> str:
    active = [p.name for p in known(facts.rdma_ports) if p.state == hca_choice.ACTIVE]
    if not active:
        return f"{without(setting)}, and bring a port up: `ibstat` shows their state"
    return (
        f"`export {shell_words.setting(HCA, '=' + ','.join(active))}` (the active ports), or "
        f"{without(setting)}"
    )


# --- in what a user wrote -----------------------------------------------------------------------


@FAULT.lint
def hca_filter_is_wrong(source: Source) -> Iterator[Finding]:
    for setting in readable(source, HCA):
        if setting.value:
            finding = (
                _miswritten(setting)
                or _interface_names(setting)
                or _not_here(setting, source)
                or _selects_nothing(setting)
            )
            if finding:
                yield at(finding, setting)


def _miswritten(setting: SourceSetting) -> Finding | None:
    wanted = nic_filter.read_nccl(setting.value)
    wrong = [n for n in wanted.names if n[0] in "^=!" or not nic_filter.is_possible_name(n)]
    if not wrong:
        return None
    sign = "^" * wanted.exclude + "=" * wanted.exact
    entries = [e.strip().lstrip("^=!") for e in setting.value.split(",")]
    return FAULT.warning(
        f"{HCA}={setting.value}: {wrong[0]!r} cannot match any card",
        reason="`^` and `=` are allowed once, in front of the whole list, and blanks are part of "
        "the name",
        fix=f"write {put(as_fact(setting), HCA, sign + ','.join(e for e in entries if e))}",
    )


def _interface_names(setting: SourceSetting) -> Finding | None:
    names = nic_filter.read_nccl(setting.value).names
    wrong = [name for name in names if INTERFACE_NAME.fullmatch(name)]
    if not wrong:
        return None
    return FAULT.warning(
        f"{HCA}={setting.value}: {wrong[0]} is the name of a network interface, not of a card",
        reason="if no card has that name, NCCL finds no RDMA and uses TCP without a warning",
        fix="use the names that `ls /sys/class/infiniband` lists, such as `NCCL_IB_HCA==mlx5_0:1`; "
        "for the socket interface set NCCL_SOCKET_IFNAME",
    )


def _not_here(setting: SourceSetting, source: Source) -> Finding | None:
    cards = source.here.rdma_devices
    if not cards or not may_be_of_here(setting, source):
        return None  # a machine without RDMA tells nothing about the target machine
    wanted = nic_filter.read_nccl(setting.value)
    if any(map(wanted.admits, cards)):
        return None
    speak = FAULT.warning if is_of_here(source) else FAULT.note
    return speak(
        f"{HCA}={setting.value} matches no card of this machine",
        reason=f"it has {', '.join(cards)}; NCCL would find no RDMA and use TCP",
        fix=f"set `{shell_words.setting(HCA, f'={cards[0]}:1')}`, or remove it: NCCL then uses "
        "every active card",
    )


def _selects_nothing(setting: SourceSetting) -> Finding | None:
    wanted = nic_filter.read_nccl(setting.value)
    wide = [name for name in wanted.names if DRIVER_PREFIX.fullmatch(name)]
    if wanted.exclude or not wide:
        return None
    if wanted.exact:
        return FAULT.warning(
            f"{HCA}={setting.value} asks for a card named exactly {wide[0]}",
            reason="`=` matches whole names, and cards are numbered: mlx5_0, mlx5_1. If none has "
            "that name, NCCL uses TCP without a warning",
            fix="use the names that `ls /sys/class/infiniband` lists: "
            "`NCCL_IB_HCA==mlx5_0:1,mlx5_1:1`",
        )
    return FAULT.note(
        f"{HCA}={setting.value} selects nothing: as a prefix it matches every {wide[0]} card",
        reason="NCCL uses those by default; cards for storage, or ports that are not meant for the "
        "job, are included as well",
        fix=f"name cards and ports (`{HCA}==mlx5_0:1,mlx5_1:1`), or remove it",
    )


# --- in what is left of a job -------------------------------------------------------------------


@FAULT.explain
def hca_filter_matched_no_card(wreckage: Wreckage) -> Diagnosis | None:
    value = wreckage.settings.get("NCCL_IB_HCA", "")
    seen = wreckage.seen(NO_DEVICE, NOT_FOUND)
    if not value or not seen:
        return None
    netdev = value.lstrip("^=").startswith(("ib", "eth", "en", "bond"))
    stopped = wreckage.seen(NOT_FOUND)
    mistake = ": it names a network interface, not a card" if netdev else ""
    consequence = "" if stopped else "; NCCL used TCP instead, without an error"
    return FAULT.diagnosis(
        f"NCCL_IB_HCA={value} matched no RDMA card{mistake}{consequence}",
        confidence=0.85 if stopped and netdev else 0.7 if stopped or netdev else 0.45,
        seen=seen,
        culprit=Culprit(what=f"NCCL_IB_HCA={value}", host=seen[0].line.host),
        fix="use the names that `ls /sys/class/infiniband` lists, or `unset NCCL_IB_HCA`",
        next="ls /sys/class/infiniband",
        unknown=["which cards the machine has: the log does not list them"],
    )
