"""Ways in which two nodes are told to meet: they start, or each says what keeps it from it."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from holdfast.drill.lab import Host, Lab, LabInterface
from tests.run.nodes.scenario import PORT, LauncherName, NodesJob, named_hosts

WITHIN = 10.0
"""seconds for a sentence where they cannot start"""
LONGEST = {"holdfast": 90.0, "torchrun": 200.0}
"""seconds for the first step; torchrun gives up after 160"""
OWN_FIRST_LINE = re.compile(r"holdfast> (joining|coordinating) \d+ nodes|run folder")
Typed = Callable[[Sequence[Host], Host], list[str]]


def by_address(hosts: Sequence[Host], _: Host) -> list[str]:
    return _at(f"{hosts[0].address}:{PORT}")


def by_name(hosts: Sequence[Host], _: Host) -> list[str]:
    return _at(f"{hosts[0].name}:{PORT}")


def by_second_address(hosts: Sequence[Host], _: Host) -> list[str]:
    return _at(f"{hosts[0].addresses['e1'][0]}:{PORT}")


def by_master(hosts: Sequence[Host], host: Host) -> list[str]:
    rank = list(hosts).index(host)
    return ["--master-addr", hosts[0].address, "--master-port", str(PORT), "--node-rank", str(rank)]


def nobodys_address(hosts: Sequence[Host], _: Host) -> list[str]:
    return _at(f"{hosts[0].address.rpartition('.')[0]}.99:{PORT}")


def another_port(hosts: Sequence[Host], host: Host) -> list[str]:
    return _at(f"{hosts[0].address}:{PORT + (host is not hosts[0])}")


def _at(endpoint: str) -> list[str]:
    return ["--rdzv-backend", "c10d", "--rdzv-id", "lab", "--rdzv-endpoint", endpoint]


def name_is_loopback(hosts: list[Host]) -> None:
    """As Debian's installer writes it."""
    for host in hosts:
        host.resolves(host.name, "127.0.1.1")


def firewalled(hosts: list[Host]) -> None:
    hosts[0].firewall(f"tcp dport {PORT} drop")


def ranks_firewalled(hosts: list[Host]) -> None:
    """The port that was named is open, and no other."""
    hosts[0].firewall(
        "ct state established,related accept", f"tcp dport {PORT} accept", "iifname lo accept",
        "ip protocol icmp accept", "drop",
    )  # fmt: skip


@dataclass(frozen=True)
class StartRow:
    name: str
    what: str
    typed: Typed = by_address
    prepare: Callable[[list[Host]], None] = lambda _: None
    interfaces: tuple[LabInterface, ...] = ()
    late: float = 0.0
    """seconds by which the second node comes later"""
    says: tuple[str, ...] = ()
    """where it cannot start: words of which one must be in a line of every node of `on`"""
    on: tuple[str, ...] = ("alpha", "bravo")
    within: float = WITHIN
    asked: tuple[str, ...] = ()


ROWS = (
    StartRow("address", "`--rdzv-endpoint` with an address"),
    StartRow("name", "`--rdzv-endpoint` with a name", by_name),
    StartRow("loopback-name", "each host's own name is 127.0.1.1 in its hosts file",
             prepare=name_is_loopback),
    StartRow("loopback-name-typed", "the same, and the endpoint is that name", by_name,
             name_is_loopback),
    StartRow("master-addr", "`--master-addr`, `--node-rank`", by_master, name_is_loopback),
    StartRow("two-interfaces", "two interfaces, the endpoint on the second", by_second_address,
             interfaces=(LabInterface("e0"), LabInterface("e1", switch=1))),
    StartRow("late", "a node comes 20 s later", late=20.0),
    StartRow("wrong-address", "the endpoint is an address that no host has", nobodys_address,
             says=(".99",)),
    StartRow("wrong-port", "one node was given another port", another_port,
             says=(str(PORT + 1), "waiting for 1", "1 of 2", "bravo")),
    StartRow("firewall", "a firewall drops what comes to the endpoint", prepare=firewalled,
             says=("firewall",), on=("bravo",)),
    StartRow("ranks-firewall", "a firewall lets nothing but the endpoint's port through",
             prepare=ranks_firewalled, says=("firewall",)),
    StartRow("own-disks", "each host has a checkpoint folder of its own",
             asked=("ckpts=/run/ckpts",), says=("each machine has a folder of its own",),
             within=60.0),
)  # fmt: skip
BY_NAME = {row.name: row for row in ROWS}


class Started(msgspec.Struct, kw_only=True):
    row: str
    launcher: str
    first_step: float | None = None
    said: dict[str, float | None] = {}
    sentence: str = ""
    ended: float | None = None
    """seconds until all launchers had ended by themselves"""
    problems: list[str] = []
    screen: str = ""


def play_start(row: StartRow, folder: Path, *, launcher: LauncherName = "holdfast") -> Started:
    seen = Started(row=row.name, launcher=launcher)
    with Lab() as lab:
        hosts = named_hosts(lab, 2, interfaces=row.interfaces or None)
        row.prepare(hosts)
        with NodesJob(
            lab, hosts, folder, launcher=launcher, typed=row.typed, asked=row.asked
        ) as job:
            job.mark()
            job.start(hosts[0])
            time.sleep(row.late)
            last = time.monotonic()
            job.start(hosts[1])
            _watch(row, job, seen, until=time.monotonic() + LONGEST[launcher])
            if seen.first_step is not None:
                seen.first_step -= last - job.marked
            if launcher == "holdfast":
                _judge(row, seen)
            job.end(30)
            seen.problems += [f"left on {n}: {c}" for n, c in job.orphans(hosts).items()]
            seen.screen = job.screen(last=60)
    return seen


def _watch(row: StartRow, job: NodesJob, seen: Started, *, until: float) -> None:
    while time.monotonic() < until:
        if row.says:
            seen.said = {name: _says(row, job, name, seen) for name in row.on}
            if job.launcher == "holdfast" and None not in seen.said.values():
                return
        if (newest := job.newest()) is not None and newest.step >= 3:
            seen.first_step = newest.at - job.marked
            return
        if all(node.process.poll() is not None for node in job.nodes.values()):
            seen.ended = job.since()
            lines = [line.text for line in job.screens["bravo"] if "Error" in line.text]
            seen.sentence = seen.sentence or (lines[-1] if lines else "")
            return
        time.sleep(0.2)


def _says(row: StartRow, job: NodesJob, name: str, seen: Started) -> float | None:
    """Seconds from the launcher's own first line: before it, a busy machine imports torch."""
    lines = [*job.screens[name]]
    began = next((line.at for line in lines if OWN_FIRST_LINE.search(line.text)), job.marked)
    for line in lines:
        if any(word in line.text for word in row.says) and not OWN_FIRST_LINE.search(line.text):
            seen.sentence = seen.sentence or line.text
            return line.at - began
    return None


def _judge(row: StartRow, seen: Started) -> None:
    if not row.says:
        if seen.first_step is None:
            seen.problems.append("did not start")
        return
    for name, seconds in seen.said.items():
        if seconds is None:
            seen.problems.append(f"{name} does not say it")
        elif seconds > row.within:
            seen.problems.append(f"{name} says it after {seconds:.1f} s")
