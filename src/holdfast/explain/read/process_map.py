"""Which process is which rank: from every line that names two of pid, host and rank. Pure.

A log names its writers by rank, by local rank, or by host and pid, depending on who wrote the
line. NCCL says 'rank 2' from pid 1011, torchrun's summary has rank, local rank and pid in a row,
a file's name may give the rank of all its lines.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Sequence

import msgspec

from holdfast.analysis.logs.patterns import all_patterns, launchers, nccl
from holdfast.analysis.logs.wreckage import Exit, LogLine, Sighting

_NODES = all_patterns.NODES.name
_COMMS = (nccl.INIT_START.name, nccl.INIT_COMPLETE.name)


class ProcessMap:
    """Learns pairs, then answers for lines."""

    def __init__(self) -> None:
        self._ranks: dict[tuple[str, int], set[int]] = defaultdict(set)
        """(host, pid) -> ranks it was said to be; host '' for any"""
        self._offsets: dict[str, set[int]] = defaultdict(set)
        """host or source -> rank minus local rank"""
        self._seen: set[int] = set()
        """ranks that wrote a line"""
        self._hosts: set[str] = set()
        self.highest_local = -1
        self.world_size: int | None = None
        self.nodes = 1
        """as a command or a launcher says"""

    def learn(self, rank: int, *, pid: int | None, host: str, local_rank: int | None) -> None:
        if pid is not None:
            self._ranks["", pid].add(rank)
            if host:
                self._ranks[host, pid].add(rank)
        if local_rank is not None and local_rank <= rank:
            self._offsets[host].add(rank - local_rank)

    def see(self, line: LogLine) -> None:
        self.highest_local = max(self.highest_local, line.local_rank or 0)
        if line.host:
            self._hosts.add(line.host)
        if line.rank is not None:
            self._seen.add(line.rank)
            self.learn(line.rank, pid=line.pid, host=line.host, local_rank=line.local_rank)

    def rank_of(self, line: LogLine) -> int | None:
        """The global rank of the writer; None when it cannot be known."""
        if line.rank is not None:
            return line.rank
        if line.pid is not None:
            for host in dict.fromkeys((line.host, "")):
                said = self._ranks.get((host, line.pid), set())
                if len(said) == 1:
                    return next(iter(said))
        return self.rank_of_local(line.local_rank, line.host)

    def rank_of_pid(self, pid: int | None, host: str = "") -> int | None:
        return self.rank_of(LogLine(text="", source="", number=0, pid=pid, host=host))

    def rank_of_local(self, local_rank: int | None, host: str) -> int | None:
        if local_rank is None:
            return None
        offsets = self._offsets.get(host) or self._offsets.get("") or set()
        if len(offsets) == 1:
            return local_rank + next(iter(offsets))
        offset = self._offset_of_the_only_node()
        return None if self._offsets or offset is None else local_rank + offset

    def _offset_of_the_only_node(self) -> int | None:
        """Of the only machine that wrote anything. With one machine in the job both counts are the
        same. With ranks 8-15 and no others, this is the log of the second machine."""
        low, count = min(self._seen, default=0), len(self._seen)
        if low > 0 and count > 1:
            whole_node = max(self._seen) - low + 1 == count > self.highest_local
            return low if whole_node and low % count == 0 else None
        several = self.nodes > 1 or len(self._hosts) > 1
        alone = self.world_size is None or self.world_size == self.highest_local + 1
        return 0 if alone and not several else None


def build(
    sightings: Sequence[Sighting],
    exits: Iterable[Exit],
    lines: Iterable[LogLine],
    *,
    pids: dict[int, int],
    world_size: int | None,
) -> ProcessMap:
    book = ProcessMap()
    book.world_size = world_size
    for rank, pid in pids.items():
        book.learn(rank, pid=pid, host="", local_rank=None)
    for line in lines:
        book.see(line)
    told = [int(s.fields["nodes"]) for s in sightings if s.pattern == _NODES]
    book.nodes = max(told, default=1)
    for one in exits:
        if one.rank is not None:
            book.learn(one.rank, pid=one.pid, host=one.host, local_rank=one.local_rank)
    for seen in sightings:
        if seen.pattern == launchers.RAY_RANK.name:
            told_of = {name: seen.fields[name] for name in ("rank", "pid", "local_rank")}
            numbers = {name: int(value) for name, value in told_of.items()}
            book.learn(numbers.pop("rank"), host=seen.fields["host"], **numbers)
    for seen in _of_the_whole_job(sightings):
        rank = int(seen.fields["rank"])
        book.learn(rank, pid=seen.line.pid, host=seen.line.host, local_rank=None)
    return book


def largest_group(sightings: Iterable[Sighting]) -> int | None:
    """NCCL's communicator of all ranks is the largest there is."""
    sizes = [int(s.fields["nranks"]) for s in sightings if s.pattern in _COMMS]
    return max(sizes, default=None)


def _of_the_whole_job(sightings: Sequence[Sighting]) -> list[Sighting]:
    """NCCL's lines that tell global ranks: those of the largest communicators, unless several of
    that size exist side by side, as with tensor-parallel groups only."""
    size = largest_group(sightings)
    told = [
        s
        for s in sightings
        if s.pattern in _COMMS and int(s.fields["nranks"]) == size and s.line.pid is not None
    ]
    holders: dict[str, set[tuple[str, int | None]]] = defaultdict(set)
    for seen in told:
        holders[seen.fields["rank"]].add((seen.line.host, seen.line.pid))
    comms = {s.fields.get("commid", "") for s in told}
    # A restart gives a rank a second pid too, but then one group ends before the next begins.
    shared = any(len(pids) > 1 for pids in holders.values())
    return [] if shared and not _one_after_the_other(told, comms) else told


def _one_after_the_other(told: Sequence[Sighting], comms: set[str]) -> bool:
    spans = []
    for comm in comms:
        orders = [s.order for s in told if s.fields.get("commid", "") == comm]
        spans.append((min(orders), max(orders)))
    spans.sort()
    return len(spans) > 1 and all(
        before[1] < after[0] for before, after in itertools.pairwise(spans)
    )


def placed(line: LogLine, book: ProcessMap, *, host: str = "") -> LogLine:
    """The line with the rank that the register gives it."""
    rank = book.rank_of(line)
    if rank == line.rank and (line.host or not host):
        return line
    return msgspec.structs.replace(line, rank=rank, host=line.host or host)
