"""A variable is set that no program reads, or to a value that its program does not take.

What you see   Nothing: the setting has no effect, and the problem it should solve remains. No
               program warns about a variable it does not know.
Why            Names are copied from guides, forum answers and old scripts. Some never existed
               (NCCL_REUSE_SOCKET_ADDR, ACCELERATE_DISABLE_NCCL, NCCL_TIMEOUT), some are misspelt
               (NCCL_DISABLE_P2P for NCCL_P2P_DISABLE), some were added or removed in a version. In
               an nccl.conf blanks are significant: `NCCL_DEBUG = INFO` sets a name that ends in a
               blank. NCCL reads numbers: of NCCL_IB_DISABLE=true it makes 0, and RDMA stays in use.
How to be sure A program can only read a name it contains: `strings -a libnccl.so.2 | grep -x
               NCCL_NAME`. `holdfast check` searches the installed libraries and packages this way
               and says what it searched; where they are not installed it uses a table of names read
               from the programs' sources.
Fix            Correct the name, or `unset` it. The finding says which setting does it instead.
Known limits   Your own script may read any name; `holdfast check` cannot see that. Plugins that are
               not installed here are known from the table only. Behind an unknown prefix only one
               slip is recognised (NCL_DEBUG), and of values only words for 1 in NCCL's switches.
Sources        NVIDIA/nccl: docs/userguide/source/env.rst, src/misc/param.cc and all tags to 2.30.7
               meta-pytorch/torchcomms: NCCL newer than 2.30.7 takes the default for a word
               torch 2.13.0: ProcessGroupNCCL.hpp, FlightRecorder.hpp, torch/distributed
               huggingface/accelerate: all release tags, src/accelerate/utils/dataclasses.py
               https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from holdfast import shell_words
from holdfast.analysis import variables
from holdfast.analysis.machine import (
    MachineFacts,
    Setting,
    Unread,
    VariableSearch,
    known,
    nic_filter,
)
from holdfast.analysis.source.source import LintingMachine, Source
from holdfast.analysis.source.source import SourceSetting as Written
from holdfast.analysis.variables import Variable, values
from holdfast.analysis.variables.in_source import as_fact, at, judged, put, without
from holdfast.analysis.variables.status import Effect
from holdfast.analysis.versions import release
from holdfast.fault import Fault
from holdfast.findings import Finding, Status

FAULT = Fault(
    code="HOLD501",
    slug="variable-unread",
    related=("variable-deprecated", "variable-redundant", "nic-filter-syntax"),
    setting_effect=Effect.NO_EFFECT,
)

NOTHING_SEARCHED = VariableSearch(searched=(), prefixes=(), found={})
NO_EFFECT = "it has no effect unless your own script reads it"


@FAULT.check(needs=("settings", "variable_search"))
def no_program_reads_the_variable(facts: MachineFacts) -> Finding | list[Finding]:
    judged = [s for s in known(facts.settings) if _is_judged(s.name.strip())]
    if not judged:
        return FAULT.ok("no variable of NCCL, PyTorch, torchrun or a framework is set")
    search = facts.variable_search
    if isinstance(search, Unread):
        search = NOTHING_SEARCHED
    findings = [f for f in (_judge(setting, search) for setting in judged) if f]
    return findings or FAULT.ok(f"all {len(judged)} variables set are read by a program")


def _is_judged(name: str) -> bool:
    return bool(variables.prefix_of(name) or variables.misspelt(name))


def _judge(setting: Setting, search: VariableSearch) -> Finding | None:
    name = setting.name
    if name != name.strip():
        return _blank(setting)
    row = variables.lookup(name)
    if row is not None and values.word_for_one(row, setting.value):
        return _word(setting, row)
    if search.found.get(name):
        return None
    if row is None:
        return _unknown(setting, search) if variables.prefix_of(name) else _slip(setting)
    if not row.is_read:
        return _never_existed(setting, row, search)
    return _missing_here(setting, row, search) if _provable(name, search) else None


def _provable(name: str, search: VariableSearch) -> bool:
    return name in search.found and variables.prefix_of(name) in search.prefixes


def _searched(search: VariableSearch) -> str:
    return f"searched {', '.join(search.searched)}"


def _blank(setting: Setting) -> Finding | None:
    name = setting.name.strip()
    if name in (nic_filter.NCCL, nic_filter.GLOO):
        return None  # nic-filter-syntax reports it
    return FAULT.warning(
        f"the name {setting.name!r} contains a blank, so no program reads it",
        reason="lines of nccl.conf are not trimmed: blanks around `=` become part of name and "
        "value",
        evidence=[setting.evidence],
        fix=f"write `{shell_words.setting(name, setting.value.strip())}` without blanks at "
        f"{setting.origin}",
    )


def _unknown(setting: Setting, search: VariableSearch) -> Finding:
    name = setting.name
    meant = variables.nearest(name)
    suggestion = f"did you mean {meant}? " if meant else ""
    if _provable(name, search):
        return FAULT.warning(
            f"{name} is not read by any program installed here",
            reason=f"none contains the name: {_searched(search)}; {NO_EFFECT}",
            evidence=[setting.evidence],
            fix=f"{suggestion}otherwise {without(setting)}" if meant else without(setting),
        )
    version = variables.version_read(name)
    return FAULT.note(
        f"{name} is not in holdfast's table of variables",
        reason=f"the table was read from {version}; another version, a plugin or your own script "
        "may read it",
        evidence=[setting.evidence],
        fix=f"{suggestion}check the spelling in the documentation of that program",
    )


def _slip(setting: Setting) -> Finding:
    """A warning where the text of the program shows that it does not ask for the name itself."""
    meant = variables.misspelt(setting.name)
    return FAULT.note(
        f"{setting.name} is no known variable, {meant} is",
        reason=f"no program warns about unknown names; {NO_EFFECT}",
        evidence=[setting.evidence],
        fix=f"write {put(setting, meant, setting.value)}, or {without(setting)}",
    )


def _word(setting: Setting, row: Variable) -> Finding:
    to = "may switch it off" if row.default == "1" else "has no effect"
    return FAULT.warning(
        f"{setting.name}={setting.value} {to}: NCCL reads a number here",
        reason="a word counts as 0 in NCCL up to 2.30, and in newer versions as the default, which "
        f"is {row.default}",
        evidence=[setting.evidence],
        fix=f"write {put(setting, setting.name, '1')}",
    )


def _never_existed(setting: Setting, row: Variable, search: VariableSearch) -> Finding:
    """A warning where only the machine is known: the job's own script may read it."""
    name = setting.name
    proof = f" and {_searched(search)}" if _provable(name, search) else ""
    return FAULT.warning(
        f"{name} is not read by any program",
        reason=f"{row.source}{proof}; {NO_EFFECT}",
        evidence=[setting.evidence],
        fix=f"{without(setting)}; {row.effect}",
    )


