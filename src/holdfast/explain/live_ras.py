"""NCCL's RAS asked twice about a job that runs: what it says, and whether anything moved."""

from __future__ import annotations

import time

import msgspec

from holdfast.analysis.machine import Unread
from holdfast.analysis.machine.nccl_diagnostics import (
    DiagnosticKind,
    DiagnosticLine,
    has_diagnostics,
    read_report,
)
from holdfast.analysis.ras import reading, words
from holdfast.analysis.ras.address import RasAddress
from holdfast.analysis.ras.answer import RasAnswer
from holdfast.errors import EnvironmentFailure
from holdfast.system import ras, ras_processes

APART = 2.0
"""seconds between the two questions"""
SECONDS = 12.0
"""for one answer: RAS itself gives up on a process after 5 to 10 s"""
NO_COMMUNICATOR = "NCCL's RAS answers, but the job has no communicator that is ready"
TRIES = 6
"""jobs of one user on one machine share the port, and the kernel picks which one answers"""


class LiveRas(msgspec.Struct, frozen=True, kw_only=True):
    address: RasAddress
    answers: tuple[RasAnswer, ...]
    """of one job, oldest first"""
    diagnostics: tuple[DiagnosticLine, ...] | Unread | None = None
    """None where NCCL has none, or something is wrong already"""
    other_jobs: bool = False
    """another job answers at the same address"""


def look(address: RasAddress) -> LiveRas:
    """Raises EnvironmentFailure where nothing answers."""
    first = _answer(address)
    if isinstance(first, Unread):
        raise EnvironmentFailure(first.why, hint=_hint(address, first.why))
    time.sleep(APART)
    second, other_jobs = _again(address, first)
    answers = (first,) if second is None else (first, second)
    answers = (*answers[:-1], _with_states(answers[-1], address))
    return LiveRas(
        address=address,
        answers=answers,
        diagnostics=_diagnostics(answers[-1], address),
        other_jobs=other_jobs,
    )


def _answer(address: RasAddress) -> RasAnswer | Unread:
    data = ras.status(address, seconds=SECONDS)
    if data is None:
        return Unread(why=f"{address}: {ras.NOTHING_LISTENS}")
    if isinstance(data, Unread):
        return data
    answer = reading.read(data, source=f"NCCL RAS at {address}")
    if answer is None:
        return Unread(why=f"{address}: the answer of NCCL's RAS was not understood")
    if not answer.communicators:
        return Unread(why=f"{address}: {NO_COMMUNICATOR}")
    return msgspec.structs.replace(answer, at=time.monotonic())


def _again(address: RasAddress, first: RasAnswer) -> tuple[RasAnswer | None, bool]:
    other_jobs = False
    for _ in range(TRIES):
        answer = _answer(address)
        if isinstance(answer, Unread):
            return None, other_jobs
        if not first.pids or not first.pids.isdisjoint(answer.pids):
            return answer, other_jobs
        other_jobs = bool(answer.pids)
    return None, other_jobs


def _with_states(answer: RasAnswer, address: RasAddress) -> RasAnswer:
    if not answer.silent or not address.on_this_machine:
        return answer
    return msgspec.structs.replace(answer, states=ras_processes.silent_states(answer))


def _diagnostics(
    answer: RasAnswer, address: RasAddress
) -> tuple[DiagnosticLine, ...] | Unread | None:
    """Where all answer: NCCL asks the driver for it, and a driver that hangs would silence RAS. Nor
    while a communicator is made or ended, in which RAS has defects."""
    changing = any(one.changing for one in answer.communicators)
    if answer.silent or changing or not has_diagnostics(answer.nccl):
        return None
    data = ras.diagnostics(address, seconds=SECONDS)
    if data is None or isinstance(data, Unread):
        return data
    return read_report(data.decode("utf-8", "replace").splitlines())


def _hint(address: RasAddress, why: str) -> str:
    if why.endswith(NO_COMMUNICATOR):
        return "try again once the job has taken a step"
    if why.endswith(ras.TOO_OLD):
        return (
            "if the job is past its start and makes no new groups: `echo verbose status | nc "
            f"{address.host} {address.port} | holdfast explain`"
        )
    if address.on_this_machine:
        return (
            "ask on a machine of the job, inside its container if it has one; `ss -ltnp 'sport = "
            f":{address.port}'` shows whether it listens"
        )
    return (
        "RAS listens on localhost only unless the job was started with NCCL_RAS_ADDR=ADDRESS:PORT: "
        "run this on that machine"
    )


def lines(seen: LiveRas) -> list[str]:
    """For a reader: the job as RAS sees it, then NCCL's own comparison of its ranks."""
    told = words.summary(seen.answers)
    if len(seen.answers) < 2:
        told.append("a second answer, to compare with, did not come")
    if seen.other_jobs:
        told.append(f"another job answers at {seen.address} too: this is about the one named above")
    if isinstance(seen.diagnostics, Unread):
        told.append(f"NCCL's diagnostics could not be had: {seen.diagnostics.why}")
    elif seen.diagnostics:
        told += _of_diagnostics(seen.diagnostics)
    return told


def _of_diagnostics(lines: tuple[DiagnosticLine, ...]) -> list[str]:
    """What it found; checks that it could not make, or made well, in one line each."""

    def checks(kind: DiagnosticKind) -> dict[str, None]:
        return {one.check: None for one in lines if one.kind is kind}

    wrong, fine = checks(DiagnosticKind.FAULT), checks(DiagnosticKind.OK)
    gaps = [name for name in checks(DiagnosticKind.GAP) if name not in wrong]
    told = [
        f"NCCL's diagnostics: {one.check}: {one.words}"
        for one in lines
        if one.kind is DiagnosticKind.FAULT
    ]
    told += [f"NCCL's diagnostics found nothing wrong with: {', '.join(fine)}"] if fine else []
    told += [f"NCCL's diagnostics could not check: {', '.join(gaps)}"] if gaps else []
    return told
