"""A variable is spelt the old way.

What you see   torch warns once per process: `Environment variable NCCL_ASYNC_ERROR_HANDLING is
               deprecated; use TORCH_NCCL_ASYNC_ERROR_HANDLING instead`. Or nothing, and the setting
               has no effect.
Why            torch 2.2 renamed its own NCCL_ variables to TORCH_NCCL_. The old names are still
               read, but lose against the new ones. torchrun exports
               TORCH_NCCL_ASYNC_ERROR_HANDLING itself, so under torchrun the old spelling of that
               one is dead, whatever its value. The other way round, torch before 2.2 ignores the
               new names. NCCL has renamed and dropped variables of its own over the years.
How to be sure `python -c 'import torch; print(torch.__version__)'`; in a rank started by torchrun,
               print os.environ and see both names.
Fix            Use the name that fits the installed version; the finding gives it.
Sources        torch 2.13.0: torch/csrc/distributed/c10d/Utils.hpp, ProcessGroupNCCL.hpp
               torch 2.13.0: torch/distributed/elastic/agent/server/local_elastic_agent.py
               https://github.com/ray-project/ray/issues/47292
               NVIDIA/nccl docs/userguide/source/env.rst
"""

from __future__ import annotations

from holdfast import variables
from holdfast.facts import MachineFacts, Setting, Software, known
from holdfast.fault import Fault
from holdfast.model import Evidence, Finding
from holdfast.variables import Variable
from holdfast.variables.values import release

FAULT = Fault(code="HOLD502", slug="variable-deprecated")

RENAMED = (2, 2)
"""the torch that brought the TORCH_NCCL_ names"""
OLD_OF = {
    f"TORCH_{old}": old
    for old in (
        "NCCL_ASYNC_ERROR_HANDLING",
        "NCCL_BLOCKING_WAIT",
        "NCCL_DESYNC_DEBUG",
        "NCCL_ENABLE_TIMING",
    )
}


@FAULT.foresee
def variable_has_a_newer_name(facts: MachineFacts) -> Finding | list[Finding]:
    rows = [(s, variables.lookup(s.name)) for s in known(facts.settings)]
    candidates = [(s, r) for s, r in rows if r and (r.instead or r.until or s.name in OLD_OF)]
    if not candidates:
        return FAULT.ok("no variable with a newer name is set")
    software = known(facts.software)
    # With the new name set as well the old one is moot; variable-conflict speaks if they differ.
    both = {s.name for s, r in candidates if r.reader == "PyTorch" and facts.setting(r.instead)}
    findings = [f for s, r in candidates if s.name not in both and (f := _judge(s, r, software))]
    names = ", ".join(s.name for s, _ in candidates)
    return findings or FAULT.ok(f"spelt as the installed versions want it: {names}")


def _judge(setting: Setting, row: Variable, software: Software) -> Finding | None:
    if row.reader == "NCCL":
        return _nccl_name(setting, row, software)
    torch = release(software.torch)
    if not torch:
        return None  # no torch here: neither name is wrong
    if setting.name in OLD_OF:
        return _too_new(setting, software) if torch < RENAMED else None
    if row.instead in OLD_OF:
        return _old_spelling(setting, row, software) if torch >= RENAMED else None
    # We know the other renamed ones only from the version the table was read from.
    return _still_read(setting, row, "torch") if torch >= (2, 13) else None


def _evidence(setting: Setting) -> list[Evidence]:
    return [Evidence(quote=f"{setting.name}={setting.value}", source=setting.origin)]


def _rename(setting: Setting, row: Variable) -> str:
    return f"`unset {setting.name}; export {row.instead}={setting.value}`"


def _old_spelling(setting: Setting, row: Variable, software: Software) -> Finding:
    if setting.name == "NCCL_ASYNC_ERROR_HANDLING":
        return FAULT.warning(
            f"{setting.name} has no effect under torchrun",
            reason=f"torch {software.torch} prefers {row.instead}, which torchrun exports to every "
            "rank by itself; with other launchers the old name still works",
            evidence=_evidence(setting),
            fix=_rename(setting, row),
        )
    return _still_read(setting, row, f"torch {software.torch}")


def _still_read(setting: Setting, row: Variable, reader: str) -> Finding:
    return FAULT.note(
        f"{setting.name} is the old name of {row.instead}",
        reason=f"{reader} still reads it, but the new name wins where both are set",
        evidence=_evidence(setting),
        fix=_rename(setting, row),
    )


def _too_new(setting: Setting, software: Software) -> Finding:
    old = OLD_OF[setting.name]
    return FAULT.warning(
        f"{setting.name} is ignored by torch {software.torch}",
        reason="the TORCH_NCCL_ names came with torch 2.2",
        evidence=_evidence(setting),
        fix=f"`unset {setting.name}; export {old}={setting.value}`, or upgrade torch",
    )


def _nccl_name(setting: Setting, row: Variable, software: Software) -> Finding | None:
    version = software.nccl[0].version if software.nccl else ""
    fix = f"use {row.instead}" if row.instead else f"`unset {setting.name}`"
    if not row.until:
        return FAULT.note(
            f"{setting.name} is deprecated in favour of {row.instead}",
            reason="NCCL still reads it, but may stop",
            evidence=_evidence(setting),
            fix=f"{fix}; its values may differ, see NCCL's documentation",
        )
    last = release(row.until)
    if not version:
        return FAULT.note(
            f"{setting.name} is read by NCCL up to {row.until} only",
            reason="the installed version of NCCL is not known here",
            evidence=_evidence(setting),
            fix=fix,
        )
    if release(version)[: len(last)] <= last:
        return None
    return FAULT.warning(
        f"{setting.name} is no longer read by NCCL {version}",
        reason=f"the last version that read it was {row.until}",
        evidence=_evidence(setting),
        fix=fix,
    )
