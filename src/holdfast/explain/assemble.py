"""Everything found -> Wreckage. Pure: which process is which rank, and how it ended."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

import msgspec

from holdfast.analysis.logs.patterns import all_patterns, nccl, watchdog
from holdfast.analysis.logs.rule_matches import RulesSeen
from holdfast.analysis.logs.wreckage import (
    Exit,
    InputSource,
    LoggedException,
    LogLine,
    RankRemains,
    Sighting,
    Wreckage,
)
from holdfast.analysis.machine import Unread
from holdfast.analysis.scene.scene import Recorder, Stack
from holdfast.analysis.scene.secondary_errors import SURVIVED
from holdfast.explain import survivors
from holdfast.explain.read import exits as ends
from holdfast.explain.read import process_map, settings, watchdog_positions
from holdfast.explain.read.collected import Collected
from holdfast.explain.read.process_map import ProcessMap, placed

_T = TypeVar("_T")
_STAGES = {pattern.name: stage for stage, pattern in enumerate(nccl.STAGES)}
LARGEST_WORLD = 1_000_000
"""a number above that is a misread one"""


def assemble(collected: Collected) -> Wreckage:
    old = _earlier_attempts(collected.attempts)
    sightings = [s for s in collected.sightings() if s.line.source not in old]
    exits = (*collected.exits, *ends.exits(sightings))
    spans = [pair for pair in collected.spans if pair[0].source not in old]
    told = settings.settings(sightings)
    world = _world_size(collected, sightings, told)
    book = process_map.build(
        sightings,
        exits,
        (*(s.line for s in sightings), *(line for pair in spans for line in pair)),
        pids=collected.pids,
        world_size=world,
    )
    host = collected.host
    exits = tuple(_placed_exit(one, book) for one in exits)
    caught = [
        msgspec.structs.replace(one, line=placed(one.line, book, host=host))
        for one in collected.raised
    ]
    placed_sightings = [_placed_sighting(s, book, host) for s in sightings]
    survived = survivors.settled(collected.survived, caught, exits, placed_sightings)
    # A sighting is compared with the exception around it by what the line itself says.
    seen = tuple(_placed_sighting(s, book, host) for s in survivors.outside(sightings, survived))
    raised = _without_echoes(
        one for one in survivors.marked(caught, survived) if one.line.source not in old
    )
    lines = [(placed(first, book, host=host), placed(last, book)) for first, last in spans]
    return Wreckage(
        sources=tuple(collected.sources),
        sightings=seen,
        raised=raised,
        exits=exits,
        ranks=_ranks(collected, book, seen, raised, exits, lines),
        world_size=world,
        settings=told,
        versions=settings.versions(sightings),
        live_verdicts=collected.live_verdicts,
        ras=tuple(sorted(collected.ras, key=lambda one: one.at)),
        lost_runs=tuple(collected.lost_runs),
        rules=_rules(collected, book),
    )


def _rules(collected: Collected, book: ProcessMap) -> RulesSeen:
    seen = collected.rules.seen()
    matches = [(one, placed(one.lines[0], book)) for one in seen.matches]
    return msgspec.structs.replace(
        seen,
        matches=tuple(msgspec.structs.replace(one, rank=line.rank) for one, line in matches),
        told=tuple(collected.rules_told),
        ended_well=collected.ended_well,
    )


def _earlier_attempts(attempts: dict[str, int]) -> set[str]:
    """Sources of attempts that were followed by another one: their failure led to a restart."""
    last = max(attempts.values(), default=0)
    return {source for source, attempt in attempts.items() if attempt < last}


def _world_size(
    collected: Collected, sightings: Sequence[Sighting], told: dict[str, str]
) -> int | None:
    """From the best source: our journal, torch's groups, NCCL, then what was only asked for."""
    recorders = [r for r in collected.recorders.values() if isinstance(r, Recorder)]
    groups = [len(r.members["0"]) for r in recorders if r.members.get("0")]
    named = told.get("WORLD_SIZE", "")
    candidates = (
        collected.world_size,
        max(groups, default=None),
        process_map.largest_group(sightings),
        int(named) if named.isdecimal() and len(named) < 8 else None,
        *(_asked(sightings, *names) for names in _ASKED),
    )
    found = next((size for size in candidates if size), None)
    highest = max((s.rank for s in sightings if s.rank is not None), default=-1)
    return found if found and highest < found < LARGEST_WORLD else None


_ASKED = (
    (all_patterns.WORLD.name, "member", "elastic", "said"),
    (watchdog.STORE_BARRIER.name, "expected"),
    (watchdog.CLIENTS_JOINED.name, "expected"),
)
"""a pattern, and its groups that hold the size"""


def _asked(sightings: Sequence[Sighting], name: str, *groups: str) -> int | None:
    for seen in sightings:
        if seen.pattern == name:
            return next((int(seen.fields[g]) for g in groups if g in seen.fields), None)
    return None


def _placed_sighting(one: Sighting, book: ProcessMap, host: str) -> Sighting:
    line = placed(one.line, book, host=host)
    return one if line is one.line else msgspec.structs.replace(one, line=line)


