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

from holdfast.fault import Fault
from holdfast.faults.rdma_unused import NO_DEVICE, NOT_FOUND
from holdfast.model import Culprit, Diagnosis
from holdfast.remains.nouns import Wreckage

FAULT = Fault(code="HOLD212", slug="hca-name-missing")


@FAULT.recognise
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
