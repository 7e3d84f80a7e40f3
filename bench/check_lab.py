"""A check of several hosts, beside what the same checks cost one by one.

    python -m bench.check_lab [--hosts 8] [--repeats 3]

Needs root (drill/lab): the hosts are network namespaces of this machine and share its cores, so
the limit is the processor: as many one-machine checks as there are hosts, divided by the cores.
Everything but `--smoke`; medians, in turns.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import time

from holdfast.drill.lab import Host, Lab

CHECK = (sys.executable, "-m", "holdfast", "check", "--fail-on", "never")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--hosts", type=int, default=8)
    parser.add_argument("--repeats", type=int, default=3)
    given = parser.parse_args()
    together, alone = [], []
    with Lab() as lab:
        hosts = lab.hosts(given.hosts)
        for _ in range(given.repeats):
            alone.append(processor_seconds(lab, hosts[0]))
            together.append(seconds_of_all(lab, hosts))
    took, one = statistics.median(together), statistics.median(alone)
    cores = len(os.sched_getaffinity(0))
    limit = given.hosts * one / cores
    print(f"{given.hosts} hosts, {cores} cores, load {os.getloadavg()[0]:.1f}; medians")
    print(f"check of all nodes          {took:6.2f} s ({min(together):.2f}-{max(together):.2f})")
    print(f"one-machine checks, CPU / cores {limit:6.2f} s   ratio {took / limit:.2f}")


def seconds_of_all(lab: Lab, hosts: list[Host]) -> float:
    began = time.monotonic()
    join = ("--nnodes", str(len(hosts)), "--join", f"{hosts[0].address}:29501")
    started = [
        lab.start(host, [*CHECK, *join], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for host in hosts
    ]
    codes = [process.wait() for process in started]
    assert not any(codes), f"exit codes {codes}"
    return time.monotonic() - began


def processor_seconds(lab: Lab, host: Host) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    lab.run(host, [*CHECK, "--nnodes", "2"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


if __name__ == "__main__":
    main()
