"""NCCL ranks on several hosts that share one GPU: what `holdfast run` says when a path breaks.

    python -m tools.gpu_nodes [--hosts 4] [--only cut mtu …] [--timeout 600]

Needs root and a GPU. Every host is a lab host (drill/lab); NCCL takes each for a machine of its own
by NCCL_HOSTID, and talks over NET/Socket. The group's timeout is 600 s: what is named before that
is named by what was seen, not by torch's watchdog. Prints one line a fault; exits 1 when a node
that is still there does not hear the right sentence.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from holdfast.drill.lab import Host, Lab, LabInterface
from holdfast.drill.lab.interfaces import Network, port_name
from tests.run.nodes.scenario import NAMES, SENTENCE, NodesJob

SCRIPT = """
import datetime, os, sys, time
import torch
import torch.distributed as dist
torch.cuda.set_device(0)
dist.init_process_group("nccl", timeout=datetime.timedelta(seconds=float(sys.argv[2])))
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(1024, 1024).cuda())
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
os.makedirs(sys.argv[1], exist_ok=True)
for step in range(100000):
    model(torch.randn(16, 1024, device="cuda")).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    torch.cuda.synchronize()
    with open(os.path.join(sys.argv[1], f"{dist.get_rank()}"), "w") as file:
        file.write(str(step))
    time.sleep(0.05)
"""
STARTED = 30
"""steps after which the job runs"""


@dataclass(frozen=True)
class GpuFault:
    name: str
    break_it: Callable[[Lab, list[Host]], None]
    slugs: tuple[str, ...]
    gone: tuple[int, ...] = ()
    """hosts from which nothing is expected"""


def cut(_: Lab, hosts: list[Host]) -> None:
    hosts[-1].cut()


def cut_store(_: Lab, hosts: list[Host]) -> None:
    hosts[0].cut()


def black_hole(lab: Lab, hosts: list[Host]) -> None:
    """The switch's port is smaller than the hosts' interfaces: larger packets vanish there."""
    Network(lab.hub).set(port_name(hosts[-1].name, "e0"), mtu=1500)


FAULTS = (
    GpuFault("cut", cut, ("node-lost",), gone=(-1,)),
    GpuFault("store-cut", cut_store, ("store-host-lost", "the coordinator"), gone=(0,)),
    GpuFault("mtu", black_hole, ("mtu-black-hole",)),
)


class GpuJob(NodesJob):
    """Hosts of their own to NCCL."""

    def command(self, host: Host) -> list[str]:
        variables = [f"NCCL_HOSTID={host.name}", "NCCL_SOCKET_IFNAME=e0", "NCCL_IB_DISABLE=1"]
        return ["env", *variables, *super().command(host)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--hosts", type=int, default=4)
    parser.add_argument("--only", nargs="+", choices=[fault.name for fault in FAULTS])
    parser.add_argument("--timeout", type=float, default=600.0)
    parser.add_argument("--screens", action="store_true")
    given = parser.parse_args()
    chosen = [fault for fault in FAULTS if not given.only or fault.name in given.only]
    right = [play(fault, given) for fault in chosen]
    return int(not all(right))


def play(fault: GpuFault, given: argparse.Namespace) -> bool:
    with Lab() as lab, tempfile.TemporaryDirectory(prefix="gpu-nodes-") as folder:
        hosts = [lab.host(name, (LabInterface(mtu=9000),)) for name in NAMES[: given.hosts]]
        script = Path(folder, "train.py")
        script.write_text(SCRIPT)
        steps = Path(folder, "steps")
        with GpuJob(lab, hosts, Path(folder, "job"), nnodes=f"2:{given.hosts}") as job:
            job.script = [str(script), str(steps), str(given.timeout)]
            job.start_all()
            began = time.monotonic()
            while _least_step(steps, given.hosts) < STARTED and time.monotonic() < began + 120:
                time.sleep(0.2)
            print(f"{fault.name}: {_least_step(steps, given.hosts)} steps after "
                  f"{time.monotonic() - began:.0f} s", flush=True)  # fmt: skip
            broken = time.monotonic()
            fault.break_it(lab, hosts)
            here = [host for n, host in enumerate(hosts) if n - len(hosts) not in fault.gone
                    and n not in fault.gone]  # fmt: skip
            said = _wait(job, here, fault, broken)
            for host in hosts:
                print(f"  {host.name}: {said.get(host.name, 'nothing')}", flush=True)
            if given.screens or len(said) < len(here):
                for name, lines in job.screens.items():
                    for line in lines:
                        print(f"    {name} {line.at - broken:7.1f} {line.text}")
            job.end(40)
            return len(said) == len(here)


def _least_step(folder: Path, ranks: int) -> int:
    texts = [Path(folder, str(rank)) for rank in range(ranks)]
    found = [text.read_text() if text.exists() else "" for text in texts]
    return min(int(text) if re.fullmatch(r"\d+", text) else 0 for text in found)


def _wait(job: NodesJob, hosts: list[Host], fault: GpuFault, broken: float) -> dict[str, str]:
    said: dict[str, str] = {}
    while len(said) < len(hosts) and time.monotonic() < broken + 60:
        time.sleep(0.2)
        for host in hosts:
            for line in job.screens[host.name]:
                found = SENTENCE.search(line.text)
                words = found[3] if found else line.text
                right = line.at > broken and any(words.startswith(s) for s in fault.slugs)
                if right and host.name not in said:
                    said[host.name] = f"{line.at - broken:.1f} s: {line.text}"
    return said


if __name__ == "__main__":
    sys.exit(main())
