"""The answer of `ncclras`, as text or JSON -> the ranks it misses, and how far the others came.

Its ranks are numbers in a communicator, not in the job: only in one of the whole job are they the
same. Processes are identified by host and pid, which are the job's own. It may find nothing wrong
in a job that hangs, so what it does not say proves nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from holdfast.explain.read.sanitize import plain

MOST_LINES = 200_000


class RasRank(msgspec.Struct, frozen=True, kw_only=True):
    """A rank or process that ncclras speaks of, as far as it tells."""

    communicator: str = ""
    """'0x6f1a…' or '#0-0 (6f1a…)'; '' when it speaks of a process of the job"""
    size: int = 0
    """ranks of that communicator; 0 untold"""
    rank: int | None = None
    """its number in that communicator"""
    host: str = ""
    pid: int | None = None
    missing: bool = False
    """it gave no answer"""
    dead: bool = False
    """it cannot be reached at all"""
    error: str = ""
    """'ncclSystemError': what its communicator is in"""
    counts: dict[str, int] = {}
    """'AllReduce' -> how many it has launched; only where it was printed"""
    line: int = 1


_SECTION = re.compile(r"(?:(#\d+-\d+ \([0-9a-f]+\)) )?(INCOMPLETE|DEAD|ERROR|MISMATCH|TIMEOUT)")
_PROCESS = re.compile(r"Process (\d{1,9}) on node (\S+) managing GPUs? .*")
_RANK = re.compile(
    r"Rank (\d{1,9})(?: (?:has launched up to operation (?P<count>\d{1,19})|(?P<none>has not"
    r" launched any operations)|reported (?P<error>.+?)|has status (?P<status>\S+)))?"
    r" -- (?:GPU .+? managed by process (?P<pid>\d{1,9}) on node (?P<host>\S+)|\[.*\])"
)
_SEVERAL = re.compile(
    r"\d+ ranks (?:have launched up to operation (?P<count>\d{1,19})|(?P<none>have not launched"
    r" any operations)|reported (?P<error>.+)|have status .*)"
)
_COUNTS = re.compile(r"Communicator ranks have different (\w+) operation counts")
_TELLS = re.compile(
    rb"Job summary\r?\n=====|Missing communicator data from|considered dead \(unreachable|"
    rb'"missing_ranks_count"|Gathering data about the (?:RAS network|NCCL communicators)'
)


def looks_like(peek: bytes) -> bool:
    return bool(_TELLS.search(peek))


def read(data: bytes) -> tuple[RasRank, ...]:
    """Never raises; only ranks it says something about, all of them in the JSON form."""
    if data.lstrip()[:1] == b"{":
        return tuple(_from_json(data))
    return tuple(_from_text(data))


# --- text ----------------------------------------------------------------------------------------


def _from_text(data: bytes) -> Iterator[RasRank]:
    communicator, section, op = "", "", ""
    shared: dict[str, str | None] = {}
    for number, raw in enumerate(data.split(b"\n", MOST_LINES)[:MOST_LINES], start=1):
        line = plain(raw[:2000].decode("utf-8", "replace")).strip()
        if head := _SECTION.fullmatch(line):
            communicator, section, op, shared = head[1] or "", head[2], "", {}
        elif counted := _COUNTS.fullmatch(line):
            op, shared = counted[1], {}
        elif several := _SEVERAL.fullmatch(line):
            shared = several.groupdict()
        elif process := _PROCESS.fullmatch(line):
            yield RasRank(
                host=process[2],
                pid=int(process[1]),
                missing=True,
                dead=section == "DEAD",
                line=number,
            )
        elif (rank := _RANK.fullmatch(line)) and section:
            own = rank.groupdict()
            told = own if own["count"] or own["none"] or own["error"] else shared
            yield RasRank(
                communicator=communicator,
                rank=int(rank[1]),
                host=own["host"] or "",
                pid=int(own["pid"]) if own["pid"] else None,
                missing=section == "INCOMPLETE",
                error=told.get("error") or "" if section == "ERROR" else "",
                counts=_counts(op, told) if section == "MISMATCH" else {},
                line=number,
            )


def _counts(op: str, told: dict[str, str | None]) -> dict[str, int]:
    if not op or not (told.get("count") or told.get("none")):
        return {}
    return {op: int(told.get("count") or 0)}


# --- JSON ----------------------------------------------------------------------------------------


class _RasStatus(msgspec.Struct):
    init_state: int = 0
    async_error: int = 0
    unresponsive: bool = True
    considered_dead: bool = False


class _Rank(msgspec.Struct):
    rank: int
    host: str = ""
    pid: int = -1
    status: _RasStatus = msgspec.field(default_factory=_RasStatus)
    collective_counts: dict[str, int] = {}


class _Communicator(msgspec.Struct):
    hash: str = ""
    size: int = 0
    ranks: list[_Rank] = []
    missing_ranks: list[_Rank] = []


class _RasDocument(msgspec.Struct):
    communicators: list[_Communicator]


_SUCCESS, _IN_PROGRESS = 0, 7
_ERRORS = (
    *("ncclSuccess", "ncclUnhandledCudaError", "ncclSystemError", "ncclInternalError"),
    *("ncclInvalidArgument", "ncclInvalidUsage", "ncclRemoteError", "ncclInProgress"),
)


def _from_json(data: bytes) -> Iterator[RasRank]:
    try:
        document = msgspec.json.decode(data, type=_RasDocument)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return
    for communicator in document.communicators:
        for rank in communicator.ranks:
            yield _ras_rank(communicator, rank, missing=False)
        for rank in communicator.missing_ranks:
            # One that answered and knows nothing of this communicator has left it, or not come.
            yield _ras_rank(communicator, rank, missing=rank.status.unresponsive)


def _ras_rank(communicator: _Communicator, rank: _Rank, *, missing: bool) -> RasRank:
    codes = (rank.status.init_state, rank.status.async_error)
    wrong = next((code for code in codes if code not in (_SUCCESS, _IN_PROGRESS)), _SUCCESS)
    named = _ERRORS[wrong] if 0 <= wrong < len(_ERRORS) else f"error {wrong}"
    return RasRank(
        communicator=plain(communicator.hash),
        size=communicator.size,
        rank=rank.rank,
        host="" if rank.host == "unknown" else plain(rank.host),
        pid=rank.pid if rank.pid > 0 else None,
        missing=missing,
        dead=rank.status.considered_dead,
        error=named if wrong else "",
        counts={plain(op): count for op, count in rank.collective_counts.items()},
    )
