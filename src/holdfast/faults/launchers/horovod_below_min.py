"""Elastic Horovod has fewer slots than it was told to need.

What you see   Training pauses after a host is lost, without an error; ten minutes later `Timed out
               waiting for minimum number of slots to become available. Please check that you have
               enough resources to run at least N Horovod processes.`
Why            Below --min-np an elastic job does not go on: it waits for discovery to find hosts,
               for --elastic-timeout (HOROVOD_ELASTIC_TIMEOUT, 600 s by default), and then gives
               up. --min-np is -np unless you say otherwise. A host on which a worker failed is on
               the blacklist, for good unless --blacklist-cooldown-range is given, so its slots do
               not count even when it is well again.
How to be sure Run the discovery script by hand and add up the slots it prints, without those of
               hosts that the log calls blacklisted.
Fix            A --min-np the job can live with; --blacklist-cooldown-range on hosts that come back;
               --elastic-timeout as long as new capacity takes.
Sources        horovod/horovod horovod/runner/elastic/driver.py (wait_for_available_slots)
               horovod/horovod horovod/runner/elastic/discovery.py (blacklist)
               https://horovod.readthedocs.io/en/stable/elastic_include.html
"""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.analysis.logs.pattern import Role
from holdfast.analysis.logs.wreckage import Wreckage
from holdfast.analysis.source.launch import questions
from holdfast.analysis.source.source import Flag, Launch, Source, SourceSetting
from holdfast.fault import Fault
from holdfast.findings import Culprit, Diagnosis, Finding

FAULT = Fault(code="HOLD908", slug="horovod-below-min")

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
def too_few_slots_came(wreckage: Wreckage) -> Diagnosis | None:
    seen = wreckage.seen(GAVE_UP, ALL_BLACKLISTED)
    if not seen:
        return None
    struck = wreckage.seen(BLACKLISTED)
    hosts = sorted({one.fields["host"] for one in struck})
    fields = {name: value for one in seen for name, value in one.fields.items()}
    least = f"--min-np {fields['least']}" if "least" in fields else "--min-np"
    waited = f" within {fields['after']} s" if "after" in fields else ""
    lost = f"; {', '.join(hosts)} had been put on the blacklist after a failure" if hosts else ""
    return FAULT.diagnosis(
        f"Horovod had fewer slots than {least} needs, and none came{waited}{lost}",
        confidence=0.93,
        seen=(*seen, *struck),
        culprit=Culprit(
            host=hosts[0] if len(hosts) == 1 else "", what=", ".join(hosts) if hosts else least
        ),
        fix="start with a --min-np that the hosts left can serve, give "
        "--blacklist-cooldown-range MIN MAX where failed hosts come back, and an "
        "--elastic-timeout as long as new hosts take; run the host discovery script to see the "
        "slots Horovod sees now",
        unknown=() if hosts else ("why hosts were missing: the log names none",),
    )


# --- in what a user wrote ------------------------------------------------------------------------

TIMEOUT = "HOROVOD_ELASTIC_TIMEOUT"
DEFAULT = 600


@FAULT.lint
def it_waits_as_long_as_it_is_told(source: Source) -> Iterator[Finding]:
    for setting in source.settings:
        if setting.name == TIMEOUT and setting.known and setting.by != "unset":
            if not setting.value.strip().isdecimal():
                yield FAULT.error(
                    f"{TIMEOUT}={setting.value} is no number of seconds",
                    reason="Horovod's driver reads it with int() and ends with a ValueError",
                    fix=f"`export {TIMEOUT}={DEFAULT}`",
                    at=setting.place,
                )
            elif int(setting.value) < DEFAULT:
                yield _short(f"{TIMEOUT}={setting.value}", setting)
    for launch in source.launches:
        if launch.kind == "horovodrun":
            yield from _by_flag(launch)


def _by_flag(launch: Launch) -> Iterator[Finding]:
    flag = launch.flag("elastic-timeout")
    seconds = questions.number(flag)
    if flag is None or seconds is None:
        return
    setting = questions.exported(launch, TIMEOUT)
    if seconds == 0:
        yield FAULT.warning(
            f"--elastic-timeout 0 means {DEFAULT} s, not 'at once' or 'for ever'",
            reason=f"Horovod takes 0 for 'not given', then {TIMEOUT}, then {DEFAULT} s",
            fix=f"`--elastic-timeout {DEFAULT}`, or as long as new hosts take",
            at=flag.place,
        )
    elif setting is not None and setting.known and setting.value != flag.value:
        yield FAULT.note(
            f"--elastic-timeout {seconds} goes before {TIMEOUT}={setting.value}",
            reason="the variable is read only where the option is not given",
            fix="keep one of the two",
            at=flag.place,
        )
    elif seconds < DEFAULT:
        yield _short(f"--elastic-timeout {seconds}", flag)


def _short(said: str, what: SourceSetting | Flag) -> Finding:
    return FAULT.note(
        f"{said}: below --min-np the job ends sooner than by default ({DEFAULT} s)",
        reason="it waits that long for slots to come back; a host that takes longer comes too late",
        fix="as long as new hosts take: `--elastic-timeout 1800`",
        at=what.place,
    )
