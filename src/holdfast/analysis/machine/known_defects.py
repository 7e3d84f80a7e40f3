"""Defects of released versions of NCCL and torch, and whether this machine meets their conditions.

Only what its authors confirmed or fixed, each with its reference. Read for it: the release notes of
NCCL 2.18 to 2.29.3 and 2.31.2, the sources up to 2.31 where a range was in doubt, and the notes of
torch's bug-fix releases 2.2.1, 2.7.1, 2.9.1 and 2.12.1. Not read in full (as of 2026-11-16): NCCL
2.30, 2.32.3 and 2.32.6, torch 2.13 to 2.15 with 2.14.1.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import msgspec

from holdfast.analysis.machine.fact import known
from holdfast.analysis.machine.machine import MachineFacts
from holdfast.analysis.versions import release

Version = tuple[int, ...]
GRACE_BLACKWELL = re.compile(r"\bGB[23]00\b")
WITHOUT_NUMA = ("docker", "podman", "kubernetes")
"""containers whose default rules forbid the calls for NUMA"""
NOTES = "https://github.com/NVIDIA/nccl/releases/tag/v{}-1"


class KnownDefect(msgspec.Struct, frozen=True, kw_only=True):
    product: str
    """'NCCL' or 'torch'"""
    since: Version
    fixed_in: Version
    """the first version without it; () while it is open"""
    what: str
    source: str
    here: Callable[[MachineFacts], bool] | None = None
    """does the machine, or the job as planned, meet its condition; None: only the script knows"""
    depends: str = ""
    """what in the script it depends on; with `here` as well, both must be"""
    workaround: str = ""

    def affects(self, version: Version) -> bool:
        return self.since <= version and (not self.fixed_in or version < self.fixed_in)


def nccl_in_use(facts: MachineFacts) -> Version:
    """Of the library that the loader takes; () where there is none, or its file does not tell."""
    libraries = known(facts.software).nccl
    return release(libraries[0].version) if libraries else ()


def _multi_node_on_arm(facts: MachineFacts) -> bool:
    return facts.plan.multi_node and known(facts.pci).cpu_architecture == "aarch64"


def _has_blackwell(facts: MachineFacts) -> bool:
    return any(gpu.architecture == "blackwell" for gpu in known(facts.nvidia).gpus)


def _has_rtx_blackwell(facts: MachineFacts) -> bool:
    gpus = known(facts.nvidia).gpus
    return any(gpu.architecture == "blackwell" and "RTX" in gpu.name for gpu in gpus)


def _has_b200(facts: MachineFacts) -> bool:
    return any(name in gpu.name for gpu in known(facts.nvidia).gpus for name in ("B100", "B200"))


def _large_nvlink_domain(facts: MachineFacts) -> bool:
    """NVLink that spans machines, and more ranks than the defect needs."""
    clusters = (gpu.fabric.cluster for gpu in known(facts.nvidia).gpus if gpu.fabric)
    joined = any(cluster.strip("0-") for cluster in clusters)
    return joined and facts.plan.nproc * facts.plan.max_nodes > 80


def _peermem_unseen(facts: MachineFacts) -> bool:
    direct = known(facts.gpu_direct)
    only_new_sign = bool(direct.peermem) and not direct.memory_peers
    return facts.plan.multi_node and only_new_sign and direct.dmabuf is not True


def _cumem_in_a_container(facts: MachineFacts) -> bool:
    setting = facts.setting("NCCL_CUMEM_HOST_ENABLE")
    switched_off = setting is not None and setting.value.strip() == "0"
    new_driver = release(known(facts.nvidia).cuda) >= (12, 6)
    return known(facts.container).kind in WITHOUT_NUMA and new_driver and not switched_off


def _non_blocking_by_default(facts: MachineFacts) -> bool:
    return facts.setting("TORCH_NCCL_USE_COMM_NONBLOCKING") is None


def _grace_without_gpu_direct(facts: MachineFacts) -> bool:
    setting = facts.setting("NCCL_NET_GDR_LEVEL")
    off = setting is not None and setting.value in ("LOC", "0")
    return off and any(GRACE_BLACKWELL.search(gpu.name) for gpu in known(facts.nvidia).gpus)


def _always(_: MachineFacts) -> bool:
    return True


DEFECTS = (
    KnownDefect(
        product="NCCL",
        since=(2, 28, 9),
        fixed_in=(2, 29, 3),
        what="loses slots of its network queue on ARM and then hangs: all GPUs at 100 %, no error",
        here=_multi_node_on_arm,
        source=NOTES.format("2.29.3") + ", https://github.com/marin-community/marin/pull/8038",
    ),
    KnownDefect(
        product="NCCL",
        since=(2, 0),
        fixed_in=(2, 25, 1),
        what="has no code for Blackwell GPUs",
        here=_has_blackwell,
        source=NOTES.format("2.25.1"),
    ),
    KnownDefect(
        product="NCCL",
        since=(2, 25, 1),
        fixed_in=(2, 26, 2),
        what="requests more shared memory per block than RTX GPUs of Blackwell have",
        here=_has_rtx_blackwell,
        source="https://github.com/NVIDIA/nccl/issues/1637",
    ),
    KnownDefect(
        product="NCCL",
        since=(2, 25, 1),
        fixed_in=(2, 26, 2),
        what="may hang when torch aborts a communicator, so a failed job hangs instead of ending",
        here=_always,
        source="https://github.com/pytorch/pytorch/issues/149153",
    ),
    KnownDefect(
        product="NCCL",
        since=(2, 25, 1),
        fixed_in=(2, 26, 5),
        what="may hang in all-to-all patterns of more than 80 ranks that NVLink joins across nodes",
        here=_large_nvlink_domain,
        source=NOTES.format("2.26.5"),
    ),
    KnownDefect(
        product="NCCL",
        since=(2, 0),
        fixed_in=(2, 23, 4),
        what="does not recognise nvidia-peermem on this kernel, so GPUDirect RDMA is silently off",
        here=_peermem_unseen,
        source="https://github.com/NVIDIA/nccl/issues/1676",
    ),
    KnownDefect(
        product="NCCL",
        since=(2, 24, 3),
        fixed_in=(2, 26, 3),
        what="allocates host memory in a way that fails in containers without NUMA support",
        here=_cumem_in_a_container,
        workaround="start the container with `--cap-add SYS_NICE`, or "
        "`export NCCL_CUMEM_HOST_ENABLE=0`",
        source=NOTES.format("2.26.3"),
    ),
    KnownDefect(
        product="NCCL",
        since=(2, 27, 3),
        fixed_in=(2, 29, 2),
        what="hangs on Grace Blackwell machines with ConnectX-8 when GPUDirect is disabled",
        here=_grace_without_gpu_direct,
        workaround="`unset NCCL_NET_GDR_LEVEL`",
        source=NOTES.format("2.29.2"),
    ),
    KnownDefect(
        product="NCCL",
        since=(2, 20, 3),
        fixed_in=(2, 20, 5),
        what="gives two communicators of a process the same local socket",
        depends="ncclCommSplit",
        source="https://github.com/NVIDIA/nccl/issues/1185",
    ),
    KnownDefect(
        product="NCCL",
        since=(2, 20, 3),
        fixed_in=(2, 22, 3),
        what="hangs when CUDA graphs of several communicators are launched",
        depends="CUDA graphs",
        source="https://github.com/NVIDIA/nccl/issues/1251",
    ),
    KnownDefect(
        product="NCCL",
        since=(2, 27, 3),
        fixed_in=(2, 28, 7),
        what="may corrupt small messages of symmetric memory",
        depends="symmetric memory",
        source=NOTES.format("2.28.7"),
    ),
    KnownDefect(
        product="NCCL",
        since=(2, 27, 3),
        fixed_in=(2, 31, 2),
        what="corrupts data when several symmetric windows share one allocation",
        depends="symmetric memory",
        source="https://github.com/NVIDIA/nccl/issues/2198",
    ),
    KnownDefect(
        product="NCCL",
        since=(2, 28, 3),
        fixed_in=(2, 31, 2),
        what="hangs in the first copy-engine collective of two ranks",
        depends="copy-engine collectives",
        source="https://github.com/NVIDIA/nccl/issues/2241",
    ),
    KnownDefect(
        product="NCCL",
        since=(2, 24, 3),
        fixed_in=(2, 27, 3),
        what="crashes when RAS is asked while a communicator is being made",
        depends="RAS",
        workaround="`export NCCL_RAS_ENABLE=0`",
        source="https://github.com/NVIDIA/nccl/issues/1669",
    ),
    KnownDefect(
        product="NCCL",
        since=(2, 27, 3),
        fixed_in=(),
        what="may crash when RAS is asked while a communicator is being made beside others",
        depends="RAS",
        workaround="`export NCCL_RAS_ENABLE=0`",
        source="https://github.com/NVIDIA/nccl/issues/2346",
    ),
    KnownDefect(
        product="torch",
        since=(2, 7, 0),
        fixed_in=(2, 7, 1),
        what="makes communicators non-blocking where init_process_group gets a device_id, in which "
        "NCCL 2.26 hangs at random",
        here=_non_blocking_by_default,
        depends="device_id",
        workaround="`export TORCH_NCCL_USE_COMM_NONBLOCKING=0`",
        source="https://github.com/pytorch/pytorch/issues/153960",
    ),
    KnownDefect(
        product="torch",
        since=(2, 12, 0),
        fixed_in=(2, 12, 1),
        what="brings a Triton with which compiled convolutions crash in their backward pass on "
        "B100 and B200 (illegal memory access)",
        here=_has_b200,
        depends="compiled convolutions",
        source="https://github.com/pytorch/pytorch/issues/187081",
    ),
    KnownDefect(
        product="torch",
        since=(2, 6, 0),
        fixed_in=(2, 7, 0),
        what="loads state dicts of FSDP2 wrongly",
        depends="FSDP2",
        source="https://github.com/NVIDIA-NeMo/RL/issues/680",
    ),
    KnownDefect(
        product="torch",
        since=(2, 2, 0),
        fixed_in=(2, 2, 1),
        what="computes silently wrong results with DTensor",
        depends="DTensor",
        source="https://github.com/pytorch/pytorch/releases/tag/v2.2.1",
    ),
)
