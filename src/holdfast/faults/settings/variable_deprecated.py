"""A variable has an old name.

What you see   torch warns once per process: `Environment variable NCCL_ASYNC_ERROR_HANDLING is
               deprecated; use TORCH_NCCL_ASYNC_ERROR_HANDLING instead`. Or nothing, and the setting
               has no effect.
Why            torch 2.2 renamed its own NCCL_ variables to TORCH_NCCL_. The old names are still
               read, but the new ones win. torchrun sets TORCH_NCCL_ASYNC_ERROR_HANDLING itself, so
               under torchrun the old name of that one has no effect, whatever its value.
               Conversely, torch before 2.2 ignores the new names. NCCL has renamed and dropped
               variables over the years as well.
How to be sure `python -c 'import torch; print(torch.__version__)'`; in a rank started by torchrun,
               print os.environ and look for both names.
Fix            Use the name that fits the installed version; the finding gives it.
Known limits   For a version of torch or NCCL that is not installed where holdfast runs, the newest
               known version is assumed.
Sources        torch 2.13.0: torch/csrc/distributed/c10d/Utils.hpp, ProcessGroupNCCL.hpp
               torch 2.13.0: torch/distributed/elastic/agent/server/local_elastic_agent.py
               https://github.com/ray-project/ray/issues/47292
               NVIDIA/nccl docs/userguide/source/env.rst
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from holdfast.analysis import variables
from holdfast.analysis.machine import MachineFacts, Setting, known
from holdfast.analysis.source.source import Source
from holdfast.analysis.source.source import SourceSetting as Written
from holdfast.analysis.variables import Variable
from holdfast.analysis.variables.in_source import (
    Environment,
    as_fact,
    at,
    environments,
    once,
    renamed,
    started_by_torchrun,
    started_otherwise,
    without,
)
from holdfast.analysis.variables.status import Effect
from holdfast.analysis.versions import release
from holdfast.fault import Fault
from holdfast.findings import Finding

FAULT = Fault(
    code="HOLD502",
    slug="variable-deprecated",
    related=("variable-unread", "variable-conflict", "variable-redundant"),
    setting_effect=Effect.DEPRECATED,
)

RENAMED = (2, 2)
"""the torch that introduced the TORCH_NCCL_ names"""
CURRENT = (2, 13)
"""the torch that the table was read from"""
ASYNC = "NCCL_ASYNC_ERROR_HANDLING"
OLD_OF = {
    f"TORCH_{old}": old
    for old in (ASYNC, "NCCL_BLOCKING_WAIT", "NCCL_DESYNC_DEBUG", "NCCL_ENABLE_TIMING")
}


class InstalledVersions(NamedTuple):
    """What is installed; '' where that is not known."""

    torch: str
    nccl: str


@FAULT.check(needs=("settings", "software"))
def deprecated_variable_is_set(facts: MachineFacts) -> Finding | list[Finding]:
    rows = [(s, variables.lookup(s.name)) for s in known(facts.settings)]
    candidates = [(s, r) for s, r in rows if r and _has_two_names(s.name, r)]
    if not candidates:
        return FAULT.ok("no variable with a newer name is set")
    software = known(facts.software)
    if not release(software.torch):  # no torch here: neither name is wrong
        candidates = [(s, r) for s, r in candidates if r.reader == "NCCL"]
    versions = InstalledVersions(software.torch, software.nccl[0].version if software.nccl else "")
    # If both names are set the old one has no effect; variable-conflict reports a difference.
    both = {s.name for s, r in candidates if r.reader == "PyTorch" and facts.setting(r.instead)}
    findings = [f for s, r in candidates if s.name not in both and (f := _judge(s, r, versions))]
    names = ", ".join(s.name for s, _ in candidates)
    return findings or FAULT.ok(f"the installed versions read {names}")


def _has_two_names(name: str, row: Variable) -> bool:
    return bool(row.instead or row.until or name in OLD_OF)


def _judge(setting: Setting, row: Variable, versions: InstalledVersions) -> Finding | None:
    """An unknown version is judged as the current one."""
    if row.reader == "NCCL":
        return _nccl_name(setting, row, versions.nccl)
    torch = release(versions.torch) or CURRENT
    if setting.name in OLD_OF:
        return _too_new(setting, versions.torch) if torch < RENAMED else None
    reader = f"torch {versions.torch}" if versions.torch else "torch"
    if row.instead in OLD_OF:
        return _old_name(setting, row, reader) if torch >= RENAMED else None
    # Other renames are known only for the version that the table was read from.
    return _still_read(setting, row, "torch") if torch >= CURRENT else None


def _old_name(setting: Setting, row: Variable, reader: str) -> Finding:
    if setting.name == ASYNC:
        return FAULT.warning(
            f"{setting.name} has no effect under torchrun",
            reason=f"{reader} prefers {row.instead}, which torchrun sets for every rank; with "
            "other launchers the old name still works",
            evidence=[setting.evidence],
            fix=_rename(setting, row),
        )
    return _still_read(setting, row, reader)


def _still_read(setting: Setting, row: Variable, reader: str) -> Finding:
    return FAULT.note(
        f"{setting.name} is the old name of {row.instead}",
        reason=f"{reader} still reads it, but the new name wins if both are set",
        evidence=[setting.evidence],
        fix=_rename(setting, row),
    )


def _rename(setting: Setting, row: Variable) -> str:
    if setting.name == ASYNC and setting.value.strip() in ("1", "2", "3"):
        return f"{without(setting)}: error handling is on by default"
    return renamed(setting, row.instead)


def _too_new(setting: Setting, torch: str) -> Finding:
    return FAULT.warning(
        f"{setting.name} is ignored by torch {torch}",
        reason="the TORCH_NCCL_ names exist since torch 2.2",
        evidence=[setting.evidence],
        fix=f"{renamed(setting, OLD_OF[setting.name])}, or upgrade torch",
    )


def _nccl_name(setting: Setting, row: Variable, version: str) -> Finding | None:
    fix = f"use {row.instead}" if row.instead else without(setting)
    if not row.until:
        return FAULT.note(
            f"{setting.name} is deprecated in favour of {row.instead}",
            reason="NCCL still reads it, but may stop",
            evidence=[setting.evidence],
            fix=f"{fix}; its values may differ, see NCCL's documentation",
        )
    last = release(row.until)
    if not version:
        return FAULT.note(
            f"{setting.name} is read by NCCL up to {row.until} only",
            reason="the installed version of NCCL is not known",
            evidence=[setting.evidence],
            fix=fix,
        )
    if release(version)[: len(last)] <= last:
        return None
    return FAULT.warning(
        f"{setting.name} is no longer read by NCCL {version}",
        reason=f"the last version that read it was {row.until}",
        evidence=[setting.evidence],
        fix=fix,
    )


# --- in what a user wrote -----------------------------------------------------------------------


@FAULT.lint
def script_sets_a_deprecated_variable(source: Source) -> Iterator[Finding]:
    yield from once(f for one in environments(source) for f in _old_names(one, source))


def _old_names(environment: Environment, source: Source) -> Iterator[Finding]:
    versions = InstalledVersions(source.here.torch, source.here.nccl)
    names = {s.name for s in environment.written}
    for setting in environment.written:
        row = variables.lookup(setting.name)
        if row is None or not _has_two_names(setting.name, row):
            continue
        if row.reader == "PyTorch" and row.instead in names:
            continue  # the old one is for older versions, or variable-conflict reports it
        finding = _overridden_by_torchrun(setting, source) or _judge(
            as_fact(setting), row, versions
        )
        if finding and setting.name == ASYNC and started_otherwise(setting, source):
            finding = _still_read(as_fact(setting), row, "torch")
        if finding:
            yield at(finding, setting)


def _overridden_by_torchrun(setting: Written, source: Source) -> Finding | None:
    """The job is started by torchrun, which sets the new name for every rank."""
    torch = release(source.here.torch) or CURRENT
    if setting.name != ASYNC or torch < RENAMED or not started_by_torchrun(setting, source):
        return None
    return FAULT.warning(
        f"{ASYNC}={setting.value} has no effect: the job is started by torchrun",
        reason=f"torchrun sets TORCH_{ASYNC}=1 for every rank unless you set that one, and it wins "
        "over the old name; error handling is on in any case",
        fix="remove it: error handling is on by default, and the variable does not make torch "
        "notice a dead rank sooner",
    )
