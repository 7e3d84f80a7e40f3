"""Collectives are slower than the links between the GPUs allow.

What you see   Steps are slow on every rank alike, GPUs wait in all_reduce or all_gather, and
               nccl-tests or `holdfast check --smoke` measures a bus bandwidth far below what the
               GPUs' links can do: 20 GB/s between H100s that NVLink joins.
Why            NCCL fell back: GPUs that may not reach each other's memory (NCCL_P2P_DISABLE,
               containers that do not share IPC, ACS) send through host memory although NVLink is
               there; NVLinks are down; a card runs on fewer PCIe lanes; GPUDirect is missing, so
               network traffic goes through host memory. A ring is as fast as its slowest hop: one
               bad GPU or link slows all ranks.
How to be sure `holdfast check --smoke` prints the transport that NCCL says it uses (`P2P/CUMEM`,
               `SHM`, `NET/IB`), the speed of every pair of GPUs, and of the whole group.
               `nvidia-smi topo -m` and `nvidia-smi nvlink --status` show what is there, and
               `holdfast check --nccl-tests` prints how to build and run a second opinion.
Fix            Remove the setting that NCCL obeys; share IPC between containers of one machine
               (`--ipc=host`); bring the links up (reset the GPU, reseat the card); then measure
               again. Leave a machine out whose GPU stays slow.
Known limits   Speeds are held against the median of pairs with the same kind of link first, and
               against a table second; the table is lenient, since healthy machines differ. Over
               PCIe only an eighth of the table is called slow. Where all pairs are slow alike and
               the table has no row, nothing is said. A machine that other jobs use is not judged.
               Sockets between nodes have no row.
Sources        NVIDIA/nccl src/graph/topo.h and src/graph/topo.cc: what NCCL reckons with
               https://github.com/NVIDIA/nccl-tests/issues/212
               https://github.com/NVIDIA/nccl/issues/1161
               https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from holdfast import text
from holdfast.analysis.logs import nccl_tests
from holdfast.analysis.logs.wreckage import Wreckage
from holdfast.analysis.machine import Gpu, MachineFacts, PciFacts, Smoke, known
from holdfast.analysis.machine.group_speed import (
    NVLINK_SHARE,
    TELLING_BYTES,
    Expected,
    SlowPair,
    distance,
    expected,
    odd_ranks,
    slow_pairs,
    telling_rung,
)
from holdfast.analysis.machine.link_speeds import board_speed
from holdfast.analysis.machine.nccl_links import in_words
from holdfast.analysis.machine.topology import nvlinks_between
from holdfast.analysis.nodes import NodesFacts
from holdfast.analysis.nodes.smoke import SmokeBetween, cards_speed
from holdfast.fault import SHOWN, Fault
from holdfast.findings import Culprit, Diagnosis, Evidence, Finding

FAULT = Fault(
    code="HOLD315",
    slug="slow-collectives",
    related=("p2p-acs-iommu", "gpu-hardware", "slow-nic", "rdma-unused"),
)
SECOND_OPINION = "`holdfast check --nccl-tests` prints how to measure it with nccl-tests"
P2P_SETTINGS = ("NCCL_P2P_DISABLE", "NCCL_P2P_LEVEL")


@FAULT.check(needs=("smoke", "nvidia", "pci", "settings"))
def slower_than_its_links(facts: MachineFacts) -> Finding | Sequence[Finding]:
    if facts.smoke is None:
        return FAULT.does_not_apply("not asked for: add --smoke")
    smoke = known(facts.smoke)
    if unmeasured := _unmeasured(smoke):
        return unmeasured
    by_uuid = {gpu.uuid: gpu for gpu in known(facts.nvidia).gpus}
    gpus = {r.rank: by_uuid[r.gpu] for r in smoke.ranks if r.gpu in by_uuid}
    if len(gpus) < smoke.world:
        return FAULT.skipped("the driver does not show every GPU that ranks used (MIG?)")
    if used := [gpu.index for gpu in gpus.values() if gpu.holders]:
        return FAULT.skipped(f"other processes use GPU {text.numbers(used)}: no fair measurement")
    pci = facts.pci if isinstance(facts.pci, PciFacts) else None
    found = [
        *_past_nvlink(facts, smoke, gpus),
        *_slow_pairs(smoke, gpus, pci),
        *_below_the_table(smoke, gpus),
    ]
    return found or FAULT.ok(_fine(smoke, gpus))


def _unmeasured(smoke: Smoke) -> Finding | None:
    stage = smoke.stage("nccl")
    if stage is None or stage.status == "skipped":
        return FAULT.does_not_apply(f"NCCL was not used: {stage.reason if stage else ''}")
    if smoke.world < 2:
        return FAULT.does_not_apply("one rank: there is no speed between GPUs")
    if smoke.shared_gpus:
        return FAULT.does_not_apply("ranks share a GPU, for a test: their speed means nothing")
    if stage.status == "failed":
        return FAULT.skipped("the smoke test failed over NCCL, so its speed means nothing")
    return None


def _fine(smoke: Smoke, gpus: Mapping[int, Gpu]) -> str:
    top = smoke.top_rung("nccl")
    speed = f"{text.bandwidth(top.bandwidth)} over " if top else ""
    table = expected(gpus, smoke.links)
    reckoned = f"; NCCL reckons with {text.bandwidth(table.speed)} ({table.kind})" if table else ""
    return f"{speed}{in_words(smoke.links)}{reckoned}"


def _past_nvlink(facts: MachineFacts, smoke: Smoke, gpus: Mapping[int, Gpu]) -> Iterator[Finding]:
    """NVLink joins two GPUs, and NCCL sends another way."""
    past = [
        link
        for link in smoke.links
        if link.transport != "P2P" and nvlinks_between(gpus[link.sender], gpus[link.receiver])
    ]
    if not past:
        return
    settings = [s for name in P2P_SETTINGS if (s := facts.setting(name)) is not None]
    evidence = [
        Evidence(
            quote=f"rank {link.sender} -> rank {link.receiver} via {link.name}, although "
            f"{distance(gpus[link.sender], gpus[link.receiver], None)} joins their GPUs",
            source="NCCL's log",
        )
        for link in past[:SHOWN]
    ]
    if settings:
        names = text.names(setting.name for setting in settings)
        yield FAULT.note(
            f"NCCL does not use NVLink, because {names} is set",
            reason="it sends through host memory or the network instead",
            evidence=[*(setting.evidence for setting in settings), *evidence],
            fix=f"`unset {' '.join(setting.name for setting in settings)}`, unless it is meant",
        )
        return
    yield FAULT.warning(
        f"NVLink joins these GPUs, and NCCL does not use it between {len(past)} ranks",
        reason=f"it uses {in_words(past)}: GPUs that cannot open each other's memory, such as in "
        "containers that do not share IPC, send through host memory",
        evidence=evidence,
        fix="share IPC between the containers (`docker run --ipc=host`), or ask NCCL why: "
        "`NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,P2P,GRAPH`",
    )


def _slow_pairs(smoke: Smoke, gpus: Mapping[int, Gpu], pci: PciFacts | None) -> Iterator[Finding]:
    slow = slow_pairs(smoke, gpus, pci)
    odd = odd_ranks(slow, smoke)
    for rank in odd:
        mine = [one for one in slow if rank in (one.pair.first, one.pair.second)]
        best = max(one.pair.bandwidth for one in mine)
        yield FAULT.warning(
            f"{_name(gpus[rank])} exchanges data at {text.bandwidth(best)} at best, the median of "
            f"its kind is {text.bandwidth(mine[0].median)}",
            reason=f"it is slow with each of {len(mine)} others, and those are fast among "
            "themselves: the slowest GPU limits all ranks",
            evidence=[_evidence(one, gpus) for one in mine[:SHOWN]],
            fix=f"look at its links: `nvidia-smi nvlink --status -i {gpus[rank].index}` and "
            f"`nvidia-smi -q -i {gpus[rank].index} -d PERFORMANCE`; leave it out until it is fast",
        )
    for one in slow:
        if one.pair.first in odd or one.pair.second in odd:
            continue
        first, second = gpus[one.pair.first], gpus[one.pair.second]
        yield FAULT.warning(
            f"the link between {_name(first)} and {_name(second)} is slow: "
            f"{text.bandwidth(one.pair.bandwidth)}",
            reason=f"the median of {one.of} pairs joined by {one.kind} is "
            f"{text.bandwidth(one.median)}; both are faster with others",
            evidence=[_evidence(one, gpus)],
            fix=f"look at the way between them: `nvidia-smi topo -m`, `nvidia-smi nvlink --status "
            f"-i {first.index}`",
        )


def _below_the_table(smoke: Smoke, gpus: Mapping[int, Gpu]) -> Iterator[Finding]:
    rung, table = telling_rung(smoke), expected(gpus, smoke.links)
    if rung is None or table is None or rung.bandwidth >= table.speed * table.share:
        return
    speak = FAULT.warning if "NVLink" in table.kind else FAULT.note
    yield speak(
        f"all_reduce of {smoke.world} ranks reaches {text.bandwidth(rung.bandwidth)} of the "
        f"{text.bandwidth(table.speed)} of {table.kind}",
        reason=f"NCCL used {in_words(smoke.links)}; healthy machines reach more than "
        f"{text.bandwidth(table.speed * table.share)}",
        evidence=[_rung_evidence(rung.size, rung.seconds), _table_evidence(table)],
        fix=SECOND_OPINION,
    )


def _rung_evidence(size: int, seconds: float) -> Evidence:
    quote = f"all_reduce of {text.size(size)} took {seconds * 1e3:.3g} ms"
    return Evidence(quote=quote, source="smoke test")


def _table_evidence(table: Expected) -> Evidence:
    quote = f"{table.kind}: {text.bandwidth(table.speed)} by NCCL's own reckoning"
    return Evidence(quote=quote, source="NVIDIA/nccl src/graph/topo.h, topo.cc")


def _evidence(one: SlowPair, gpus: Mapping[int, Gpu]) -> Evidence:
    pair = one.pair
    return Evidence(
        quote=f"{_name(gpus[pair.first])} and {_name(gpus[pair.second])} ({one.kind}): "
        f"{text.bandwidth(pair.bandwidth)}, the median of {one.of} such pairs is "
        f"{text.bandwidth(one.median)}",
        source="smoke test",
    )


def _name(gpu: Gpu) -> str:
    return f"GPU {gpu.index} ({gpu.bus_id})"


# --- several nodes --------------------------------------------------------------------------------

RDMA_SHARE = 1 / 4
"""of what the cards in use can carry together: a slot with half the lanes, or a PCIe generation
behind the card's, leaves half of it"""


