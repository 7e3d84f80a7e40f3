"""What is wrong with a GPU by what its driver says of it, and how bad that is.

Every rule has the healthy machines in mind that show the same: an idle GPU clocks down its PCIe
link, a power cap is normal, links of a card without bridges are down, rows were remapped long ago.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from holdfast import text
from holdfast.analysis.machine.gpu import Gpu
from holdfast.analysis.machine.gpu_trouble import RESET, GpuTrouble
from holdfast.findings import Status

BUSY = 50
"""per cent; from here on a link has left its low-power state"""
FULLY_BUSY = 95
IDLE_POWER = 0.25
"""share of the power limit that a GPU stays under while its kernels only wait"""
CRC_ERRORS = 100
"""of a link between two looks, which are a fraction of a second apart; fewer are normal"""
GRAVE_LINK_ERRORS = (
    "replay",
    "recovery",
    "ecc_data",
    "recovery_failed",
    "malformed_packets",
    "buffer_overruns",
    "local_link_integrity",
)
FULL_BOARDS = {
    "NVIDIA A100-SXM": 12,
    "NVIDIA H100 80GB HBM3": 18,
    "NVIDIA H200": 18,
    "NVIDIA B200": 18,
    "NVIDIA GB200": 18,
}
"""NVLinks that a GPU of these names has to its switches when all work"""
GUESTS = ("passthrough", "vgpu")
SLOWED = {
    "hw thermal slowdown": "it is too hot",
    "hw power brake": "the power supply told it to slow down",
    "hw slowdown": "it is too hot, or the power supply told it to slow down",
}


def troubles(gpus: Sequence[Gpu]) -> list[GpuTrouble]:
    found = [trouble for gpu in gpus for trouble in _of_one(gpu, gpus)]
    return [*found, *_persistence(gpus)]


def _of_one(gpu: Gpu, gpus: Sequence[Gpu]) -> Iterator[GpuTrouble]:
    if gpu.unread:
        yield from _unreadable(gpu)
        return
    peers = [one for one in gpus if one.name == gpu.name and not one.unread and not one.mig]
    for rule in (_recovery, _memory, _slowed):
        yield from rule(gpu)
    for compare in (_links, _pcie, _power):
        yield from compare(gpu, peers)


# --- it does not answer --------------------------------------------------------------------------


def _unreadable(gpu: Gpu) -> Iterator[GpuTrouble]:
    seen = _seen(gpu, gpu.unread)
    if gpu.unread_kind == "lost":
        yield seen(
            Status.ERROR,
            f"does not answer its driver: {gpu.unread}",
            "it fell off the bus; every program that uses it fails or hangs",
            "take this machine out of the job and restart it; if it happens again have the GPU "
            "replaced. The cause: `sudo dmesg -T | grep -E 'Xid|AER'`",
        )
    elif gpu.unread_kind == "reset required":
        yield seen(
            Status.ERROR,
            f"cannot be used before a reset: {gpu.unread}",
            "the driver has given it up after an error",
            f"end every program on it, then {RESET}",
        )
    elif gpu.unread_kind == "no answer":
        yield seen(
            Status.WARNING,
            f"gave the driver {gpu.unread}",
            "the driver hangs on it, or it was too busy; a program that uses it may hang too",
            "ask again: `timeout 60 nvidia-smi -i {gpus}`; if that hangs, take this machine "
            "out of the job and reboot it",
        )
    elif gpu.unread_kind != "no permission":
        yield seen(
            Status.WARNING,
            f"could not be read: {gpu.unread}",
            "its state is not known",
            "`nvidia-smi -q -i {gpus}`",
        )


# --- what it says of itself ----------------------------------------------------------------------

_ASKED_FOR = {
    "gpu reset": f"end every program on it, then {RESET}",
    "bus reset": f"end every program on it, then {RESET}",
    "drain p2p": "end every program that reads other GPUs' memory on this machine, then look again",
    "drain and reset": f"end every program on all GPUs of this machine, then {RESET}",
    "node reboot": "reboot this machine",
    "system reboot": "reboot this machine",
    "recover imex domain": "end the jobs of this NVLink domain and restart nvidia-imex on its "
    "machines: `sudo systemctl restart nvidia-imex`",
}


def _recovery(gpu: Gpu) -> Iterator[GpuTrouble]:
    asked = gpu.recovery_action
    if not asked or asked == "none":
        return
    yield _seen(gpu, f"GPU recovery action: {asked}")(
        Status.ERROR if asked in _ASKED_FOR else Status.WARNING,
        f"needs a recovery action, says the driver: {asked}",
        "after an error that it cannot repair while programs run; they fail or get wrong results",
        _ASKED_FOR.get(asked, "`nvidia-smi -q -i {gpus}`"),
    )


def _memory(gpu: Gpu) -> Iterator[GpuTrouble]:
    rows, ecc = gpu.remapped, gpu.ecc
    if rows is not None and rows.failed:
        yield _seen(gpu, f"remapped rows: {rows.uncorrectable} uncorrectable, remapping failed")(
            Status.ERROR,
            "could not replace a broken row of its memory: no spare is left",
            "the next error there ends the program that meets it; NVIDIA replaces such cards",
            "take this machine out of the job and have the GPU replaced",
        )
    if ecc is not None and ecc.sram_threshold_exceeded:
        yield _seen(gpu, "SRAM error threshold exceeded: yes")(
            Status.ERROR,
            "had more cache (SRAM) errors than NVIDIA allows",
            "uncorrectable errors in the chip itself, which no remapping repairs",
            "take this machine out of the job and have the GPU replaced",
        )
    if ecc is not None and ecc.uncorrected:
        yield _seen(gpu, f"ECC errors since the driver was loaded: {ecc.uncorrected} uncorrected")(
            Status.WARNING,
            f"had {text.counted(ecc.uncorrected, 'memory error')} that ECC could not correct, "
            "since the last reset",
            "each ended the program that met it; more may follow",
            f"when it is idle reset it: {RESET}; if errors return have it replaced",
        )
    if (rows is not None and rows.pending) or gpu.retired_pages_pending:
        yield _seen(gpu, "row remapping pending: yes" if rows else "page retirement pending: yes")(
            Status.NOTE,
            "repairs its memory at the next reset",
            "a broken place was found and is not used any more; jobs may run meanwhile",
            f"when it is idle reset it: {RESET}",
        )


def _slowed(gpu: Gpu) -> Iterator[GpuTrouble]:
    causes = [event for event in SLOWED if event in gpu.clock_events]
    heat, limit = gpu.temperature, gpu.slowdown_temperature
    hot = heat is not None and limit is not None and heat >= limit
    if not causes and not hot:
        return
    why = SLOWED[causes[0]] if causes else "it is too hot"
    degrees = "" if heat is None else f", {heat} °C" + (f" of {limit}" if limit else "")
    clock = f", {gpu.sm_clock} of {gpu.sm_clock_possible} MHz" if gpu.sm_clock else ""
    named = ", ".join(causes) or "temperature"
    yield _seen(gpu, f"clock event reasons: {named}{degrees}{clock}")(
        Status.WARNING,
        f"has slowed itself down: {why}{degrees}{clock}",
        "every rank waits for the slowest GPU of the job",
        "check fans, air flow and power: `nvidia-smi -q -d PERFORMANCE,TEMPERATURE -i {gpus}`",
    )


# --- beside the others of its kind ---------------------------------------------------------------


def _links(gpu: Gpu, peers: Sequence[Gpu]) -> Iterator[GpuTrouble]:
    if gpu.mig:
        return
    growing = {link.index: bad for link in gpu.nvlinks if (bad := _bad_growth(link.growing))}
    if growing:
        shown = "; ".join(f"link {index}: {bad}" for index, bad in growing.items())
        yield _seen(gpu, f"NVLink errors between two looks: {shown}", "nvidia-smi nvlink -e")(
            Status.WARNING,
            f"has NVLinks whose errors grow: {text.numbers(growing)}",
            "data is sent again and again; the link may fail for good",
            "end the jobs here and reset all GPUs (`sudo nvidia-smi -r`); if errors return have "
            "the link's ends looked at",
        )
    down = [link.index for link in gpu.nvlinks if not link.active]
    active = len(gpu.nvlinks) - len(down)
    usual = _most_common(peers, lambda one: sum(link.active for link in one.nvlinks))
    full = next((n for name, n in FULL_BOARDS.items() if gpu.name.startswith(name)), 0)
    by_switch = any(link.remote == "switch" for one in peers for link in one.nvlinks)
    expected = max(usual or 0, full if by_switch and active else 0)
    # Between cards in slots a bridge may be missing on purpose.
    if active < expected and (active or by_switch):
        yield _seen(gpu, f"{active} of {expected} NVLinks active", "nvidia-smi nvlink -s")(
            Status.WARNING if by_switch else Status.NOTE,
            f"has {active} of {expected} NVLinks up"
            + (f" (down: {text.numbers(down)})" if down else ""),
            "NCCL goes around the missing ones: slower, or not at all behind NVSwitch"
            if by_switch
            else "its equals have more: a bridge is missing, or links failed",
            "restart the fabric manager where there is one (`sudo systemctl restart "
            "nvidia-fabricmanager`), else reset all GPUs when idle (`sudo nvidia-smi -r`); if they "
            "stay down have the board looked at",
        )


def _bad_growth(growing: dict[str, int]) -> str:
    bad = [
        f"{name} +{count}"
        for name, count in growing.items()
        if name in GRAVE_LINK_ERRORS or (name.startswith("crc") and count >= CRC_ERRORS)
    ]
    return ", ".join(bad)


def _pcie(gpu: Gpu, peers: Sequence[Gpu]) -> Iterator[GpuTrouble]:
    link = gpu.pcie
    if link is None or not link.width or gpu.memory_total is None:  # one chip with its processor
        return
    usual = _most_common(peers, lambda one: one.pcie.width if one.pcie else 0)
    busy = (gpu.busy or 0) >= BUSY
    asleep = link.generation < link.generation_possible and not busy
    narrow = link.width < link.width_possible
    slow = busy and link.generation < link.generation_possible
    if not narrow and not slow:
        return
    # Cards of clouds, and of boards that divide a slot, are wired with fewer lanes for good; some
    # save power by narrowing an idle link. Then their equals do the same.
    odd = usual is not None and link.width < usual
    # A guest does not see what its host's slot can do.
    if not odd and (gpu.virtualization in GUESTS or (not slow and _all_alike(peers))):
        return
    now = f"x{link.width} gen {link.generation}"
    possible = f"x{link.width_possible} gen {link.generation_possible}"
    yield _seen(gpu, f"PCIe link {now}, possible {possible}", "nvidia-smi -q")(
        Status.WARNING if odd or slow else Status.NOTE,
        f"is attached by PCIe {now} where {possible} is possible",
        "the card sits badly, its riser or slot is broken, or the slot is shared; copies to and "
        "from the host, and GPUDirect, go at that speed"
        if odd or slow
        else "the link sleeps now, so this may be its way to save power"
        if asleep
        else "its slot may be wired so; copies to and from the host go at that speed",
        "look while it is busy: `nvidia-smi --query-gpu=pcie.link.gen.current,"
        "pcie.link.width.current --format=csv -i {gpus}`; if it stays, have the card "
        "reseated",
    )


def _all_alike(peers: Sequence[Gpu]) -> bool:
    return len(peers) > 1 and len({one.pcie.width if one.pcie else 0 for one in peers}) == 1


def _power(gpu: Gpu, peers: Sequence[Gpu]) -> Iterator[GpuTrouble]:
    if gpu.power_limit and gpu.power is not None and (gpu.busy or 0) >= FULLY_BUSY:
        share = gpu.power / gpu.power_limit
        if share < IDLE_POWER:
            yield _seen(gpu, f"{gpu.busy} % busy at {gpu.power:.0f} of {gpu.power_limit:.0f} W")(
                Status.NOTE,
                f"is {gpu.busy} % busy but takes only {gpu.power:.0f} of {gpu.power_limit:.0f} W",
                "its kernels wait rather than compute: a job that hangs in a collective looks so, "
                "and so does one with very little to do",
                "see whose it is: `nvidia-smi -i {gpus}`",
            )
    usual = _most_common(peers, lambda one: round(one.power_limit or 0))
    if usual and gpu.power_limit and round(gpu.power_limit) < usual:
        yield _seen(gpu, f"power limit {gpu.power_limit:.0f} W, the others {usual} W")(
            Status.WARNING,
            f"may take only {gpu.power_limit:.0f} W, its equals {usual} W",
            "under load it is slower than they are, and every rank waits for the slowest",
            f"`sudo nvidia-smi -pl {usual} -i {{gpus}}`, unless its power is limited on purpose",
        )


def _persistence(gpus: Sequence[Gpu]) -> Iterator[GpuTrouble]:
    """It matters where others have it on: many healthy machines go without."""
    if not any(gpu.persistence for gpu in gpus):
        return
    for gpu in (gpu for gpu in gpus if gpu.persistence is False and not gpu.holders):
        yield _seen(gpu, "persistence mode: off")(
            Status.NOTE,
            "has persistence mode off",
            "the driver shuts it down whenever no program uses it: each start takes seconds "
            "longer, and its counters of errors are lost",
            "`sudo systemctl enable --now nvidia-persistenced`",
        )


def _most_common(peers: Sequence[Gpu], ask: Callable[[Gpu], int]) -> int | None:
    """What more than half of at least three equals have."""
    if len(peers) < 3:
        return None
    value, count = Counter(map(ask, peers)).most_common(1)[0]
    return value if count * 2 > len(peers) else None


def _seen(
    gpu: Gpu, quote: str, source: str = "NVML"
) -> Callable[[Status, str, str, str], GpuTrouble]:
    def make(status: Status, what: str, meaning: str, remedy: str) -> GpuTrouble:
        return GpuTrouble(
            gpu=gpu.index,
            who=f"GPU {gpu.index}",
            status=status,
            what=what,
            meaning=meaning,
            remedy=remedy,
            quote=f"GPU {gpu.index}{f' ({gpu.bus_id})' if gpu.bus_id else ''}: {quote}",
            source=source,
        )

    return make