def _placed_exit(one: Exit, book: ProcessMap) -> Exit:
    if one.rank is not None:
        return one
    rank = book.rank_of_pid(one.pid, one.host)
    if rank is None:
        rank = book.rank_of_local(one.local_rank, one.host)
    return msgspec.structs.replace(one, rank=rank)


def _without_echoes(raised: Iterable[LoggedException]) -> tuple[LoggedException, ...]:
    """torchrun's summary and error.json repeat what a rank wrote: the fuller one stays."""
    kept: dict[object, LoggedException] = {}
    for one in raised:
        key = (one.kind, one.text.partition("\n")[0], one.rank)
        old = kept.get(key)
        if old is not None and _is_another(one, old):
            kept[key] = msgspec.structs.replace(old, times=old.times + 1)
        elif old is None or _tells_more(one, old):
            kept[key] = one
    return tuple(sorted(kept.values(), key=lambda one: one.order))


def _is_another(one: LoggedException, old: LoggedException) -> bool:
    """A second traceback in one log, of no rank that is known: another rank's, or an attempt's."""
    same = one.line.source == old.line.source and one.consequence == old.consequence
    return same and one.rank is None and one.frames == old.frames != ()


def _tells_more(one: LoggedException, old: LoggedException) -> bool:
    """One that was retried may end the program at last."""
    if (one.consequence == SURVIVED) != (old.consequence == SURVIVED):
        return old.consequence == SURVIVED
    return not old.frames and bool(one.frames)


_Spans = Sequence[tuple[LogLine, LogLine]]


def _ranks(
    collected: Collected,
    book: ProcessMap,
    sightings: Sequence[Sighting],
    raised: Sequence[LoggedException],
    exits: Sequence[Exit],
    spans: _Spans,
) -> tuple[RankRemains, ...]:
    by_sighting, by_raised = _by(sightings, lambda s: s.rank), _by(raised, lambda one: one.rank)
    by_exit, by_span = _by(exits, lambda one: one.rank), _by(spans, lambda pair: pair[0].rank)
    stacks = _by(collected.stacks, lambda s: s[0] if s[0] is not None else book.rank_of_pid(s[1]))
    logs = _by(_logs(collected, book), lambda pair: pair[1])
    numbers = {*by_sighting, *by_raised, *by_exit, *by_span, *stacks, *logs}
    numbers |= {*collected.recorders, *collected.pids}
    return tuple(
        _remains(
            number,
            collected,
            sightings=by_sighting.get(number, []),
            raised=by_raised.get(number, []),
            exits=by_exit.get(number, []),
            spans=by_span.get(number, []),
            stack=next((stack for _, _, stack in stacks.get(number, [])), None),
            logs=tuple(name for name, _ in logs.get(number, [])),
        )
        for number in sorted(n for n in numbers if n is not None)
    )


def _by(items: Iterable[_T], key: Callable[[_T], int | None]) -> dict[int | None, list[_T]]:
    found: dict[int | None, list[_T]] = {}
    for one in items:
        found.setdefault(key(one), []).append(one)
    return found


def _logs(collected: Collected, book: ProcessMap) -> list[tuple[str, int | None]]:
    """(source, its only rank)"""
    old = _earlier_attempts(collected.attempts)
    logs = [one for one in collected.sources if one.kind == "log" and one.name not in old]
    return [
        (source.name, rank)
        for source in logs
        if (rank := _rank_of(source, collected, book)) is not None
    ]


def _rank_of(source: InputSource, collected: Collected, book: ProcessMap) -> int | None:
    if source.rank is not None:
        return source.rank
    return book.rank_of_local(collected.local_ranks.get(source.name), "")


def _remains(
    rank: int,
    collected: Collected,
    *,
    sightings: Sequence[Sighting],
    raised: Sequence[LoggedException],
    exits: Sequence[Exit],
    spans: _Spans,
    stack: Stack | None,
    logs: tuple[str, ...],
) -> RankRemains:
    lines = [*(s.line for s in sightings), *(line for pair in spans for line in pair)]
    told: tuple[LogLine | Exit, ...] = (*lines, *exits)
    pid = next((one.pid for one in told if one.pid is not None), None)
    dump = collected.recorders.get(rank)
    recorder: Recorder | Unread | None = dump
    if not isinstance(dump, Recorder):
        recorder = watchdog_positions.recorder(sightings) or dump
    end = next((one for one in exits if not one.teardown), exits[0] if exits else None)
    return RankRemains(
        rank=rank,
        local_rank=next((one.local_rank for one in told if one.local_rank is not None), None),
        host=next((one.host for one in told if one.host), collected.host),
        pid=collected.pids.get(rank, pid),
        logs=logs,
        first=spans[0][0] if spans else None,
        last=spans[-1][1] if spans else None,
        sightings=tuple(sightings),
        raised=tuple(raised),
        exit=end,
        recorder=recorder,
        dumped=dump is not None,
        stack=stack,
        nccl_stage=max((_STAGES.get(s.pattern, -1) for s in sightings), default=-1),
        finished=end is not None and end.code == 0,
    )