@FAULT.check_nodes
def slower_than_its_cards(facts: NodesFacts) -> Finding | Sequence[Finding]:
    if facts.smoke is None:
        return FAULT.does_not_apply("not asked for: add --smoke")
    smoke = known(facts.smoke)
    if smoke.backend != "nccl":
        return FAULT.does_not_apply(f"NCCL was not used: {smoke.why_backend}")
    if not smoke.networks:
        return FAULT.skipped("NCCL did not say which network it used")
    speeds = [one.speed for results in smoke.rounds for one in results if one.speed]
    speed = smoke.group.speed or max(speeds, default=0.0)
    found = [*_no_gpu_direct(smoke), *_below_the_cards(facts, smoke, speed)]
    ways = text.names({network.way for network in smoke.networks.values()})
    return found or FAULT.ok(f"{text.bandwidth(speed)} between nodes over {ways}")


def _no_gpu_direct(smoke: SmokeBetween) -> Iterator[Finding]:
    """Some nodes have it, a few do not: those slow all."""
    without = sorted(name for name, one in smoke.networks.items() if not one.gpu_direct)
    if not without or 2 * len(without) >= len(smoke.networks):
        return
    yield FAULT.warning(
        f"NCCL uses GPUDirect on {len(smoke.networks) - len(without)} nodes, and not on "
        f"{text.names(without)}",
        reason="there, data between GPU and network card goes through host memory, and the slowest "
        "node limits all ranks",
        evidence=[
            Evidence(
                quote=f"{name}: NET/{smoke.networks[name].way} without GDRDMA",
                source="NCCL's log",
                host=name,
            )
            for name in without[:SHOWN]
        ],
        fix="`sudo modprobe nvidia-peermem` there, or a driver and kernel with DMA-BUF; `holdfast "
        "check --topology` shows how far card and GPU are apart",
        host=without[0] if len(without) == 1 else "",
    )


