"""Elastic Horovod has fewer slots than --min-np.

What you see   Training pauses after a host is lost, without an error; ten minutes later `Timed out
               waiting for minimum number of slots to become available. Please check that you have
               enough resources to run at least N Horovod processes.`
Why            Below --min-np an elastic job does not continue: it waits for discovery to find
               hosts, for --elastic-timeout (HOROVOD_ELASTIC_TIMEOUT, 600 s by default), and then
               gives up. --min-np defaults to -np. A host on which a worker failed is blacklisted,
               permanently unless --blacklist-cooldown-range is given, so its slots do not count
               even after it has recovered.
How to be sure Run the discovery script by hand and add up the slots it prints, without those of
               hosts that the log calls blacklisted.
Fix            Use a --min-np the job can run with; --blacklist-cooldown-range for hosts that come
               back; an --elastic-timeout as long as new capacity takes.
Known limits   The log names blacklisted hosts, but not why other hosts were missing.
Sources        horovod/horovod horovod/runner/elastic/driver.py (wait_for_available_slots)
               horovod/horovod horovod/runner/elastic/discovery.py (blacklist)
               https://horovod.readthedocs.io/en/stable/elastic_include.html
"""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.analysis.logs.pattern import Role
from holdfast.analysis.logs.wreckage import Wreckage
from holdfast.analysis.source.launch import command_line
from holdfast.analysis.source.source import Flag, Launch, Source, SourceSetting
from holdfast.fault import Fault
from holdfast.findings import Culprit, Diagnosis, Finding

FAULT = Fault(
    code="HOLD908",
    slug="horovod-below-min",
    related=("horovod-discovery", "preempted", "join-timeout"),
)

GAVE_UP = FAULT.log_pattern(
    "slots",
    r"waiting for minimum number of slots to become available"
    r"(?:.*?at least (?P<least>\d+) Horovod processes)?"
    r"(?:.*?Timeout after (?P<after>\d+) seconds)?",
    anchors="minimum number of slots to become",
    example="horovod.runner.common.util.timeout.TimeoutException: Timed out waiting for minimum "
    "number of slots to become available. Please check that you have enough resources to run at "
    "least 4 Horovod processes. Timeout after 600 seconds.",
)
ALL_BLACKLISTED = FAULT.log_pattern(
    "all-blacklisted",
    r"blacklisted slots count == (?P<count>\d+) -> stop running",
    anchors="blacklisted slots count",
    example="ERROR:root:blacklisted slots count == 8 -> stop running",
)
BLACKLISTED = FAULT.log_pattern(
    "blacklisted",
    r"blacklist failing host: (?P<host>\S+)",
    anchors="blacklist failing host",
    example="INFO:root:blacklist failing host: node07",
    role=Role.CONFIRMATION,
)


@FAULT.explain
def slots_below_min_np(wreckage: Wreckage) -> Diagnosis | None:
    seen = wreckage.seen(GAVE_UP, ALL_BLACKLISTED)
    if not seen:
        return None
    blacklisted = wreckage.seen(BLACKLISTED)
    hosts = sorted({one.fields["host"] for one in blacklisted})
    fields = {name: value for one in seen for name, value in one.fields.items()}
    minimum = f"--min-np {fields['least']}" if "least" in fields else "--min-np"
    waited = f" within {fields['after']} s" if "after" in fields else ""
    lost = f"; {', '.join(hosts)} had been blacklisted after a failure" if hosts else ""
    return FAULT.diagnosis(
        f"Horovod had fewer slots than {minimum} needs, and no more became available{waited}{lost}",
        confidence=0.93,
        seen=(*seen, *blacklisted),
        culprit=Culprit(
            host=hosts[0] if len(hosts) == 1 else "", what=", ".join(hosts) if hosts else minimum
        ),
        fix="use a --min-np that the remaining hosts can serve, --blacklist-cooldown-range MIN MAX "
        "where failed hosts come back, and an --elastic-timeout as long as new hosts take; run "
        "the host discovery script to see the current slots",
        unknown=() if hosts else ("why hosts were missing: the log names none",),
    )


# --- lint ----------------------------------------------------------------------------------------

TIMEOUT_VARIABLE = "HOROVOD_ELASTIC_TIMEOUT"
DEFAULT_SECONDS = 600


@FAULT.lint
def elastic_timeout_misconfigured(source: Source) -> Iterator[Finding]:
    for setting in source.settings:
        if setting.name == TIMEOUT_VARIABLE and setting.known and setting.by != "unset":
            if not setting.value.strip().isdecimal():
                yield FAULT.error(
                    f"{TIMEOUT_VARIABLE}={setting.value} is not a number of seconds",
                    reason="Horovod's driver reads it with int() and fails with a ValueError",
                    fix=f"`export {TIMEOUT_VARIABLE}={DEFAULT_SECONDS}`",
                    at=setting.place,
                )
            elif int(setting.value) < DEFAULT_SECONDS:
                yield _shorter_than_default(f"{TIMEOUT_VARIABLE}={setting.value}", setting)
    for launch in source.launches:
        if launch.kind == "horovodrun":
            yield from _judge_flag(launch)


def _judge_flag(launch: Launch) -> Iterator[Finding]:
    flag = launch.flag("elastic-timeout")
    seconds = command_line.number(flag)
    if flag is None or seconds is None:
        return
    setting = command_line.exported(launch, TIMEOUT_VARIABLE)
    if seconds == 0:
        yield FAULT.warning(
            f"--elastic-timeout 0 means {DEFAULT_SECONDS} s, not 'at once' or 'never'",
            reason=f"Horovod treats 0 as 'not given' and uses {TIMEOUT_VARIABLE}, then "
            f"{DEFAULT_SECONDS} s",
            fix=f"`--elastic-timeout {DEFAULT_SECONDS}`, or as long as new hosts take",
            at=flag.place,
        )
    elif setting is not None and setting.known and setting.value != flag.value:
        yield FAULT.note(
            f"--elastic-timeout {seconds} overrides {TIMEOUT_VARIABLE}={setting.value}",
            reason="the variable is read only without the option",
            fix="keep one of the two",
            at=flag.place,
        )
    elif seconds < DEFAULT_SECONDS:
        yield _shorter_than_default(f"--elastic-timeout {seconds}", flag)


def _shorter_than_default(said: str, what: SourceSetting | Flag) -> Finding:
    return FAULT.note(
        f"{said}: below --min-np the job gives up sooner than by default ({DEFAULT_SECONDS} s)",
        reason="it waits that long for slots; a host that takes longer comes too late",
        fix="use the time that new hosts take, for example `--elastic-timeout 1800`",
        at=what.place,
    )
