"""RDMA is available, but NCCL does not use it.

What you see   `NET/IB : No device found.` and `Using network Socket` with NCCL_DEBUG=INFO on a
               machine with InfiniBand, RoCE or EFA: the job runs at a fraction of its speed and may
               hit its timeouts. Where RDMA was demanded (NCCL_NET), an error: `network IB not
               found`. Where only some machines lack it, the job hangs or fails when they connect.
Why            NCCL_IB_DISABLE=1 left over from debugging another problem; a container without
               /dev/infiniband or without the user-space drivers (`Failed to open libibverbs.so`); a
               plugin that is not on LD_LIBRARY_PATH. NCCL falls back to TCP without a warning.
How to be sure `ls /dev/infiniband /sys/class/infiniband` inside the job's container; `env | grep
               NCCL`; NCCL_DEBUG=INFO on every machine: all must use the same network.
Fix            `unset NCCL_IB_DISABLE`; run the container with `--device /dev/infiniband` and
               rdma-core installed; for EFA install the aws-ofi-nccl plugin. Set NCCL_NET=IB to fail
               at once instead of running slowly.
Known limits   A log shows that TCP was used, not that the machine has RDMA cards; without another
               sign of cards nothing is said. There is no check face.
Sources        NVIDIA/nccl src/transport/net_ib/init.cc: No device found
               NVIDIA/nccl src/plugin/net.cc: Failed to initialize any NET plugin
               NVIDIA/nccl src/plugin/net.cc at v2.18.6-1: network … not found
               https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html#nccl-ib-disable
"""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.analysis.logs.patterns import nccl
from holdfast.analysis.logs.patterns.rdma_devices import NO_DEVICE, NOT_FOUND
from holdfast.analysis.logs.wreckage import Wreckage
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
from holdfast.analysis.variables.parsing import nccl_int
from holdfast.fault import Fault
from holdfast.findings import Culprit, Diagnosis, Finding

FAULT = Fault(
    code="HOLD213",
    slug="rdma-unused",
    related=("hca-name-missing", "ib-misconfig", "container-flags", "slow-nic"),
)
FAULT.log_patterns.extend((NO_DEVICE, NOT_FOUND))


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
