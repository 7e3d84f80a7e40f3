"""Elastic Horovod cannot find new hosts, or never reuses failed ones.

What you see   `ValueError: Cannot run in fault tolerance mode with fewer than 2 hosts.` at once; or
               a job that shrinks and never grows again, although machines have come back.
Why            --min-np alone makes the job elastic, but hosts are found by --host-discovery-script.
               Without one the list is fixed: that of -H or --hostfile, and without those only
               localhost, which Horovod refuses. A host on which a worker failed is blacklisted,
               permanently unless --blacklist-cooldown-range is given. --min-np defaults to -np:
               then one lost worker pauses the job.
How to be sure Run the discovery script: it must print `host:slots`, one line per host.
Fix            `horovodrun -np 8 --min-np 4 --max-np 12 --host-discovery-script ./hosts.sh
               --blacklist-cooldown-range 60 600 python train.py`
Known limits   Lint does not run the discovery script and does not read configuration files
               (--config-file).
Sources        horovod/horovod horovod/runner/launch.py (_run_elastic, _is_elastic)
               horovod/horovod horovod/runner/elastic/discovery.py (blacklist, cool-down)
               https://horovod.readthedocs.io/en/stable/elastic_include.html
"""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.analysis.source.launch import command_line
from holdfast.analysis.source.source import Flag, Launch, Source
from holdfast.fault import Fault
from holdfast.findings import Finding

FAULT = Fault(
    code="HOLD909", slug="horovod-discovery", related=("horovod-below-min", "launcher-config")
)

ADD_SCRIPT = (
    "add `--host-discovery-script ./hosts.sh`, a script that prints `host:slots` for each host"
)


@FAULT.lint
def elastic_hosts_misconfigured(source: Source) -> Iterator[Finding]:
    for launch in source.launches:
        if launch.kind != "horovodrun" or command_line.hides_flags(launch):
            continue
        minimum = launch.flag("min-np", "min-num-proc")
        script = launch.flag("host-discovery-script")
        if launch.flag("config-file") is not None or (minimum is None and script is None):
            continue
        if minimum is not None and script is None:
            yield from _no_discovery_script(source, launch, minimum)
            continue  # the rest matters only once it finds hosts
        yield from _process_counts(launch, minimum)
        if launch.flag("blacklist-cooldown-range") is None:
            yield _no_cooldown(launch, minimum or script)


def _no_discovery_script(source: Source, launch: Launch, minimum: Flag) -> Iterator[Finding]:
    hosts = launch.flag("hosts", "host")
    if hosts is None and launch.flag("hostfile") is None:
        report = FAULT.error if source.complete else FAULT.warning  # a fragment may leave hosts out
        yield report(
            "--min-np makes the job elastic, but no hosts are given",
            reason="without hosts horovodrun uses localhost and refuses: 'Cannot run in fault "
            "tolerance mode with fewer than 2 hosts'",
            fix=ADD_SCRIPT,
            at=minimum.place,
        )
    elif hosts is not None and hosts.known and "," not in hosts.value:
        yield FAULT.error(
            f"an elastic job with one host, {hosts.value}",
            reason="horovodrun refuses: 'Cannot run in fault tolerance mode with fewer than 2 "
            "hosts'",
            fix=ADD_SCRIPT,
            at=hosts.place,
        )
    else:
        yield FAULT.warning(
            "--min-np without --host-discovery-script: the list of hosts is fixed",
            reason="the job can shrink, but no new host is ever found, so --max-np beyond their "
            "slots is never reached",
            fix=ADD_SCRIPT,
            at=minimum.place,
        )


def _process_counts(launch: Launch, minimum: Flag | None) -> Iterator[Finding]:
    start = launch.flag("np", "num-proc")
    low, count = command_line.number(minimum), command_line.number(start)
    most = launch.flag("max-np", "max-num-proc")
    high = command_line.number(most)
    if low is not None and high is not None and most is not None and low > high:
        yield FAULT.error(
            f"--min-np {low} is more than --max-np {high}",
            reason="no number of workers satisfies both",
            fix=f"`--min-np {high} --max-np {low}`, if they were swapped",
            at=most.place,
        )
    elif start is not None and count is not None and (minimum is None or low == count):
        said = f"--min-np {low} equals -np" if minimum else f"--min-np is -np ({count}) here"
        yield FAULT.note(
            f"{said}: one lost worker pauses the job",
            reason="below --min-np Horovod waits for new slots, 600 s by default, and then gives "
            "up",
            fix="use a --min-np that the job can run with while hosts are away",
            at=(minimum or start).place,
        )


def _no_cooldown(launch: Launch, flag: Flag | None) -> Finding:
    return FAULT.note(
        "no --blacklist-cooldown-range: a host that failed once is never used again",
        reason="Horovod blacklists it for the rest of the job; if it comes back, as spot machines "
        "do, its slots stay unused",
        fix="add `--blacklist-cooldown-range 60 600` to retry it after 60 to 600 s",
        at=(flag or launch).place,
    )
