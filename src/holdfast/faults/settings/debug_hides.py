"""The debug settings hide the lines they are meant to show.

What you see   NCCL's log lacks the lines that are needed: which interface the bootstrap chose,
               which variables were read. Or there is no log at all, or one file that contains only
               the lines of the rank that opened it last.
Why            NCCL_DEBUG_SUBSYS replaces the default list, it does not add to it. Since NCCL 2.23
               that list is INIT,BOOTSTRAP,ENV; `INIT,NET`, which many guides give, hides the
               `Bootstrap: Using eth0:…` line and the value of each variable. It has an effect only
               with NCCL_DEBUG=INFO (or TRACE). A level that NCCL does not know (DEBUG, ERROR, 1)
               means no log. Every process truncates NCCL_DEBUG_FILE when it opens it: without %p in
               its name each rank empties the file that another one writes.
How to be sure With NCCL_DEBUG=INFO the log must have a line `Bootstrap: Using` for each rank, and
               `NCCL_… set by environment to …` for each variable that NCCL read.
Fix            `NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,BOOTSTRAP,ENV,NET
               NCCL_DEBUG_FILE=/tmp/nccl.%h.%p.log`; later NCCL_DEBUG=WARN.
Known limits   It is found by `lint` in launch scripts and settings only; there is no check of the
               environment and nothing in a log shows it.
Sources        NVIDIA/nccl src/debug.cc: levels, subsystems, NCCL_DEBUG_FILE
               NVIDIA/nccl src/debug.cc at v2.22.3-1 and v2.23.4-1: the default list
               https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html#nccl-debug-subsys
"""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.analysis.machine import Setting
from holdfast.analysis.source.source import Source, SourceKind
from holdfast.analysis.variables.in_source import (
    Environment,
    as_fact,
    at,
    environments,
    judged,
    once,
    put,
    readable,
    without,
)
from holdfast.analysis.versions import release
from holdfast.fault import Fault
from holdfast.findings import Evidence, Finding

FAULT = Fault(
    code="HOLD506",
    slug="debug-hides",
    related=("variable-unread", "variable-conflict", "group-does-not-form"),
)

LEVEL, SUBSYSTEMS, FILE = "NCCL_DEBUG", "NCCL_DEBUG_SUBSYS", "NCCL_DEBUG_FILE"
WARN_ENABLES_INFO = "NCCL_WARN_ENABLE_DEBUG_INFO"
"""after the first warning the level is INFO, whatever NCCL_DEBUG says"""
LEVELS = frozenset({"VERSION", "WARN", "INFO", "ABORT", "TRACE", "NONE"})
KNOWN_SUBSYSTEMS = frozenset(
    [
        *("INIT", "COLL", "P2P", "SHM", "NET", "GRAPH", "TUNING", "ENV", "ALLOC", "ALLOC_HOST"),
        *("CALL", "PROXY", "NVLS", "BOOTSTRAP", "REG", "PROFILE", "RAS", "DESTROY", "ALL"),
    ]
)
ESSENTIAL = ("INIT", "BOOTSTRAP", "ENV")
"""the default since NCCL 2.23; before, the bootstrap was part of INIT"""
BOOTSTRAP_SEPARATE = (2, 23)
RUNTIME_SUBSYSTEMS = frozenset({"COLL", "GRAPH", "TUNING", "NVLS", "CALL", "PROFILE", "RAS", "REG"})
"""these are about what NCCL does once it runs, not about its start"""


@FAULT.lint
def debug_level_is_unknown(source: Source) -> Iterator[Finding]:
    for setting in readable(source, LEVEL):
        if setting.value and setting.value.upper() not in LEVELS:
            yield at(_no_level(as_fact(setting)), setting)


@FAULT.lint
def debug_subsystems_hide_lines(source: Source) -> Iterator[Finding]:
    found = ((one, _about_parts(one, source)) for one in environments(source))
    yield from once(one.placed(finding) for one, finding in found if finding)


def _about_parts(environment: Environment, source: Source) -> Finding | None:
    parts = environment.in_force.get(SUBSYSTEMS)
    if parts is None or not parts.value:
        return None
    return (
        _without_effect(parts, environment, source)
        or _unknown_part(parts)
        or _hidden(parts, environment, source)
    )


@FAULT.lint
def ranks_overwrite_one_debug_file(source: Source) -> Iterator[Finding]:
    for setting in readable(source, FILE):
        path = setting.value.replace("%%", "")
        if not path or "%p" in path or path.startswith("/dev/") or path in ("stdout", "stderr"):
            continue
        yield at(_one_file(as_fact(setting)), setting)


