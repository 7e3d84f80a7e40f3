"""A variable is set to its default.

What you see   Nothing: the setting changes nothing. Launch scripts grow long with lines that are
               never removed, and the one line that matters is hard to find among them.
Why            Guides repeat settings that were needed once. TORCH_NCCL_ASYNC_ERROR_HANDLING=1 is
               the best known: error handling has been on by default for years (since torch 2.2 as
               mode 3), and torchrun sets the variable for its ranks. NCCL_IB_DISABLE=0,
               NCCL_P2P_DISABLE=0 and NCCL_SHM_DISABLE=0 ask for what NCCL does by default.
How to be sure `holdfast env NAME` shows the default. Such a line has an effect in one case: where
               an outer environment, an image or an nccl.conf sets another value, it restores the
               default.
Fix            Remove the line.
Known limits   Defaults are known for the versions in holdfast's table; for others nothing is said.
               What an image or an outer environment sets is not visible to `lint`.
Sources        torch 2.13.0: torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp
               torch 2.13.0: torch/distributed/elastic/agent/server/local_elastic_agent.py
               https://docs.pytorch.org/docs/stable/torch_nccl_environment_variables.html
               https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html
"""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.analysis import variables
from holdfast.analysis.machine import Setting
from holdfast.analysis.nccl_numbers import nccl_int
from holdfast.analysis.source.source import LintingMachine, Source, SourceKind
from holdfast.analysis.source.source import SourceSetting as Written
from holdfast.analysis.variables import Variable
from holdfast.analysis.variables.in_source import as_fact, at, judged, without
from holdfast.analysis.variables.parsing import torch_bool, torch_int
from holdfast.analysis.versions import release
from holdfast.fault import Fault
from holdfast.findings import Finding

FAULT = Fault(
    code="HOLD504",
    slug="variable-redundant",
    related=("variable-deprecated", "variable-unread", "variable-conflict"),
)

HANDLING = "TORCH_NCCL_ASYNC_ERROR_HANDLING"
BLOCKING = "TORCH_NCCL_BLOCKING_WAIT"
RENAMED, CURRENT = (2, 2), (2, 13)
"""the torch that introduced the TORCH_NCCL_ names, and the one whose defaults are in the table"""
DEFAULT_CHANGED = ("TORCH_NCCL_DUMP_ON_TIMEOUT", "TORCH_FR_BUFFER_SIZE")
"""off by default in versions that are still in use, so setting them is useful"""


@FAULT.lint
def default_value_is_set(source: Source) -> Iterator[Finding]:
    if source.kind is SourceKind.ENVIRONMENT:
        return  # not a line of a file: `holdfast env` shows it
    for setting in judged(source):
        row = variables.lookup(setting.name)
        if row is None or not setting.known or setting.name in DEFAULT_CHANGED:
            continue
        if _overrides_another_value(setting, source):
            continue
        fact = as_fact(setting)
        if setting.name == HANDLING and torch_int(setting.value) in (1, 3):
            if (release(source.here.torch) or CURRENT) >= RENAMED:
                yield at(_handling_is_default(fact), setting)
        elif _is_default(setting.value, row, source.here):
            yield at(_default(fact, row), setting)


def _overrides_another_value(setting: Written, source: Source) -> bool:
    """The source sets the variable to another value somewhere, or lets its user do so."""
    if f"${{{setting.name}" in setting.written:
        return True
    return any(s.name == setting.name and s.value != setting.value for s in source.settings)


def _is_default(value: str, row: Variable, here: LintingMachine) -> bool:
    """Only plain numbers: a default such as 'automatic' is not a value that can be set."""
    if row.name.endswith("*") or not row.default.lstrip("-").isdecimal():
        return False
    if row.reader == "NCCL":
        return value.strip().lstrip("-").isdecimal() and nccl_int(value) == int(row.default)
    if row.reader != "PyTorch" or row.instead:
        return False
    torch = release(here.torch) or CURRENT
    if torch < (RENAMED if row.name == BLOCKING else CURRENT):
        return False  # its defaults were different
    if row.default in ("0", "1"):
        return torch_bool(value) is (row.default == "1")
    return torch_int(value) == int(row.default)


def _handling_is_default(setting: Setting) -> Finding:
    return FAULT.note(
        f"{setting.name}={setting.value} is not needed: error handling is on by default",
        reason="since torch 2.2 the default is 3 (end the process), and torchrun sets 1 for its "
        "ranks; it does not make torch notice a dead rank sooner",
        fix=without(setting),
    )


def _default(setting: Setting, row: Variable) -> Finding:
    version = variables.version_read(row.name)
    return FAULT.note(
        f"{setting.name}={setting.value} is the default",
        reason=f"in {version}; the line matters only if something outside this file (an image, an "
        "nccl.conf, another version) sets another value",
        fix=f"{without(setting)}, unless it is there for that reason",
    )
