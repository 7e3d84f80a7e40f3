"""Network cards cannot read GPU memory by themselves, so all traffic goes through host memory.

What you see   A job on several machines with InfiniBand or RoCE runs at a fraction of its speed, in
               one case a tenth. With NCCL_DEBUG=INFO and NCCL_DEBUG_SUBSYS=INIT,NET: `GPU Direct
               RDMA Disabled for HCA`, and channels `via NET/IB/0` without `/GDRDMA`.
Why            GPUDirect RDMA needs either the module nvidia-peermem, which must be loaded at every
               start of the machine, or DMA-BUF: NVIDIA's open kernel module on Linux 5.12 or newer,
               and NCCL_DMABUF_ENABLE not 0. Without either, NCCL copies through host memory and
               does not warn.
How to be sure `lsmod | grep peermem` shows nothing, and `cat /proc/driver/nvidia/version` does not
               say `Open Kernel Module`.
Fix            `sudo modprobe nvidia-peermem`, on every machine and at every start (a file in
               /etc/modules-load.d), or install the open kernel modules of the driver.
Known limits   Whether the driver exports DMA-BUF is concluded from the kind of its module and the
               kernel's release; whether the card's driver can import it is not looked at. Cards of
               AWS (EFA) have ways of their own and are left out.
Sources        NVIDIA/nccl src/transport/net_ib/gdr.cc: the files by which the module is recognised
               NVIDIA/nccl docs/userguide/source/troubleshooting/gpu_troubleshooting.rst
               https://docs.nvidia.com/cuda/gpudirect-rdma/index.html
               https://github.com/NVIDIA/nccl/issues/1676 (a tenth of the bandwidth)
"""

from __future__ import annotations

from holdfast import text
from holdfast.analysis.machine import GpuDirect, MachineFacts, known
from holdfast.analysis.machine.peer_paths import NO_PEER_ACCESS
from holdfast.analysis.machine.visible_gpus import gpus_here
from holdfast.analysis.nccl_numbers import nccl_int
from holdfast.fault import Fault
from holdfast.findings import Evidence, Finding

FAULT = Fault(
    code="HOLD217",
    slug="gpu-direct-off",
    related=("rdma-unused", "slow-nic", "p2p-acs-iommu", "ib-misconfig"),
)
MODULE = "nvidia-peermem"


@FAULT.check(needs=("nvidia", "rdma_devices", "pci", "settings", "gpu_direct"))
def cards_cannot_read_gpu_memory(facts: MachineFacts) -> Finding:
    cards, why_not = _cards_in_question(facts)
    if why_not:
        return FAULT.does_not_apply(why_not)
    direct = known(facts.gpu_direct)
    if direct.peermem:
        return FAULT.ok(f"{direct.peermem} is loaded")
    if known(direct.dmabuf) and not _dmabuf_disabled(facts):
        return FAULT.ok("the driver exports GPU memory as DMA-BUF")
    return _off(direct, cards)


def _cards_in_question(facts: MachineFacts) -> tuple[tuple[str, ...], str]:
    """The cards, and why the question does not arise."""
    cards: tuple[str, ...] = ()
    if not facts.plan.multi_node:
        return cards, "one machine: no traffic of GPUs goes to a network card"
    gpus = gpus_here(facts)
    if not gpus or any(NO_PEER_ACCESS in gpu.name for gpu in gpus):
        return cards, "no NVIDIA GPU that supports GPUDirect RDMA"
    cards = _cards(facts)
    if not cards:
        return cards, "no InfiniBand or RoCE card"
    return cards, "a setting keeps NCCL from these cards: rdma-unused" if _not_used(facts) else ""


def _cards(facts: MachineFacts) -> tuple[str, ...]:
    """Cards with a place in the PCI tree; EFA's have a way of their own to GPU memory."""
    drivers = {device.name: device.driver for device in known(facts.pci).devices}
    names = known(facts.rdma_devices)
    return tuple(name for name in names if name in drivers and drivers[name] != "efa")


def _not_used(facts: MachineFacts) -> bool:
    disabled, net = facts.setting("NCCL_IB_DISABLE"), facts.setting("NCCL_NET")
    return bool(disabled and nccl_int(disabled.value)) or bool(
        net and net.value.lower() == "socket"
    )


def _dmabuf_disabled(facts: MachineFacts) -> bool:
    setting = facts.setting("NCCL_DMABUF_ENABLE")
    return setting is not None and nccl_int(setting.value) == 0


def _off(direct: GpuDirect, cards: tuple[str, ...]) -> Finding:
    blocked = direct.dmabuf is True
    why = (
        "NCCL_DMABUF_ENABLE=0"
        if blocked
        else f"the driver's kernel module exports no DMA-BUF (Linux {direct.kernel})"
    )
    load = f"`sudo modprobe {MODULE}` on every machine, and at every start"
    return FAULT.warning(
        f"{text.names(cards)} cannot read GPU memory: {MODULE} is not loaded, and {why}",
        reason="NCCL then copies all traffic between machines through host memory, without a "
        "warning; that is several times slower",
        evidence=[Evidence(quote="not there", source="/sys/module/nvidia_peermem/version")],
        fix="`unset NCCL_DMABUF_ENABLE`, or " + load if blocked else load,
    )