def _quoted(*settings: Setting) -> list[Evidence]:
    return [s.evidence for s in settings]


def _no_level(setting: Setting) -> Finding:
    return FAULT.warning(
        f"{setting.name}={setting.value} is not a level that NCCL knows: it will log nothing",
        reason="the levels are VERSION, WARN, INFO and TRACE; any other value means no log",
        fix=f"{put(setting, LEVEL, 'INFO')} for debugging, {put(setting, LEVEL, 'WARN')} otherwise",
    )


def _without_effect(parts: Setting, environment: Environment, source: Source) -> Finding | None:
    level = environment.in_force.get(LEVEL)
    if environment.in_force.get(WARN_ENABLES_INFO) or environment.has_unknown(LEVEL):
        return None
    if level is None:
        if _may_be_set_elsewhere(source):
            return None
        said = f"{LEVEL} is not set"
    elif level.value.upper() in ("INFO", "TRACE"):
        return None
    else:
        said = f"{LEVEL} is {level.value}"
    return FAULT.warning(
        f"{parts.name}={parts.value} has no effect: {said}",
        reason="the subsystems select messages of the levels INFO and TRACE; without one of those "
        "there are none",
        evidence=_quoted(parts, *([level] if level else [])),
        fix=f"add {put(parts, LEVEL, 'INFO')}, or {without(parts)}",
    )


def _may_be_set_elsewhere(source: Source) -> bool:
    """False only for a complete script that starts the job itself and reads no other script."""
    if source.kind is not SourceKind.SHELL or not source.complete or not source.launches:
        return True
    sourced = any(command.name in ("source", ".", "eval") for command in source.commands)
    return sourced or any(s.name == LEVEL for s in judged(source))


def _unknown_part(parts: Setting) -> Finding | None:
    strange = [name for name in _names(parts.value) if name.upper() not in KNOWN_SUBSYSTEMS]
    if not strange:
        return None
    return FAULT.warning(
        f"{parts.name}={parts.value}: NCCL has no subsystem {strange[0]}",
        reason="it ignores names it does not know, without a warning; names are separated by "
        "commas, not blanks",
        evidence=_quoted(parts),
        fix=f"{put(parts, SUBSYSTEMS, 'INIT,BOOTSTRAP,ENV,NET')}, or choose from "
        f"{', '.join(sorted(KNOWN_SUBSYSTEMS))}",
    )


def _hidden(parts: Setting, environment: Environment, source: Source) -> Finding | None:
    named = {name.upper() for name in _names(parts.value)}
    if named & RUNTIME_SUBSYSTEMS and not parts.value.startswith("^"):
        return None
    separate = (release(source.here.nccl) or BOOTSTRAP_SEPARATE) >= BOOTSTRAP_SEPARATE
    wanted = [p for p in ESSENTIAL if separate or p != "BOOTSTRAP"]
    if parts.value.startswith("^"):
        missing = [p for p in wanted if p in named or "ALL" in named]
    else:
        missing = [p for p in wanted if p not in named and "ALL" not in named]
    if not missing:
        return None
    level = environment.in_force.get(LEVEL)
    kept = "" if parts.value.startswith("^") else parts.value
    complete = ",".join(dict.fromkeys([*wanted, *(n.upper() for n in _names(kept))]))
    shown = {
        "INIT": "the start of each communicator",
        "BOOTSTRAP": "the interface that was chosen",
        "ENV": "the variables NCCL read",
    }
    return FAULT.note(
        f"{parts.name}={parts.value} hides {' and '.join(shown[p] for p in missing)}",
        reason=f"the list replaces the default ({','.join(wanted)}), it does not add to it; most "
        f"start-up problems can be seen in {' and '.join(missing)}",
        evidence=_quoted(parts, *([level] if level else [])),
        fix=put(parts, SUBSYSTEMS, complete),
    )


def _names(value: str) -> list[str]:
    return [name for name in value.lstrip("^").split(",") if name]


def _one_file(setting: Setting) -> Finding:
    stem, dot, ending = setting.value.rpartition(".")
    host = "" if "%h" in setting.value else ".%h"
    better = (
        f"{stem}{host}.%p.{ending}" if dot and "/" not in ending else f"{setting.value}{host}.%p"
    )
    return FAULT.warning(
        f"{setting.name}={setting.value}: the ranks overwrite each other's log",
        reason="every process truncates the file when it opens it; %p in the name gives one file "
        "per process, %h one per host on a shared file system",
        fix=put(setting, FILE, better),
    )
