"""RAS's answer as text, which every NCCL since 2.24 gives: sections of lines -> RasAnswer.

It names outliers only: the ranks that miss, report an error, or differ from the majority. Written
from src/ras/client_support.cc of NVIDIA/nccl, 2.24 to 2.31.
"""

from __future__ import annotations

import re

from holdfast.analysis.ras.answer import (
    RasAnswer,
    RasCommunicator,
    RasMember,
    RasProcess,
    RasState,
)
from holdfast.analysis.ras.errors import error_of_words

MOST_LINES = 200_000
LONGEST_LINE = 2000

_HOST = r"([0-9A-Za-z][0-9A-Za-z._:%-]{0,252})"
_NCCL = re.compile(r"NCCL version (\d[\w.+-]{0,31}) compiled with CUDA .*", re.ASCII)
_TOTAL = re.compile(r"(?:\d{1,9} +){3}(\d{1,9}) +\d{1,9}|\d{1,9} +(\d{1,9}) +\d{1,9}")
_GROUP = re.compile(
    r"(\d{1,9}) +\d{1,9} +\d{1,9} +\d{1,9}(?:-\d{1,9})? +(\d{1,9}) +\d{1,9} +([A-Z]+) +[A-Z,]+"
)
_SECTION = re.compile(
    r"(?:#(\d{1,9})-\d{1,9} \(([0-9a-f]{1,32})\) )?(INCOMPLETE|DEAD|ERROR|MISMATCH|TIMEOUT)"
)
_PROCESS = re.compile(rf"Process (\d{{1,9}}) on node {_HOST} managing GPUs? .*")
_RANK = re.compile(
    r"Rank (\d{1,9})(?: (?:has launched up to operation (?P<count>\d{1,19})|(?P<none>has not"
    r" launched any operations)|reported (?P<error>[ -~]+?)|has status (?P<status>[A-Z]+)))?"
    rf" -- (?:GPU .+? managed by process (?P<pid>\d{{1,9}}) on node (?P<host>{_HOST})|\[.*\])"
)
_SEVERAL = re.compile(
    r"(?P<many>\d{1,9}) ranks (?:have launched up to operation (?P<count>\d{1,19})|(?P<none>have"
    r" not launched any operations)|reported (?P<error>[ -~]+)|have status (?P<status>[A-Z]+))"
)
_OPERATION = re.compile(
    r"Communicator ranks have different (?:(\w{1,32}) operation counts|status)", re.ASCII
)
_MISSING = re.compile(r"The missing ranks?: ([\d,]{1,20000})")


def read(data: bytes, *, source: str) -> RasAnswer:
    reader = _RasTextReader()
    for number, raw in enumerate(data.split(b"\n", MOST_LINES)[:MOST_LINES], start=1):
        reader.line(raw[:LONGEST_LINE].decode("utf-8", "replace").strip(), number)
    return reader.answer(source)


