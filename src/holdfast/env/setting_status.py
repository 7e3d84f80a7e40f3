"""Every setting in force: whether it takes effect, and which programs read it. Pure.

The check faces of faults judge; here their findings are put beside the setting they are about, and
what no fault is about is added: what overrides it, whether it repeats the default, whether anything
here reads it at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from holdfast import catalogue
from holdfast.analysis import variables
from holdfast.analysis.machine import Setting, Unread, known
from holdfast.analysis.variables import Variable, nccl_groups
from holdfast.analysis.variables.status import Effect, SettingStatus
from holdfast.analysis.versions import release
from holdfast.env import launcher_overrides, nic_choice, readers
from holdfast.env.job import Job
from holdfast.findings import Finding, Status

NOT_IN_TABLE = (Effect.UNKNOWN, Status.OK, "not in holdfast's table; your script may read it")
READ_FILES = ("NCCL", "NCCL plugins and tests")
TOO_LATE = "only NCCL reads its files, when it starts: too late for everything else"
NOT_BY_NEWER_GROUPS = (
    f"not read by the NCCL groups of torch {nccl_groups.NEWER_SINCE} and later, except with "
    f"{nccl_groups.SWITCH}=0"
)
BUILDS = "build tools"
ASYNC = "TORCH_NCCL_ASYNC_ERROR_HANDLING"
MODES = ("1", "3")
"""of it: torchrun's own, and torch's"""


def judge(job: Job) -> tuple[SettingStatus, ...]:
    """The status of every setting in force."""
    by_name = _by_name(_findings(job))
    search = job.facts.variable_search
    proof = {} if isinstance(search, Unread) else search.found
    return tuple(
        _status_of(
            setting, job, by_name.get(setting.name, []), readers.readers(setting.name, proof)
        )
        for setting in known(job.facts.settings)
    )


def _findings(job: Job) -> list[Finding]:
    """What every fault says that looks at settings."""
    asked = (entry.fault for entry in catalogue.entries() if "settings" in entry.fault.needs)
    found = (one for fault in asked for one in fault.ask_check(job.facts))
    return [one for one in found if one.status.concern]


def _by_name(findings: Sequence[Finding]) -> dict[str, list[Finding]]:
    """By the settings that they are about, the worst first."""
    found: dict[str, list[Finding]] = {}
    for one in sorted(findings, key=lambda f: -f.status.concern):
        for name in one.about:
            found.setdefault(name, []).append(one)
    return found


def added(job: Job) -> tuple[SettingStatus, ...]:
    """What the launcher sets by itself where you do not."""
    return tuple(
        SettingStatus(
            name=name,
            value=value,
            origin=by,
            verdict=Effect.IN_FORCE,
            status=Status.OK,
            why=f"{by} sets it because you did not",
            row=variables.lookup(name),
        )
        for name, value, by in launcher_overrides.added(job.launches, job.facts.plan.nproc)
        if job.setting(name) is None and (name != ASYNC or job.has_nccl)
    )


def lost(job: Job, overridden: Iterable[Setting]) -> tuple[SettingStatus, ...]:
    """What a file says of a variable that has its value from elsewhere."""
    found = []
    for setting in overridden:
        winner = job.setting(setting.name)
        by = job.origin(winner) if winner else "another line"
        found.append(
            SettingStatus(
                name=setting.name,
                value=setting.value,
                origin=setting.origin,
                verdict=Effect.OVERRIDDEN,
                status=Status.OK,
                why=f"overridden by the {by}" if "/" not in by else f"overridden by {by}",
                row=variables.lookup(setting.name),
            )
        )
    return tuple(found)


def _status_of(
    setting: Setting, job: Job, findings: list[Finding], proof: tuple[str, ...]
) -> SettingStatus:
    row = variables.lookup(setting.name)
    plain = SettingStatus(
        name=setting.name,
        value=setting.value,
        origin=job.origin(setting),
        verdict=Effect.IN_FORCE,
        status=Status.OK,
        row=row,
        read_by=proof,
    )
    if findings:
        return _with_finding(plain, findings[0])
    by, instead = launcher_overrides.overridden(setting.name, job.launches)
    if by:
        return _say(plain, Effect.OVERRIDDEN, Status.NOTE, f"overridden by {by}", instead)
    return _by_table(plain, row, setting, job) if row else _say(plain, *NOT_IN_TABLE)


def _by_table(plain: SettingStatus, row: Variable, setting: Setting, job: Job) -> SettingStatus:
    if unread := _not_read_any_more(plain, row, job):
        return unread
    if setting.origin != "environment" and row.reader not in READ_FILES:
        return _say(plain, Effect.NO_EFFECT, Status.WARNING, TOO_LATE, "export it instead")
    if absent := readers.absent(row, job, plain.read_by):
        return _say(plain, Effect.NO_READER, Status.OK, absent)
    if why := _redundant(setting, row, job):
        return _say(plain, Effect.REDUNDANT, Status.OK, why, f"`unset {setting.name}`")
    if choice := nic_choice.sentence(setting.name, job.facts):
        return _say(plain, Effect.IN_FORCE, Status.OK, choice)
    return plain


def _not_read_any_more(plain: SettingStatus, row: Variable, job: Job) -> SettingStatus | None:
    if not row.is_read:
        return _say(plain, Effect.NO_EFFECT, Status.WARNING, "read by no program", row.effect)
    if row.reader == BUILDS:
        return _say(plain, Effect.NO_EFFECT, Status.OK, f"{row.effect}; not read when a job runs")
    if row.obsolete:
        return _say(plain, Effect.NO_EFFECT, Status.NOTE, row.effect, f"`unset {row.name}`")
    if row.older_groups and job.newer_nccl_groups:
        why = NOT_BY_NEWER_GROUPS
        return _say(plain, Effect.NO_EFFECT, Status.NOTE, why, f"`unset {row.name}`")
    return None


def _say(
    plain: SettingStatus, effect: Effect, status: Status, why: str, fix: str = "", summary: str = ""
) -> SettingStatus:
    return msgspec.structs.replace(
        plain, verdict=effect, status=status, why=why, fix=fix, summary=summary or why
    )


def _with_finding(plain: SettingStatus, finding: Finding) -> SettingStatus:
    worse = finding.status in (Status.ERROR, Status.WARNING)
    named = catalogue.by_slug(finding.slug).setting_effect
    effect = named or (Effect.HARMFUL if worse else Effect.IN_FORCE)
    if effect is Effect.NO_EFFECT and plain.row is None and not worse:
        effect = Effect.UNKNOWN
    why = f"{finding.summary}: {finding.reason}"
    return _say(plain, effect, finding.status, why, finding.fix, finding.summary)


def _redundant(setting: Setting, row: Variable, job: Job) -> str:
    """Where it repeats the default; defaults change, so only for versions we read."""
    if setting.name == ASYNC and setting.value in MODES:
        return "on by default: 3 in torch, 1 for what torchrun starts"
    read_from = variables.version_of(row)
    if not read_from or not row.default or setting.value.lower() != row.default.lower():
        return ""
    name, _, table_version = read_from.rpartition(" ")
    package = {"NCCL": "nccl"}.get(name, name.lower())
    version = job.version(package)
    oldest = variables.defaults_since(row)
    if version and release(version)[:2] < release(oldest)[:2]:
        return ""
    versions = table_version if oldest == table_version else f"{oldest} to {table_version}"
    return f"{row.default} is the default ({name} {versions})"
