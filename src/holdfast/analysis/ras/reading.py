"""The bytes that RAS sends -> RasAnswer. Never raises; what does not fit is passed over.

JSON since NCCL 2.28.7, text since 2.24. Nothing of it is shown that does not match a narrow
pattern: hosts, hashes and names of operations cannot hold what a terminal would obey.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import datetime, timezone

import msgspec

from holdfast.analysis.ras import text_form
from holdfast.analysis.ras.answer import (
    RasAnswer,
    RasCommunicator,
    RasMember,
    RasProcess,
    RasState,
)
from holdfast.analysis.ras.errors import NO_ERROR, error_name

LOOKS_LIKE = re.compile(
    rb"Job summary\r?\n=====|Missing communicator data from|considered dead \(unreachable|"
    rb'"missing_ranks_count"|Gathering data about the (?:RAS network|NCCL communicators)'
)
_LOST_COMMA = re.compile(rb'("nvml_dev": -?\d{1,9})(\s*"status")')
"""NCCL 2.28.7 to 2.28.9 write no comma there, so that an answer about a missing rank is no JSON"""
_HOST = re.compile(r"[0-9A-Za-z][0-9A-Za-z._:%-]{0,252}")
_HASH = re.compile(r"(?:0x)?([0-9a-f]{1,32})")
_OPERATION = re.compile(r"\w{1,32}", re.ASCII)
_VERSION = re.compile(r"\d[\w.+-]{0,31}", re.ASCII)
MOST_RANKS = 1_000_000


def looks_like(peek: bytes) -> bool:
    return bool(LOOKS_LIKE.search(peek))


def read(data: bytes, *, source: str = "") -> RasAnswer | None:
    """None where it is no answer of RAS, or not a whole one."""
    if data.lstrip()[:1] == b"{":
        return _from_json(_LOST_COMMA.sub(rb"\1,\2", data), source)
    return text_form.read(data, source=source) if looks_like(data) else None


# --- JSON ----------------------------------------------------------------------------------------


class _RasStatus(msgspec.Struct):
    init_state: int = NO_ERROR
    async_error: int = NO_ERROR
    finalize_called: bool = False
    destroy_flag: bool = False
    abort_flag: bool = False
    unresponsive: bool = True
    considered_dead: bool = False


class _RasJsonRank(msgspec.Struct):
    rank: int
    host: str = ""
    pid: int = -1
    status: _RasStatus = msgspec.field(default_factory=_RasStatus)
    collective_counts: dict[str, int] = {}


class _RasJsonCommunicator(msgspec.Struct):
    hash: str = ""
    size: int = 0
    ranks: list[_RasJsonRank] = []
    missing_ranks: list[_RasJsonRank] = []


class _RasDocument(msgspec.Struct):
    communicators: list[_RasJsonCommunicator]
    nccl_version: str = ""
    timestamp: str = ""


def _from_json(data: bytes, source: str) -> RasAnswer | None:
    try:
        document = msgspec.json.decode(data, type=_RasDocument)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None
    communicators = tuple(map(_communicator, filter(_is_sane, document.communicators)))
    members = [m for one in communicators for m in one.members]
    return RasAnswer(
        nccl=_fitting(_VERSION, document.nccl_version),
        communicators=communicators,
        silent=_silent(members),
        processes=len({m.where for m in members if m.pid}),
        source=source,
        at=_seconds(document.timestamp),
    )


def _is_sane(told: _RasJsonCommunicator) -> bool:
    """One that is being made while RAS looks may come as zeros or garbage (NVIDIA/nccl#1762)."""
    ranks = [one.rank for one in (*told.ranks, *told.missing_ranks)]
    fits = len(ranks) == len(set(ranks)) and all(0 <= rank < told.size for rank in ranks)
    return 0 < told.size < MOST_RANKS and fits


def _communicator(told: _RasJsonCommunicator) -> RasCommunicator:
    answering = [_member(one, "answers") for one in told.ranks]
    # One that answered and does not know this communicator has left it, or not come.
    missing = [_member(one, _missing_state(one.status)) for one in told.missing_ranks]
    found = _HASH.fullmatch(told.hash)
    return RasCommunicator(
        name=found[1] if found else "",
        size=told.size,
        members=tuple(sorted((*answering, *missing), key=lambda one: one.rank)),
        launched=_launched(answering),
    )


def _missing_state(status: _RasStatus) -> RasState:
    if status.considered_dead:
        return "dead"
    return "silent" if status.unresponsive else "left"


def _member(told: _RasJsonRank, state: RasState) -> RasMember:
    status = told.status
    counts = {
        op: count
        for op, count in told.collective_counts.items()
        if _OPERATION.fullmatch(op) and count >= 0
    }
    error = error_name(status.init_state) or error_name(status.async_error)
    closing = status.finalize_called or status.destroy_flag or status.abort_flag
    return RasMember(
        rank=told.rank,
        host="" if told.host == "unknown" else _fitting(_HOST, told.host),
        pid=told.pid if told.pid > 0 else None,
        state=state,
        error=error,
        leaving=closing or (status.init_state != NO_ERROR and not error),
        counts=counts,
    )


def _launched(members: Sequence[RasMember]) -> dict[str, dict[int, int]]:
    found: dict[str, dict[int, int]] = {}
    for op in dict.fromkeys(op for one in members for op in one.counts):
        spread: dict[int, int] = {}
        for one in members:
            count = one.counts.get(op, 0)
            spread[count] = spread.get(count, 0) + 1
        found[op] = spread
    return found


def _silent(members: Iterable[RasMember]) -> tuple[RasProcess, ...]:
    found = {
        one.where: RasProcess(host=one.host, pid=one.pid, dead=one.state == "dead")
        for one in members
        if one.state in ("silent", "dead") and one.pid
    }
    return tuple(found.values())


def _seconds(told: str) -> float:
    """'2026-11-16 10:16:10', by the clock and zone of the machine that answered; 0 unknown."""
    try:
        return datetime.strptime(told, "%Y-%m-%d %H:%M:%S").replace(tzinfo=timezone.utc).timestamp()
    except ValueError:
        return 0.0


def _fitting(pattern: re.Pattern[str], told: str) -> str:
    return told if pattern.fullmatch(told) else ""