class _RasTextReader:
    def __init__(self) -> None:
        self._nccl = ""
        self._processes = 0
        self._sizes: dict[str, int] = {}
        """group number -> ranks of each of its communicators"""
        self._silent: dict[tuple[str, int], RasProcess] = {}
        self._members: dict[str, dict[int, RasMember]] = {}
        self._launched: dict[str, dict[str, dict[int, int]]] = {}
        self._groups: dict[str, str] = {}
        self._communicator = self._section = self._operation = ""
        self._shared: dict[str, str | None] = {}
        """what the ranks listed below have in common"""

    def line(self, line: str, number: int) -> None:
        if head := _SECTION.fullmatch(line):
            self._begin(head)
        elif not self._section:
            self._head(line)
        elif counted := _OPERATION.fullmatch(line):
            self._operation, self._shared = counted[1] or "", {}
        elif several := _SEVERAL.fullmatch(line):
            self._shared = several.groupdict()
            self._count(self._shared, int(several["many"]))
        elif process := _PROCESS.fullmatch(line):
            self._note_process(process, number)
        elif (rank := _RANK.fullmatch(line)) and self._communicator:
            self._note_rank(rank, number)
        elif (missing := _MISSING.fullmatch(line)) and self._communicator:
            for told in filter(None, missing[1].split(",")):
                self._note(RasMember(rank=int(told[:9]), state="silent", line=number))

    def _begin(self, head: re.Match[str]) -> None:
        self._communicator, self._section = head[2] or "", head[3]
        self._operation, self._shared = "", {}
        if head[2]:
            self._groups[head[2]] = head[1]
            self._members.setdefault(head[2], {})

    def _head(self, line: str) -> None:
        """What comes before the sections: the version, and two tables."""
        if version := _NCCL.fullmatch(line):
            self._nccl = version[1]
        elif group := _GROUP.fullmatch(line):
            self._sizes[group[1]] = int(group[2])
        elif total := _TOTAL.fullmatch(line):
            self._processes = int(total[1] or total[2])

    def _note_process(self, told: re.Match[str], number: int) -> None:
        one = RasProcess(host=told[2], pid=int(told[1]), dead=self._section == "DEAD", line=number)
        self._silent[one.host, one.pid] = one

    def _note_rank(self, rank: re.Match[str], number: int) -> None:
        own = rank.groupdict()
        alone = any(own[key] for key in ("count", "none", "error", "status"))
        told = own if alone else self._shared
        if alone:
            self._count(told, 1)
        counts: dict[str, int] = {}
        if self._operation and (told.get("count") or told.get("none")):
            counts = {self._operation: int(told.get("count") or 0)}
        status = told.get("status") or ""
        error = error_of_words(told["error"] or "") if told.get("error") else ""
        self._note(
            RasMember(
                rank=int(rank[1]),
                host=own["host"] or "",
                pid=int(own["pid"]) if own["pid"] else None,
                state=self._state(status),
                error=error,
                leaving=status in ("INIT", "FINALIZE", "ABORT"),
                counts=counts,
                line=number,
            )
        )

    def _state(self, status: str) -> RasState:
        if self._section == "INCOMPLETE":
            return "silent"
        return "left" if status in ("NOCOMM", "UNKNOWN") else "answers"

    def _count(self, told: dict[str, str | None], many: int) -> None:
        if self._operation and (told.get("count") or told.get("none")):
            spreads = self._launched.setdefault(self._communicator, {})
            spread = spreads.setdefault(self._operation, {})
            count = int(told.get("count") or 0)
            spread[count] = spread.get(count, 0) + many

    def _note(self, one: RasMember) -> None:
        """A rank may be named in several sections."""
        members = self._members[self._communicator]
        before = members.get(one.rank)
        if before is not None:
            one = RasMember(
                rank=one.rank,
                host=one.host or before.host,
                pid=one.pid or before.pid,
                state=before.state if one.state == "answers" else one.state,
                error=one.error or before.error,
                leaving=one.leaving or before.leaving,
                counts={**before.counts, **one.counts},
                line=before.line,
            )
        members[one.rank] = one

    def answer(self, source: str) -> RasAnswer:
        dead = {place for place, one in self._silent.items() if one.dead}
        sizes = {name: self._sizes.get(group) for name, group in self._groups.items()}
        return RasAnswer(
            nccl=self._nccl,
            communicators=tuple(
                RasCommunicator(
                    name=name,
                    size=sizes[name] or 0,
                    members=tuple(_with_death(members[r], dead) for r in sorted(members)),
                    launched=self._launched.get(name, {}),
                )
                for name, members in self._members.items()
                if _is_sane(members, sizes[name])
            ),
            silent=tuple(self._silent.values()),
            processes=self._processes,
            source=source,
        )


def _is_sane(members: dict[int, RasMember], size: int | None) -> bool:
    """One that is being made while RAS looks may come as zeros or garbage (NVIDIA/nccl#1762)."""
    return size is None or (size > 0 and max(members, default=0) < size)


def _with_death(one: RasMember, dead: set[tuple[str, int]]) -> RasMember:
    if one.state != "silent" or one.pid is None or (one.host, one.pid) not in dead:
        return one
    return RasMember(rank=one.rank, host=one.host, pid=one.pid, state="dead", line=one.line)
