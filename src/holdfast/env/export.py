"""The least environment that this machine and job need: normally nothing. Pure."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence

import msgspec

from holdfast.analysis.machine import nic_filter
from holdfast.analysis.variables.status import TYPED, Effect, SettingStatus
from holdfast.env import nic_choice, presets
from holdfast.env.job import Job
from holdfast.env.presets import ExportLine
from holdfast.findings import Status

A_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
"""what a shell can unset; an environment may hold any other name, and `eval` would run it"""
HURTS = (Effect.NO_EFFECT, Effect.CONFLICT, Effect.HARMFUL)


class Export(msgspec.Struct, frozen=True, kw_only=True):
    lines: tuple[ExportLine, ...]
    remarks: tuple[str, ...]
    """what is left alone, and why"""


def export(job: Job, judged: Sequence[SettingStatus], preset: str, folder: str) -> Export:
    """`folder`: where logs and dumps may go."""
    lines = [*_dropped(judged), *_interfaces(job), *presets.lines(preset, job, folder)]
    remarks = []
    if not lines:
        remarks.append("nothing needs to be set: NCCL, Gloo and torchrun choose well by themselves")
    if job.software is not None and not job.software.torch:
        remarks.append("torch is not installed for this Python: written for torch 2.15, NCCL 2.32")
    elif preset and not job.has_nccl:
        remarks.append("torch is a CPU build and NCCL is not installed: no NCCL_ setting is read")
    if not job.facts.plan.multi_node:
        remarks.append("for one machine; with more of them say so: --nnodes N")
    return Export(lines=tuple(lines), remarks=tuple(remarks))


def _dropped(judged: Sequence[SettingStatus]) -> Iterator[ExportLine]:
    """What is set now and does nothing, or harm: of an nccl.conf only its owner can take it."""
    for one in judged:
        worse = one.status in (Status.ERROR, Status.WARNING)
        mine = one.origin in ("environment", TYPED) and A_NAME.fullmatch(one.name)
        if mine and one.verdict in HURTS and worse:
            yield ExportLine(name=one.name, value=None, reason=one.summary)


def _interfaces(job: Job) -> Iterator[ExportLine]:
    """Only where the automatic choice would be wrong."""
    name, chosen = nic_choice.better(job.facts)
    if name and job.has_nccl and job.setting(nic_filter.NCCL) is None:
        yield ExportLine(
            name=nic_filter.NCCL,
            value=f"={name}",
            reason=f"NCCL would take {chosen}, which no other machine reaches; {name} leads there",
        )
    name, because = nic_choice.better_for_gloo(job.facts)
    if name and job.setting(nic_filter.GLOO) is None:
        yield ExportLine(
            name=nic_filter.GLOO,
            value=name,
            reason=f"Gloo would take an address that no other machine reaches: {because}",
        )


def shell(made: Export) -> str:
    """For `eval`: every reason is a comment, and stays one whatever a value in it holds."""
    lines = [f"# {remark}" for remark in made.remarks]
    for line in made.lines:
        lines.append(f"# {''.join(c if c.isprintable() else ' ' for c in line.reason)}")
        if line.value is None:
            lines.append(f"unset {line.name}")
        else:
            lines.append(f"export {line.name}={shlex.quote(line.value)}")
    return "\n".join(lines)