def _below_the_cards(facts: NodesFacts, smoke: SmokeBetween, speed: float) -> Iterator[Finding]:
    tables = {
        name: table
        for name, network in smoke.networks.items()
        if (table := cards_speed(facts.node(name).facts, network)) is not None
    }
    if len(tables) < len(smoke.networks) or not speed:
        return
    slowest = min(tables, key=lambda name: tables[name])
    network, table = smoke.networks[slowest], tables[slowest]
    if speed >= table * RDMA_SHARE:
        return
    direct = "" if network.gpu_direct else "; without GPUDirect: data goes through host memory"
    yield FAULT.warning(
        f"all_reduce between nodes reaches {text.bandwidth(speed)} of the {text.bandwidth(table)} "
        f"that {text.counted(network.cards, 'RDMA card')} of a node carry",
        reason=f"NCCL used NET/{network.way}{direct}; healthy networks reach more than "
        f"{text.bandwidth(table * RDMA_SHARE)}",
        evidence=[
            Evidence(
                quote=f"{name}: {text.counted(one.cards, 'card')} of NET/{one.way}, "
                f"{text.bandwidth(tables[name])}",
                source="NCCL's log, /sys/class/infiniband",
                host=name,
            )
            for name, one in list(smoke.networks.items())[:SHOWN]
        ],
        fix=f"{SECOND_OPINION}; `ib_write_bw` between two nodes tests a card without NCCL",
    )