def _missing_here(setting: Setting, row: Variable, search: VariableSearch) -> Finding | None:
    """The table has a reader, but the installed programs do not contain the name."""
    composed = row.name.endswith("*")  # no program contains the whole name as one string
    elsewhere = row.reader in ("NCCL plugins and tests", "build tools")
    if composed or elsewhere or row.until:  # variable-deprecated reports what was removed
        return None
    since = f" since {row.since}" if row.since else ""
    version = variables.version_read(setting.name)
    return FAULT.note(
        f"{setting.name} is not read by the version installed here",
        reason=f"{row.reader} reads it{since} (table of {version}), but no program here contains "
        f"the name: {_searched(search)}",
        evidence=[setting.evidence],
        fix=f"`unset {shell_words.variable(setting.name)}`, unless another program needs it",
    )


# --- in what a user wrote -----------------------------------------------------------------------


@FAULT.lint
def script_sets_an_unread_variable(source: Source) -> Iterator[Finding]:
    for setting in judged(source):
        name = setting.name.strip()
        row = variables.lookup(name)
        if row is not None and setting.known and values.word_for_one(row, setting.value):
            yield at(_word(as_fact(setting), row), setting)
            continue
        if not _is_judged(name) or name in source.reads:
            continue
        if row is None and _is_deliberate(setting, source):
            continue
        finding = _judge_written(as_fact(setting), source, in_conf=setting.by == "nccl.conf")
        if finding:
            yield at(finding, setting)


def _is_deliberate(setting: Written, source: Source) -> bool:
    """A name of the user's own, or a second name for another version."""
    meant = variables.nearest(setting.name)
    if meant:
        return meant == f"TORCH_{setting.name}" and source.setting(meant) is not None
    own_default = f"${{{setting.name}" in setting.written
    handed_on = any(
        setting in command.settings and command.name.endswith(".sh") for command in source.commands
    )
    return own_default or handed_on


def _judge_written(setting: Setting, source: Source, *, in_conf: bool) -> Finding | None:
    """`in_conf`: a line of an nccl.conf, also of one that a script writes."""
    if setting.name != setting.name.strip():
        return _blank(setting) if in_conf else None
    row = variables.lookup(setting.name)
    if row is None:
        return _misspelt_or_unknown(setting)
    if not row.is_read:
        finding = _never_existed(setting, row, NOTHING_SEARCHED)
        return msgspec.structs.replace(finding, status=Status.ERROR)
    if in_conf and row.reader == "PyTorch":
        return _too_late(setting)
    return _not_yet(setting, row, source.here)


def _misspelt_or_unknown(setting: Setting) -> Finding:
    """Only a name close to a known one is likely a mistake: plugins and forks have other names."""
    if not variables.prefix_of(setting.name):
        return msgspec.structs.replace(_slip(setting), status=Status.WARNING)
    meant = variables.nearest(setting.name)
    if not meant:
        return _unknown(setting, NOTHING_SEARCHED)
    version = variables.version_read(setting.name)
    return FAULT.warning(
        f"{setting.name} is not a known variable: did you mean {meant}?",
        reason=f"{version} does not read it, and no program warns about unknown names; {NO_EFFECT}",
        evidence=[setting.evidence],
        fix=f"write {put(setting, meant, setting.value)}, or {without(setting)}",
    )


def _too_late(setting: Setting) -> Finding:
    return FAULT.warning(
        f"{setting.name} has no effect in an nccl.conf: torch reads it, not NCCL",
        reason="NCCL reads this file when its first communicator starts; torch read the "
        "environment before that, when it created the process group",
        evidence=[setting.evidence],
        fix=f"`export {setting.name}={setting.value}` where the job is started",
    )


def _not_yet(setting: Setting, row: Variable, here: LintingMachine) -> Finding | None:
    """The installed version is too old to read it."""
    version = {"NCCL": here.nccl, "PyTorch": here.torch}.get(row.reader, "")
    since, installed = release(row.since), release(version)
    # torch before 2.2 has the old names, which variable-deprecated reports.
    if not since or not installed or row.instead or setting.name.startswith("TORCH_NCCL_"):
        return None
    if installed[: len(since)] >= since:
        return None
    return FAULT.note(
        f"{setting.name} is read by {row.reader} from {row.since} on; {version} is installed here",
        reason="an older version ignores it; the machine that runs the job may have another "
        "version",
        evidence=[setting.evidence],
        fix=f"{without(setting)}, or use {row.reader} {row.since} or later",
    )
