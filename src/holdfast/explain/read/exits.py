"""What launchers, schedulers and shells say of ends -> Exits. Pure.

One process is reported several times (torchrun: a line when it happens, a row in the summary);
those are put together by its pid or rank. An end that the launcher brought about itself, after
another process had failed, is marked as teardown: it is never blamed.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from holdfast.analysis.logs.patterns import launchers as say
from holdfast.analysis.logs.patterns import shells, trainers
from holdfast.analysis.logs.wreckage import Exit, Sighting

_HOW = {
    "killed": -9,
    "out of memory": -9,
    "segmentation fault": -11,
    "memory fault": -11,
    "abort": -6,
    "bus error": -7,
    "terminated": -15,
    "floating": -8,
    "illegal": -4,
}
TASKS = 4096
"""of one line; a longer list of tasks names none of them"""
KILL, TERM = -9, -15

_ELASTIC = (say.ELASTIC_FAILED, say.ROW_CODE, say.CLOSING, say.DEATH_SIGNAL)


def exits(sightings: Sequence[Sighting]) -> tuple[Exit, ...]:
    """Every reported end, each process once, in the order reported."""
    told = [one for each in _by_source(sightings) for one in _of_source(each)]
    return tuple(_marked(_merged(told), sightings))


def code_of(number: int) -> int:
    """A shell's 137 is a death by signal 9, written -9 here."""
    return 128 - number if 128 < number < 160 else number


def _by_source(sightings: Iterable[Sighting]) -> Iterator[list[Sighting]]:
    ours = {one.name for one in say.ALL}
    sources: dict[str, list[Sighting]] = {}
    for one in sightings:
        if one.pattern in ours:
            sources.setdefault(one.line.source, []).append(one)
    yield from sources.values()


def _of_source(sightings: Sequence[Sighting]) -> Iterator[Exit]:
    row: dict[str, str] = {}
    root = False
    elastic = any(s.pattern in {one.name for one in _ELASTIC} for s in sightings)
    for seen in sightings:
        if seen.pattern == say.ROOT_CAUSE.name:
            root = "root" in seen.fields
        elif seen.pattern in (say.ROW_HOST.name, say.ROW_RANK.name):
            row |= seen.fields
        elif seen.pattern == say.ROW_CODE.name:
            yield _exit(seen, {**row, **seen.fields}, "torchrun", first=root)
            row = {}
        elif seen.pattern == say.MPI_EXIT.name:
            row |= {"rank": seen.fields["rank"]} if "rank" in seen.fields else {}
            if "code" in seen.fields or "hydra" in seen.fields:
                yield _exit(seen, {**row, **seen.fields}, "mpirun", first=True)
                row = {}
        elif seen.pattern == say.SLURM_TASK.name:
            yield from _tasks(seen, ranks=not elastic)
        elif one := _single(seen):
            yield one


_TELLERS = {
    say.ELASTIC_FAILED.name: "torchrun",
    say.SIGNAL_RECEIVED.name: "torchrun",
    say.DEEPSPEED_EXIT.name: "deepspeed",
    say.CALLED_PROCESS.name: "accelerate",
    say.SPAWN_ENDED.name: "torch.multiprocessing",
    say.MPI_SIGNAL.name: "mpirun",
    say.HOROVOD_EXIT.name: "horovod",
    say.POD_ENDED.name: "kubernetes",
    shells.SHELL_ENDED.name: "shell",
    shells.SHELL_TRANSLATED.name: "shell",
    trainers.LIGHTNING_CHILD.name: "lightning",
    trainers.COMPOSER_EXIT.name: "composer",
    trainers.NVRX_FAILED.name: "ft_launcher",
}
_NUMBERS = ("code", "hydra", "json", "exec", "docker", "number")
_FIRST = (
    say.ELASTIC_FAILED.name,
    say.SPAWN_ENDED.name,
    say.MPI_SIGNAL.name,
    trainers.LIGHTNING_CHILD.name,
    trainers.NVRX_FAILED.name,
)


