"""NCCL_IB_HCA names no RDMA card of this machine.

What you see   `NET/IB : No device found.` on a machine that has InfiniBand, then `Using network
               Socket` and a slow job; with NCCL_NET=IB an error: `network IB not found` or
               `Failed to initialize any NET plugin`. On some machines of several only, where names
               differ.
Why            NCCL_IB_HCA takes `^` (not) and `=` (exact) once, in front of the whole list, then
               names with an optional port: `=mlx5_0:1,mlx5_1:1`. Without `=` each is a prefix:
               `mlx5_1` also means mlx5_10 to mlx5_19. Names of network interfaces (ib0, eth0) are
               not names of cards (mlx5_0). When nothing matches, NCCL says so at INFO only and goes
               on with TCP.
How to be sure `ibdev2netdev` or `ls /sys/class/infiniband` lists the names to use;
               NCCL_DEBUG=INFO prints `NCCL_IB_HCA set to …` and what was found.
Fix            Use the names of `ls /sys/class/infiniband`, or unset the variable: NCCL takes every
               active card by itself.
Sources        NVIDIA/nccl src/transport/net_ib/init.cc: NCCL_IB_HCA, No device found
               NVIDIA/nccl src/misc/utils.cc: parseStringList
               https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html#nccl-ib-hca
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from holdfast.analysis.logs.patterns.rdma_devices import NO_DEVICE, NOT_FOUND
from holdfast.analysis.logs.wreckage import Wreckage
from holdfast.analysis.machine import nic_filter
from holdfast.analysis.source.source import Source, SourceSetting
from holdfast.analysis.variables.in_source import at, is_of_here, may_be_of_here, readable
from holdfast.fault import Fault
from holdfast.findings import Culprit, Diagnosis, Finding

FAULT = Fault(code="HOLD212", slug="hca-name-missing")

HCA = "NCCL_IB_HCA"
NETDEV = re.compile(r"(?:ib|eth|bond)\d+(?:\.\d+)?|en[opsx]\w+|lo|docker\d+")
"""names of network interfaces that no RDMA card bears by default"""
FAMILY = re.compile(r"(?:mlx[45]?|bnxt_re|efa|irdma|hfi1?|hns|erdma|ionic|rdmap|rocep?|rxe)_?")
"""the part of a card's name that all cards of one driver share"""


# --- in what a user wrote -----------------------------------------------------------------------


@FAULT.lint
def cards_are_misnamed(source: Source) -> Iterator[Finding]:
    for setting in readable(source, HCA):
        if setting.value:
            finding = (
                _miswritten(setting)
                or _interface_names(setting)
                or _not_here(setting, source)
                or _pins_nothing(setting)
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
        f"{HCA}={setting.value}: {wrong[0]!r} can match no card",
        reason="`^` and `=` count once, in front of the whole list, and blanks are kept",
        fix=f"`{HCA}='{sign}{','.join(e for e in entries if e)}'`",
    )


def _interface_names(setting: SourceSetting) -> Finding | None:
    names = nic_filter.read_nccl(setting.value).names
    wrong = [name for name in names if NETDEV.fullmatch(name)]
    if not wrong:
        return None
    return FAULT.warning(
        f"{HCA}={setting.value}: {wrong[0]} is the name of a network interface, not of a card",
        reason="where no card is called so, NCCL finds no RDMA and goes by TCP without a warning",
        fix="use the names of `ls /sys/class/infiniband`, such as `NCCL_IB_HCA==mlx5_0:1`; the "
        "interface for sockets is NCCL_SOCKET_IFNAME",
    )


def _not_here(setting: SourceSetting, source: Source) -> Finding | None:
    cards = source.here.rdma_devices
    if not cards or not may_be_of_here(setting, source):
        return None  # a machine without RDMA says nothing about the one meant
    wanted = nic_filter.read_nccl(setting.value)
    if any(map(wanted.admits, cards)):
        return None
    speak = FAULT.warning if is_of_here(source) else FAULT.note
    return speak(
        f"{HCA}={setting.value} matches no card of this machine",
        reason=f"it has {', '.join(cards)}; NCCL would find no RDMA and go by TCP",
        fix=f"`{HCA}=={cards[0]}:1`, or remove it: NCCL takes every active card by itself",
    )


def _pins_nothing(setting: SourceSetting) -> Finding | None:
    wanted = nic_filter.read_nccl(setting.value)
    wide = [name for name in wanted.names if FAMILY.fullmatch(name)]
    if wanted.exclude or not wide:
        return None
    if wanted.exact:
        return FAULT.warning(
            f"{HCA}={setting.value} asks for a card that is called exactly {wide[0]}",
            reason="`=` takes no prefixes, and cards have numbers: mlx5_0, mlx5_1. Where none is "
            "called so, NCCL goes by TCP without a warning",
            fix="use the names of `ls /sys/class/infiniband`: `NCCL_IB_HCA==mlx5_0:1,mlx5_1:1`",
        )
    return FAULT.note(
        f"{HCA}={setting.value} pins nothing: as a prefix it matches every {wide[0]} card",
        reason="that is what NCCL takes by itself; cards that serve storage, or ports that are not "
        "meant for the job, are in as well",
        fix=f"name cards and ports, `{HCA}==mlx5_0:1,mlx5_1:1`, or remove it",
    )


# --- in what is left of a job -------------------------------------------------------------------


@FAULT.explain
def the_filter_leaves_no_card(wreckage: Wreckage) -> Diagnosis | None:
    value = wreckage.settings.get("NCCL_IB_HCA", "")
    seen = wreckage.seen(NO_DEVICE, NOT_FOUND)
    if not value or not seen:
        return None
    netdev = value.lstrip("^=").startswith(("ib", "eth", "en", "bond"))
    stopped = wreckage.seen(NOT_FOUND)
    return FAULT.diagnosis(
        f"NCCL_IB_HCA={value} leaves NCCL no RDMA card"
        + (": that is the name of a network interface, not of a card" if netdev else "")
        + ("" if stopped else "; it went on over TCP without an error"),
        confidence=0.85 if stopped and netdev else 0.7 if stopped or netdev else 0.45,
        seen=seen,
        culprit=Culprit(what=f"NCCL_IB_HCA={value}", host=seen[0].line.host),
        fix="use the names of `ls /sys/class/infiniband`, or `unset NCCL_IB_HCA`",
        next="ls /sys/class/infiniband",
        unknown=["which cards the machine has: the log does not list them"],
    )