# --- nccl-tests -----------------------------------------------------------------------------------

FEWEST_RANKS = 4
"""on one machine: fewer may be joined by some of their links only"""


@FAULT.explain
def nccl_tests_measured_less_than_nvlink(wreckage: Wreckage) -> Diagnosis | None:
    for run in nccl_tests.runs(wreckage):
        row = run.largest
        speed = board_speed(run.gpus[0]) if len(run.gpus) == 1 else None
        if row is None or speed is None or run.ranks < FEWEST_RANKS or len(run.nodes) > 1:
            continue
        if row.size < TELLING_BYTES or row.bandwidth >= speed * NVLINK_SHARE:
            continue
        return FAULT.diagnosis(
            f"nccl-tests measured {text.bandwidth(row.bandwidth)} at {text.size(row.size)} among "
            f"{run.ranks} {run.gpus[0]}, whose NVLinks allow {text.bandwidth(speed)}: NCCL does "
            "not use them, or not all",
            confidence=0.6,
            seen=[row.seen, run.started],
            culprit=Culprit(what=f"NVLink of {run.nodes[0]}" if run.nodes else "NVLink"),
            fix="see which transport NCCL takes, and whether links are down: `nvidia-smi nvlink "
            "--status`",
            next="holdfast check --smoke --verbose",
            unknown=["whether this machine has NVLink at all: some virtual machines hide it"],
        )
    return None
