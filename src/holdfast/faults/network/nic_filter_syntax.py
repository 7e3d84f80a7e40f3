"""The interface filter is not read as it was meant.

What you see   NCCL: `no socket interface found` although the interface exists, or a job on several
               machines that hangs at its first collective because NCCL chose lo. Gloo: `Unable to
               find address for: ^docker0`. Or nothing at all: the value is ignored.
Why            NCCL_SOCKET_IFNAME takes `^` (not) and `=` (exact) once, in front of the whole list:
               in `=eth0,=eth1` the second name is literally `=eth1`. Blanks are part of the name. A
               value of one character is ignored by both NCCL and torch's Gloo. `^docker0` excludes
               nothing else, so lo is admitted, usually first. GLOO_SOCKET_IFNAME supports neither
               `^` nor `=`: only exact names separated by commas. In an nccl.conf nothing is
               trimmed: `NCCL_SOCKET_IFNAME = eth0` sets a variable whose name ends in a blank.
How to be sure NCCL_DEBUG=INFO prints `NCCL_SOCKET_IFNAME set to …` and `NET/Socket : Using …`, the
               interface it uses. `holdfast check` reads the value by NCCL's and Gloo's own rules.
Fix            Name the interface: `NCCL_SOCKET_IFNAME==eth0` or `=eth0,eth1`, and the same names
               without any sign for Gloo. If you must exclude, exclude lo as well: `^docker,lo`.
Known limits   Whether the names exist is the question of nic-name-missing, and whether `^docker0`
               makes NCCL take lo that of wrong-nic. In a log the value is
               known only if the job printed its environment or NCCL ran with NCCL_DEBUG=INFO.
Sources        NVIDIA/nccl src/os/linux.cc, src/misc/utils.cc (parseStringList), src/misc/param.cc
               https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html
               https://github.com/horovod/horovod/issues/700
               https://github.com/aws-samples/aws-do-eks/issues/51
               pytorch/gloo gloo/transport/tcp/device.cc
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import msgspec

from holdfast import shell_words
from holdfast.analysis.logs.patterns import missing_interfaces
from holdfast.analysis.logs.wreckage import Wreckage
from holdfast.analysis.machine import (
    CouldNotLook,
    MachineFacts,
    Setting,
    gloo_choice,
    known,
    nccl_choice,
    nic_filter,
)
from holdfast.analysis.source.source import Source, SourceKind
from holdfast.analysis.variables.in_source import as_fact, at, judged, put, without
from holdfast.fault import Fault
from holdfast.findings import Culprit, Diagnosis, Evidence, Finding

FAULT = Fault(
    code="HOLD203",
    slug="nic-filter-syntax",
    related=("nic-name-missing", "wrong-nic", "loopback-multi-node"),
)


@FAULT.check(needs=("interfaces", "master_name", "own_name", "settings", "software"))
def interface_filter_is_misread(facts: MachineFacts) -> Finding | list[Finding]:
    settings = [
        s for s in known(facts.settings) if s.name.strip() in (nic_filter.NCCL, nic_filter.GLOO)
    ]
    if not settings:
        return FAULT.does_not_apply("NCCL_SOCKET_IFNAME and GLOO_SOCKET_IFNAME are not set")
    problems = [
        msgspec.structs.replace(problem, evidence=(*problem.evidence, *_effect(setting, facts)))
        for setting in settings
        for problem in _problems(setting)
    ]
    return problems or FAULT.ok(", ".join(f"{s.name}={s.value} is well formed" for s in settings))


def _effect(setting: Setting, facts: MachineFacts) -> Iterator[Evidence]:
    """What the library makes of it on this machine, as far as that is known."""
    simulate = gloo_choice.choose if setting.name == nic_filter.GLOO else nccl_choice.bootstrap
    with contextlib.suppress(CouldNotLook):
        yield simulate(facts).evidence


def _problems(setting: Setting) -> Iterator[Finding]:
    if setting.name != setting.name.strip():
        yield FAULT.warning(
            f"the name of {setting.name.strip()!r} contains a blank, so no program reads it",
            reason=f"nccl.conf is not trimmed: the variable set there is {setting.name!r}",
            evidence=[setting.evidence],
            fix=f"write `{shell_words.setting(setting.name.strip(), setting.value.strip())}` "
            "without blanks at "
            f"{setting.origin}",
        )
    elif nic_filter.is_ignored(setting.value):
        if setting.value:
            yield FAULT.warning(
                f"{setting.name}={setting.value} is ignored: a value of one character is not read "
                "as a name",
                reason="the interface is chosen as if the variable were not set",
                evidence=[setting.evidence],
                fix=f"write the whole name, or {without(setting)}",
            )
    elif setting.name == nic_filter.GLOO:
        yield from _gloo_problems(setting)
    else:
        yield from _nccl_problems(setting)


def _gloo_problems(setting: Setting) -> Iterator[Finding]:
    names = nic_filter.read_gloo(setting.value)
    wrong = [name for name in names if nic_filter.strange(name)]
    if not wrong:
        return
    signs = any(name[:1] in ("^", "=") for name in wrong)
    note = "`^` and `=` work for NCCL only; " if signs else ""
    yield FAULT.error(
        f"{setting.name}={setting.value}: Gloo reads {wrong[0]!r} as the name of an interface",
        reason=f"{note}Gloo accepts exact names separated by commas, without blanks; "
        "init_process_group will raise",
        evidence=[setting.evidence],
        fix=f"{put(setting, setting.name, 'NAME[,NAME]')} with names from `ip -br addr`",
    )


def _nccl_problems(setting: Setting) -> Iterator[Finding]:
    understood = nic_filter.read_nccl(setting.value)
    wrong = [name for name in understood.names if nic_filter.strange(name)]
    if not wrong:
        return
    sign = "^" * understood.exclude + "=" * understood.exact
    repaired = [name.strip(" \t'\"").lstrip("^=!") for name in understood.names]
    repaired = [name for name in repaired if name and not nic_filter.strange(name)]
    none_left = not understood.exclude and len(wrong) == len(understood.names)
    speak = FAULT.error if none_left else FAULT.warning
    effect = (
        "no valid name is left, so NCCL finds no interface and fails"
        if none_left
        else "`^` and `=` apply to all names, and blanks are part of a name; the other names "
        "still work"
    )
    yield speak(
        f"{setting.name}={setting.value}: {wrong[0]!r} cannot match any interface",
        reason=f"{nic_filter.strange(wrong[0])}; {effect}",
        evidence=[setting.evidence],
        fix=put(setting, setting.name, sign + ",".join(repaired or ["NAME"])),
    )


# --- in what a user wrote -----------------------------------------------------------------------


@FAULT.lint
def interface_filter_is_miswritten(source: Source) -> Iterator[Finding]:
    for setting in judged(source):
        blanks = setting.name != setting.name.strip()
        if setting.name.strip() not in (nic_filter.NCCL, nic_filter.GLOO) or not setting.known:
            continue
        if not blanks or source.kind is SourceKind.NCCL_CONF:
            yield from (at(f, setting) for f in _problems(as_fact(setting)))


# --- in what is left of a job -------------------------------------------------------------------


@FAULT.explain
def sign_was_read_as_part_of_a_name(wreckage: Wreckage) -> Diagnosis | None:
    """Only if no interface was found: a filter that works despite its form is not the cause."""
    none = wreckage.seen(*missing_interfaces.ALL)
    for seen in none:
        gloo = seen.pattern == missing_interfaces.GLOO_NONE.name
        name = nic_filter.GLOO if gloo else nic_filter.NCCL
        value = wreckage.settings.get(name) or (seen.fields.get("name", "") if gloo else "")
        if value and nic_filter.has_misread_sign(name, value):
            break
    else:
        return None
    rule = (
        "Gloo accepts only exact names separated by commas"
        if gloo
        else "`^` and `=` are allowed once, in front of the whole list, and blanks and quotes are "
        "part of a name"
    )
    return FAULT.diagnosis(
        f"{name}={value} is not read as it was meant: {rule}. No interface matched",
        confidence=0.8 if gloo else 0.85,
        seen=none,
        culprit=Culprit(what=f"{name}={value}", host=none[0].line.host),
        fix=f"`export {name}={'eth0' if gloo else '=eth0'}` with a name from `ip -br addr`",
        next="ip -br address",
    )
