"""What NCCL's RAS said of a job, for the faults that explain it: names, sentences, quotes. Pure."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from holdfast import text
from holdfast.analysis.logs.wreckage import Wreckage
from holdfast.analysis.ras import judge
from holdfast.analysis.ras.answer import RasAnswer, RasMember, RasProcess
from holdfast.analysis.ras.judge import RasGap
from holdfast.findings import Culprit, Evidence

SHOWN = 4
"""processes named one by one"""
QUOTED = 16
"""of a thousand that say the same"""


class LateRanks(msgspec.Struct, frozen=True, kw_only=True):
    """Ranks of a communicator that have not launched what the others have."""

    answer: RasAnswer
    gap: RasGap
    lasted: float
    """seconds between two answers that show the same; 0 where there is only one"""


def newest(wreckage: Wreckage) -> RasAnswer | None:
    return wreckage.ras[-1] if wreckage.ras else None


def late_ranks(wreckage: Wreckage) -> LateRanks | None:
    """The gap of the largest communicator that has one; of several answers, one that stays."""
    answer = newest(wreckage)
    if answer is None:
        return None
    before = next((o for o in wreckage.ras if o.at and answer.at - o.at >= judge.APART), None)
    if before is None:
        found = judge.gaps(answer)
        return LateRanks(answer=answer, gap=found[0], lasted=0.0) if found else None
    stayed = judge.lasting(before, answer)
    lasted = answer.at - before.at
    return LateRanks(answer=answer, gap=stayed[0], lasted=lasted) if stayed else None


def number(answer: RasAnswer, one: RasProcess | RasMember) -> int | None:
    """Its rank in the job, where RAS shows it."""
    return judge.numbers(answer).get((one.host, one.pid))


def named(answer: RasAnswer, processes: Iterable[RasProcess | RasMember]) -> str:
    """'rank 1 (pid 601 on 192.0.2.2)', 'pid 601 on 192.0.2.2 and pid 602 on 192.0.2.2'."""
    listed = list(processes)
    words = [_name(answer, one) for one in listed[:SHOWN]]
    more = [f"{len(listed) - SHOWN} more"] if len(listed) > SHOWN else []
    *first, last = [*words, *more]
    return f"{', '.join(first)} and {last}" if first else last


def _name(answer: RasAnswer, one: RasProcess | RasMember) -> str:
    rank = number(answer, one)
    return _place(one) if rank is None else f"rank {rank} ({_place(one)})"


def _place(one: RasProcess | RasMember) -> str:
    if one.pid is None and isinstance(one, RasMember):
        return f"rank {one.rank} of its communicator"
    return f"pid {one.pid}" + (f" on {one.host}" if one.host else "")


def culprit(answer: RasAnswer, processes: Iterable[RasProcess | RasMember]) -> Culprit:
    """One of several cannot be picked honestly."""
    listed = list(processes)
    if len(listed) != 1:
        return Culprit(what=named(answer, listed) if listed else "")
    one = listed[0]
    return Culprit(rank=number(answer, one), host=one.host, pid=one.pid)


def others(answer: RasAnswer, processes: Iterable[RasProcess | RasMember]) -> list[int]:
    """The ranks of the job but these, as far as RAS numbers them."""
    group = judge.whole(answer)
    gone = [number(answer, one) for one in processes]
    if group is None or None in gone:
        return []
    return [rank for rank in range(group.size) if rank not in gone]


def quotes(answer: RasAnswer) -> list[Evidence]:
    """The processes and ranks that it finds something wrong with."""
    found = [
        _quote(answer, one, "is considered dead" if one.dead else "does not answer")
        for one in answer.silent[:QUOTED]
    ]
    wrong = [m for one in answer.communicators for m in one.members if m.error]
    return found + [_quote(answer, one, f"reports {one.error}") for one in wrong[:QUOTED]]


def gap_quotes(late: LateRanks) -> list[Evidence]:
    gap = late.gap
    return [
        _quote(late.answer, one, f"has launched {gap.operation} {one.counts[gap.operation]} times")
        for one in (*gap.behind, *gap.ahead)[:QUOTED]
    ]


def _quote(answer: RasAnswer, one: RasProcess | RasMember, words: str) -> Evidence:
    return Evidence(
        quote=f"{_place(one)} {words}",
        source=answer.source,
        line=one.line or None if not answer.at else None,
        rank=number(answer, one),
    )


def different_calls(late: LateRanks) -> list[Evidence]:
    """Of ranks that did not call the same collectives: what each has launched."""
    return [
        _quote(late.answer, one, f"has launched {_counts(one)}")
        for part in late.gap.crossed
        for one in part[:SHOWN]
    ]


def _counts(one: RasMember) -> str:
    told = [f"{op} {count} times" for op, count in one.counts.items() if count]
    return text.names(told) or "nothing"


def gap_sentence(late: LateRanks) -> str:
    """'rank 1 (pid 601 on n1) has launched 129 AllReduce of communicator 1a3a, and the other 2
    ranks 130; nothing changed in 2.0 s'."""
    gap, answer = late.gap, late.answer
    of = f"{gap.operation} of communicator {gap.communicator}"
    stayed = f"; nothing changed in {text.elapsed(late.lasted)}" if late.lasted else ""
    least = str(gap.least) if gap.least else "no"
    fewer = f"{least} to {gap.most - 1}" if _several(gap) else least
    if gap.odd == "ahead":
        odd, count, theirs, rest, others_have = (
            gap.ahead, gap.count_ahead, str(gap.most), gap.count_behind, fewer,
        )  # fmt: skip
    else:
        odd, count, theirs, rest, others_have = (
            gap.behind, gap.count_behind, fewer, gap.count_ahead, str(gap.most),
        )  # fmt: skip
    have = "has" if count == 1 else "have"
    return (
        f"{_some(answer, odd, count)} {have} launched {theirs} {of}, and the other "
        f"{text.counted(rest, 'rank')} {others_have}{stayed}"
    )


def _several(gap: RasGap) -> bool:
    return len({one.counts[gap.operation] for one in gap.behind}) > 1


def _some(answer: RasAnswer, members: tuple[RasMember, ...], count: int) -> str:
    if members and len(members) == count <= SHOWN:
        return named(answer, members)
    return text.counted(count, "rank")


def signs(wreckage: Wreckage) -> tuple[Evidence, ...]:
    """For a reader who gets no diagnosis: what RAS found wrong."""
    answer = newest(wreckage)
    return tuple(quotes(answer)) if answer else ()
