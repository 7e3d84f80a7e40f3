"""What goes wrong in a training on four lab hosts, and what has to be said and done about it."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from holdfast.drill.lab import Host
from tests.run.nodes.scenario import NodesJob

WITHIN = 10.0
"""seconds from the fault to the sentence, on every node that is still there"""
After = Literal["resumes", "stops", "goes on", "named"]
"""another attempt goes on from the newest checkpoint; the nodes that are left end; the same attempt
goes on; or only the sentence counts, since the policy has a choice"""


@dataclass(frozen=True)
class FaultRow:
    name: str
    what: str
    break_it: Callable[[NodesJob], None]
    slugs: tuple[str, ...]
    """any of which is right"""
    mentions: tuple[str, ...]
    """hosts that the sentence must name"""
    silent: tuple[str, ...] = ()
    """hosts that are gone, and from which nothing is expected"""
    beside: tuple[str, ...] = ()
    """slugs that may be said as well, since they are true"""
    guilty: tuple[str, ...] = ()
    """hosts that may be blamed besides those of `mentions`"""
    after: After = "resumes"
    world: int = 0
    """ranks of the attempt that follows"""
    hosts: int = 4
    nproc: int = 1
    nnodes: str = "2:4"
    mtu: int = 1500
    asked: tuple[str, ...] = ()
    within: float = WITHIN
    flags: tuple[str, ...] = ()
    """of holdfast"""
    then: Callable[[NodesJob], list[str]] | None = None
    """a second act; what went wrong in it"""


# --- faults --------------------------------------------------------------------------------------


def kill_launcher(job: NodesJob) -> None:
    job.kill_launcher(job.hosts[-1])


def cut_host(job: NodesJob) -> None:
    job.hosts[-1].cut()


def cut_store_host(job: NodesJob) -> None:
    job.hosts[0].cut()


def lose_packets(job: NodesJob) -> None:
    job.lab.link(job.hosts[-2], job.hosts[-1]).loss(30)


def lose_large_packets(job: NodesJob) -> None:
    job.lab.link(job.hosts[-2], job.hosts[-1]).mtu(1500)


def drop_one_way(job: NodesJob) -> None:
    job.lab.link(job.hosts[-2], job.hosts[-1]).drop(to=job.hosts[-1])


def halve(job: NodesJob) -> None:
    job.lab.partition(job.hosts[:2], job.hosts[2:])


def split_off(job: NodesJob) -> None:
    job.lab.partition(job.hosts[:3], job.hosts[3:])


def stop_rank(job: NodesJob) -> None:
    os.kill(job.ranks_on(job.hosts[-1])[0], signal.SIGSTOP)


def kill_rank(job: NodesJob) -> None:
    os.kill(job.ranks_on(job.hosts[-1])[0], signal.SIGKILL)


def kill_two_ranks(job: NodesJob) -> None:
    for pid in [job.ranks_on(host)[0] for host in (job.hosts[1], job.hosts[-1])]:
        os.kill(pid, signal.SIGKILL)


def crash_node(job: NodesJob) -> None:
    """All its processes at once, and not a packet more."""
    host = job.hosts[-1]
    host.cut()
    _kill_all(job, host)


def kill_third_launcher(job: NodesJob) -> None:
    job.kill_launcher(job.hosts[2])


def cut_two(job: NodesJob) -> None:
    job.hosts[2].cut()
    job.hosts[3].cut()


def preempt(job: NodesJob) -> None:
    job.send(job.hosts[-1], signal.SIGTERM)


def _kill_all(job: NodesJob, host: Host) -> None:
    for pid in job.ranks_on(host):
        os.kill(pid, signal.SIGKILL)
    job.kill_launcher(host)


# --- second acts ---------------------------------------------------------------------------------


def is_fenced(job: NodesJob) -> list[str]:
    """What was cut off ends its own ranks: the others go on without them."""
    host = job.hosts[-1]
    until = time.monotonic() + 20
    while job.ranks_on(host) and time.monotonic() < until:
        time.sleep(0.2)
    return [f"ranks on {host.name} still run"] if job.ranks_on(host) else []


def is_fenced_and_joins_again(job: NodesJob) -> list[str]:
    """Its launcher does not end for good: once the cable is in it is a node of the job again."""
    host = job.hosts[-1]
    problems = is_fenced(job)
    host.restore()
    until = time.monotonic() + 60
    while time.monotonic() < until:
        if any("waits for the next round" in line.text for line in [*job.screens[host.name]]):
            return problems
        time.sleep(0.2)
    return [*problems, f"{host.name} did not join again"]


def leaves_none_there(job: NodesJob) -> list[str]:
    left = job.orphans(job.hosts[-1:], seconds=10)
    return [f"left on {name}: {commands}" for name, commands in left.items()]


def comes_back(job: NodesJob) -> list[str]:
    """The cables are in again, and its launcher is started again, as a service would."""
    host = job.hosts[-1]
    host.restore()
    return _taken_in(job, [host], world=job.nproc * len(job.hosts))


def both_come_back(job: NodesJob) -> list[str]:
    for host in job.hosts[2:]:
        host.restore()
    return _taken_in(job, job.hosts[2:], world=job.nproc * len(job.hosts))


def heals(job: NodesJob) -> list[str]:
    job.lab.restore()
    return _taken_in(job, job.hosts[1:], world=job.nproc * len(job.hosts))


def starts_again_elsewhere(job: NodesJob) -> list[str]:
    """Without the host of the store: the survivors are started again and resume."""
    job.hosts = job.hosts[1:]
    job.endpoint = f"{job.hosts[0].address}:{job.endpoint.rpartition(':')[2]}"
    job.mark()
    for host in job.hosts:
        job.start(host)
    step = None
    until = time.monotonic() + 90
    while step is None and time.monotonic() < until:
        every = [s for steps in job.steps(*job.hosts).values() for s in steps if s.at > job.marked]
        step = min(every, default=None)
        time.sleep(0.2)
    if step is None:
        return ["the survivors, started again, took no step"]
    return [] if step.step > 0 else ["the survivors, started again, began at step 0"]


def _taken_in(job: NodesJob, hosts: list[Host], *, world: int) -> list[str]:
    """A launcher that lost the coordinator joins again by itself; one that has ended is started
    again, as by a service."""
    job.mark()
    for host in hosts:
        if job.nodes[host.name].process.poll() is not None:
            job.start(host)
    step = job.goes_on(world=world, seconds=120)
    names = ", ".join(host.name for host in hosts)
    return [] if step else [f"{names} back, and no attempt of {world} ranks within 120 s"]


# --- the table -----------------------------------------------------------------------------------

LOST = ("node-lost", "network-partition")
ROWS = (
    FaultRow("launcher-killed", "a launcher is killed by SIGKILL", kill_launcher, ("node-lost",),
             ("delta",), silent=("delta",), world=3, then=leaves_none_there),
    FaultRow("host-cut", "the cable of a host is out", cut_host, LOST, ("delta",),
             silent=("delta",), world=3, then=is_fenced),
    FaultRow("host-cut-plain", "the same; the script saves with torch.save", cut_host, LOST,
             ("delta",), silent=("delta",), world=3, asked=("keep=plain",)),
    FaultRow("two-hosts-cut", "2 hosts with 2 ranks each: the cable of one is out", cut_host, LOST,
             ("bravo",), silent=("bravo",), world=2, hosts=2, nproc=2, nnodes="1:2",
             then=is_fenced),
    FaultRow("store-host-cut", "the cable of the store's host is out", cut_store_host,
             ("store-host-lost", "network-partition"), ("alpha",), silent=("alpha",),
             flags=("--rdzv-conf", "join_timeout=20"), after="stops",
             then=starts_again_elsewhere),
    FaultRow("loss", "30 % of the packets between two hosts are lost", lose_packets,
             ("packet-loss",), ("carol", "delta"), after="named"),
    FaultRow("mtu", "large packets between two hosts begin to vanish", lose_large_packets,
             ("mtu-black-hole",), ("carol", "delta"), mtu=9000, after="named"),
    FaultRow("one-way", "packets from one host to another vanish, not those back", drop_one_way,
             ("peer-unreachable", "network-partition"), ("carol", "delta"), after="named"),
    FaultRow("partition-2-2", "no packet between two hosts and the two others, healed later", halve,
             LOST, ("carol", "delta"), silent=("carol", "delta"), world=2, then=heals),
    FaultRow("partition-3-1", "no packet between one host and the others, healed later", split_off,
             LOST, ("delta",), silent=("delta",), world=3, then=heals),
    FaultRow("rank-stopped", "SIGSTOP to a rank", stop_rank, ("rank-frozen",), ("delta",), world=4),
    FaultRow("rank-killed", "SIGKILL to a rank", kill_rank, ("rank-killed",), ("delta",), world=4),
    FaultRow("two-ranks-killed", "SIGKILL to ranks of two hosts at once", kill_two_ranks,
             ("rank-killed",), ("bravo",), guilty=("delta",), world=4),
    FaultRow("node-back", "a host loses power and comes back; fixed --nnodes", crash_node, LOST,
             ("delta",), silent=("delta",), nnodes="4", after="named", then=comes_back),
    FaultRow("spare", "a launcher is killed, and a spare node waits", kill_third_launcher,
             ("node-lost",), ("carol",), silent=("carol",), nnodes="2:3", world=3),
    FaultRow("4-2-4", "the cables of two hosts are out, then in again", cut_two, LOST,
             ("carol", "delta"), silent=("carol", "delta"), world=2, then=both_come_back),
    FaultRow("preempted", "SIGTERM to one launcher", preempt, ("preempted", "external-sigterm"),
             ("delta",), silent=("delta",), world=3),
)  # fmt: skip
BY_NAME = {row.name: row for row in ROWS}