def _single(seen: Sighting) -> Exit | None:
    """An end that one line reports by itself."""
    teller = _TELLERS.get(seen.pattern)
    if teller is None or _code(seen.fields) is None:
        return None
    return _exit(seen, seen.fields, teller, first=seen.pattern in _FIRST)


def _exit(seen: Sighting, fields: dict[str, str], teller: str, *, first: bool) -> Exit:
    return Exit(
        code=_code(fields) or 0,
        line=seen.line,
        rank=_number(fields.get("rank") or fields.get("global"))
        if seen.pattern != trainers.LIGHTNING_CHILD.name
        else seen.rank,
        local_rank=_number(fields.get("local_rank")),
        pid=_number(fields.get("pid")),
        host=fields.get("host", "") or seen.line.host,
        teller=teller,
        first=first,
    )


def _code(fields: dict[str, str]) -> int | None:
    if "signal" in fields:
        return -int(fields["signal"])
    if fields.get("name", "") in signal.Signals.__members__:
        return -signal.Signals[fields["name"]].value
    for word in (shells.in_english(fields.get(name, "")) for name in shells.HOW):
        if how := next((code for text, code in _HOW.items() if word.startswith(text)), 0):
            return how
    if fields.get("why") in ("OOMKilled", "Evicted"):
        return KILL
    number = next((fields[name] for name in _NUMBERS if name in fields), None)
    return None if number is None else code_of(int(number))


def _number(text: str | None) -> int | None:
    return int(text) if text is not None else None


def _tasks(seen: Sighting, *, ranks: bool) -> Iterator[Exit]:
    """`tasks 0-2,5: Killed`. A task is a rank, except where each task is a launcher."""
    code = _code(seen.fields)
    if code is None:
        return
    numbers: list[int] = []
    for first, last in re.findall(r"(\d{1,7})(?:-(\d{1,7}))?", seen.fields["tasks"]):
        numbers.extend(range(int(first), min(int(last or first), int(first) + TASKS) + 1))
    known = ranks and len(numbers) <= TASKS
    for number in numbers if known else [None]:
        one = _exit(seen, {}, "slurm", first=False)
        yield msgspec.structs.replace(one, code=code, rank=number, host=seen.fields["host"])


def _merged(told: Iterable[Exit]) -> list[Exit]:
    """What is said twice of one process becomes one Exit that knows all of it."""
    kept: dict[tuple[object, ...], Exit] = {}
    for one in told:
        whose: tuple[object, ...] = (one.pid,)
        if one.pid is None:
            whose = (one.rank, one.local_rank, one.host, one.line.text)
        key = (one.line.source, one.teller, one.code, *whose)
        old = kept.get(key, one)
        kept[key] = msgspec.structs.replace(
            old,
            rank=old.rank if old.rank is not None else one.rank,
            local_rank=old.local_rank if old.local_rank is not None else one.local_rank,
            host=old.host or one.host,
            first=old.first or one.first,
        )
    return list(kept.values())


def _marked(told: Sequence[Exit], sightings: Sequence[Sighting]) -> Iterator[Exit]:
    """Tell the launcher's own doing apart."""
    closed = _pids(sightings, say.CLOSING.name)
    forced = _pids(sightings, say.FORCED.name)
    swept = {
        s.line.source: s.order for s in reversed(sightings) if s.pattern == say.SLURM_SIGNALLED.name
    }
    failed = [one for one in told if one.code not in (0, TERM)]
    for one in told:
        late = one.line.source in swept and one.teller == "slurm" and not one.first
        by_launcher = (
            (one.code == TERM and (one.pid in closed or bool(failed)))
            or (one.code == KILL and one.pid in forced)
            or (one.code in (TERM, KILL) and late and _stands_after(one, swept, sightings))
        )
        yield msgspec.structs.replace(one, teardown=True) if by_launcher else one


def _stands_after(one: Exit, swept: dict[str, int], sightings: Sequence[Sighting]) -> bool:
    began = next(s for s in sightings if s.order == swept[one.line.source])
    return one.line.number > began.line.number


def _pids(sightings: Iterable[Sighting], name: str) -> set[int]:
    return {
        int(one.fields["pid"]) for one in sightings if one.pattern == name and "pid" in one.fields
    }
