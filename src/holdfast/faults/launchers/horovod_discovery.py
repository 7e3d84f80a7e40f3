"""Elastic Horovod cannot find new hosts, or gives up those that failed.

What you see   `ValueError: Cannot run in fault tolerance mode with fewer than 2 hosts.` at once;
               or a job that shrinks and never grows again, although machines have come back.
Why            --min-np alone makes the job elastic, but hosts are found by
               --host-discovery-script. Without one the list is fixed: that of -H or --hostfile,
               and without those localhost alone, which Horovod refuses. A host on which a worker
               failed is put on a blacklist, for good unless --blacklist-cooldown-range is given.
               --min-np is -np unless said otherwise: then one lost worker pauses the job.
How to be sure Run the discovery script: it must print `host:slots`, a line per host.
Fix            `horovodrun -np 8 --min-np 4 --max-np 12 --host-discovery-script ./hosts.sh
               --blacklist-cooldown-range 60 600 python train.py`
Sources        horovod/horovod horovod/runner/launch.py (_run_elastic, _is_elastic)
               horovod/horovod horovod/runner/elastic/discovery.py (blacklist, cool-down)
               https://horovod.readthedocs.io/en/stable/elastic_include.html
"""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.analysis.source.launch import questions
from holdfast.analysis.source.source import Flag, Launch, Source
from holdfast.fault import Fault
from holdfast.findings import Finding

FAULT = Fault(code="HOLD909", slug="horovod-discovery")

ASK = "`--host-discovery-script ./hosts.sh`, a script that prints `host:slots` for each host"


@FAULT.lint
def hosts_cannot_come_and_go(source: Source) -> Iterator[Finding]:
    for launch in source.launches:
        if launch.kind != "horovodrun" or questions.hides_flags(launch):
            continue
        least = launch.flag("min-np", "min-num-proc")
        script = launch.flag("host-discovery-script")
        if launch.flag("config-file") is not None or (least is None and script is None):
            continue
        if least is not None and script is None:
            yield from _no_script(source, launch, least)
            continue  # once it finds hosts, the rest can be asked
        yield from _numbers(launch, least)
        if launch.flag("blacklist-cooldown-range") is None:
            yield _no_cool_down(launch, least or script)


def _no_script(source: Source, launch: Launch, least: Flag) -> Iterator[Finding]:
    hosts = launch.flag("hosts", "host")
    if hosts is None and launch.flag("hostfile") is None:
        speak = FAULT.error if source.complete else FAULT.warning  # a text may leave hosts out
        yield speak(
            "--min-np asks for an elastic job, and nothing says on which hosts",
            reason="without hosts horovodrun takes localhost, and refuses: 'Cannot run in fault "
            "tolerance mode with fewer than 2 hosts'",
            fix=ASK,
            at=least.place,
        )
    elif hosts is not None and hosts.known and "," not in hosts.value:
        yield FAULT.error(
            f"an elastic job with one host, {hosts.value}",
            reason="horovodrun refuses: 'Cannot run in fault tolerance mode with fewer than 2 "
            "hosts'",
            fix=ASK,
            at=hosts.place,
        )
    else:
        yield FAULT.warning(
            "--min-np without --host-discovery-script: the list of hosts is fixed",
            reason="the job can shrink, but no new host is ever found, so --max-np beyond their "
            "slots is never reached",
            fix=ASK,
            at=least.place,
        )


def _numbers(launch: Launch, least: Flag | None) -> Iterator[Finding]:
    start = launch.flag("np", "num-proc")
    low, count = questions.number(least), questions.number(start)
    most = launch.flag("max-np", "max-num-proc")
    high = questions.number(most)
    if low is not None and high is not None and most is not None and low > high:
        yield FAULT.error(
            f"--min-np {low} is more than --max-np {high}",
            reason="the job can never have as many workers as it needs and as few as it may have",
            fix=f"`--min-np {high} --max-np {low}`, if they were exchanged",
            at=most.place,
        )
    elif start is not None and count is not None and (least is None or low == count):
        said = f"--min-np {low} equals -np" if least else f"--min-np is -np ({count}) here"
        yield FAULT.note(
            f"{said}: one lost worker pauses the job",
            reason="below --min-np Horovod waits for new slots, 600 s by default, and then ends",
            fix="a --min-np that the job can live with while hosts are away",
            at=(least or start).place,
        )


def _no_cool_down(launch: Launch, flag: Flag | None) -> Finding:
    return FAULT.note(
        "no --blacklist-cooldown-range: a host that failed once is never used again",
        reason="Horovod puts it on a blacklist for the rest of the job; on hosts that come back, "
        "as spot machines do, its slots stay unused",
        fix="`--blacklist-cooldown-range 60 600`: tried again after 60 to 600 s",
        at=(flag or launch).place,
    )
