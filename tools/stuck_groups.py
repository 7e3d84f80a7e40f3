"""Simulated jobs of 8 to 512 ranks against `explain` and `run`: are the right ranks named?

    python -m tools.stuck_groups [5000] [--first 0] [--largest 512] [--out PAGE.md] [--show]

In each job one or two ranks misbehave (see simulated_job.KINDS) and the others wait. The dumps, the
lines of torch's watchdogs and the scene of `run` are made from it, with their traps, and each is
judged by the real code. An answer is right where it names the culprits and no other rank; a set
where it names several ranks, one of which did it, and says so; unnamed where it blames no rank.
Wrong is an innocent rank alone, or a culprit overlooked. Exits 1 when one answer is wrong.
"""

from __future__ import annotations

import argparse
import datetime as dt
import os
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import NamedTuple

from holdfast import catalogue
from holdfast.analysis.collectives import dump_file
from holdfast.analysis.logs import also_missing, blame
from holdfast.analysis.logs.wreckage import Wreckage
from holdfast.explain.assemble import assemble
from holdfast.explain.diagnose import diagnose
from holdfast.explain.gather import gather_bytes
from holdfast.explain.read.collected import Collected
from holdfast.run.watch.verdict import judge
from tools.simulated_job import Job, random_job
from tools.simulated_remains import Remains, random_traps, torn_out

WAYS = ("dumps", "files", "lines", "both", "torn", "run")
"""by which the remains are judged: dumps, the same as files, watchdog lines, both, both after ranks
were torn out of their collectives by a killed one, and live"""


class Answer(NamedTuple):
    slug: str
    ranks: frozenset[int]
    undecided: bool
    """it says that it is a set one of which did it"""
    unread: frozenset[int]
    """ranks of which it says that nothing is known"""
    sure: float
    words: str


class Sample(NamedTuple):
    seed: int
    way: str
    job: Job
    remains: Remains
    answer: Answer
    grade: str


def samples(count: int, *, first: int = 0, largest: int = 512) -> Iterator[Sample]:
    for seed in range(first, first + count):
        job = random_job(seed, largest=largest)
        random = Random(seed)
        remains = Remains(job, random_traps(random, job))
        for way in _ways(random, job):
            yield _sample(seed, way, remains)
        # Drawn by itself, so that a seed gives the other remains again.
        torn = torn_out(Random(seed), job)
        if torn and seed % 3 == 0:
            yield _sample(seed, "torn", Remains(job, replace(remains.traps, torn=torn)))


def _sample(seed: int, way: str, remains: Remains) -> Sample:
    answer = ask(way, remains)
    return Sample(seed, way, remains.job, remains, answer, grade(remains.job, answer))


def _ways(random: Random, job: Job) -> list[str]:
    """Reading files starts a process, which takes longer than all the rest."""
    by_lines = ["lines", "both"] if job.backend == "nccl" else []
    rare = [*by_lines, "files"]
    return ["dumps", "run", *(way for way in rare if random.random() < 0.05)]


def ask(way: str, remains: Remains) -> Answer:
    if way == "run":
        return _live(remains)
    if way == "dumps":
        return _explained(_read(remains), remains.job.mesh.size)
    files = {} if way == "lines" else remains.dumps()
    if way != "files":
        files["job.log"] = remains.log()
    return _explained(gather_bytes(files), remains.job.mesh.size)


def _read(remains: Remains) -> Wreckage:
    collected = Collected()
    for name, data in remains.dumps().items():
        collected.recorders[int(name.rpartition("_")[2])] = dump_file.read(data)
    return assemble(collected)


def _explained(wreckage: Wreckage, ranks: int) -> Answer:
    found = diagnose(wreckage, [entry.fault for entry in catalogue.entries()])
    if not found.diagnoses:
        return Answer("", frozenset(), False, frozenset(), 0.0, "; ".join(found.remarks))
    first = found.diagnoses[0]
    culprit = first.culprit
    named = frozenset((*(culprit.ranks if culprit else ()), *first.also))
    if culprit and culprit.rank is not None:
        named |= {culprit.rank}
    by_lines = {r.rank for r in wreckage.ranks if not r.dumped}
    unread = {*also_missing.unread_ranks(wreckage, named), *by_lines}
    if not blame.of(wreckage).counted:
        unread |= set(range(max(wreckage.recorders) + 1, ranks))
    return Answer(
        first.slug,
        named,
        bool(culprit and culprit.one_of),
        frozenset(unread),
        first.confidence,
        f"{first.reason} {first.unknown}",
    )


def _live(remains: Remains) -> Answer:
    scene = Remains(remains.job, remains.traps.of_run()).scene()
    verdict = judge(scene, standstill=True)
    if verdict is None:
        return Answer("", frozenset(), False, frozenset(), 0.0, "")
    return Answer(
        verdict.slug,
        frozenset((*verdict.ranks, *verdict.also)),
        verdict.one_of,
        frozenset(remains.traps.lost),
        1.0 if verdict.certain else 0.6,
        verdict.reason,
    )


def grade(job: Job, answer: Answer) -> str:
    felt, all_of_them = set(job.felt()), set(job.culprits())
    if not answer.ranks:
        return "unnamed"
    if answer.ranks <= all_of_them:
        hidden = felt - answer.ranks
        if not hidden - answer.unread - _also_wait(job):
            return "right"
        return "set" if answer.undecided else "overlooked"
    possible = answer.ranks | answer.unread
    holds_them = possible >= felt - _also_wait(job) and bool(possible & all_of_them)
    return "set" if answer.undecided and holds_them else "wrong"


def _also_wait(job: Job) -> set[int]:
    """Culprits that look like any other rank that waits: by no record can they be told."""
    return {p.rank for p in job.players if p.did is not None and p.undone}


# --- the page ------------------------------------------------------------------------------------

GRADES = ("right", "set", "unnamed", "overlooked", "wrong")
FAILURES = ("overlooked", "wrong")
SLICE = 25
"""jobs that a process plays at a time"""


class Tally(NamedTuple):
    ways: Counter[tuple[str, str]]
    """(way, grade)"""
    kinds: Counter[tuple[str, str]]
    """(how the culprits misbehaved, grade)"""
    ranks: Counter[str]
    """of all jobs, and in all answers that are a set"""
    lines: list[str]
    """what was not right"""


def tally(first: int, count: int, largest: int, *, show: bool) -> Tally:
    found = Tally(Counter(), Counter(), Counter(), [])
    for sample in samples(count, first=first, largest=largest):
        kind = " and ".join(sorted(p.did.kind for p in sample.job.players if p.did))
        found.ways[sample.way, sample.grade] += 1
        found.kinds[kind, sample.grade] += 1
        if sample.way == "dumps":
            found.ranks["jobs"] += 1
            found.ranks["all"] += sample.job.mesh.size
        if sample.grade == "set":
            found.ranks["sets"] += 1
            found.ranks["named"] += len(sample.answer.ranks)
            found.ranks["of"] += sample.job.mesh.size
        if sample.grade in FAILURES or (show and sample.grade != "right"):
            found.lines.append(_line(sample))
    return found


def _line(sample: Sample) -> str:
    job = sample.job
    did = ", ".join(f"{m.rank} {m.kind}@{m.at} {m.axis}" for p in job.players if (m := p.did))
    return (
        f"{sample.grade} seed {sample.seed} {sample.way} {job.backend} tp{job.mesh.tp} "
        f"dp{job.mesh.dp} pp{job.mesh.pp} ep{job.mesh.ep} [{did}] felt {job.felt()} -> "
        f"{sample.answer.slug} {sorted(sample.answer.ranks)[:12]} "
        f"{sample.answer.sure:.2f}: {sample.answer.words[:300]}"
    )


def page(found: Tally, count: int, first: int, largest: int) -> list[str]:
    today = dt.datetime.now(tz=dt.timezone.utc).date().isoformat()
    ranks, named = found.ranks, max(1, found.ranks["sets"])
    failed = sum(n for (_, grade), n in found.ways.items() if grade in FAILURES)
    about = (
        f"`python -m tools.stuck_groups {count} --first {first} --largest {largest}`: {count} jobs "
        f"of 8 to {largest} ranks ({ranks['all'] / max(1, ranks['jobs']):.0f} on average) on "
        "random meshes of tensor, data, expert and pipeline parallel groups, one or two culprits "
        "in each, judged by the real code: from dumps as torch writes them (*dumps*, some of them "
        "as *files*), from the lines of torch's watchdogs (*lines*, *both*), both after a rank was "
        "killed and its neighbours lost their connections (*torn*), and as `holdfast run` sees the "
        "job (*run*). Dumps are lost, clocks differ, recorders note an end late."
    )
    meaning = (
        "*right*: the culprits are named and no other rank. *set*: several ranks are named, the "
        "culprits among them, and the answer says that it is one of these "
        f"({ranks['named'] / named:.0f} of {ranks['of'] / named:.0f} ranks on average). *unnamed*: "
        "no rank is blamed. *overlooked*: one culprit of two is not named, though no record of it "
        "is missing. *wrong*: an innocent rank is named."
    )
    return [
        f"# Several groups stuck: simulated jobs, {today}",
        *("", about, "", meaning, ""),
        *_table("judged by", found.ways),
        *_table("what the culprits did", found.kinds),
        f"Overlooked or wrong: {failed}.",
        "",
    ]


def _table(title: str, counted: Counter[tuple[str, str]]) -> list[str]:
    rows = [
        f"| {row} | " + " | ".join(str(counted[row, grade]) for grade in GRADES) + " |"
        for row in sorted({row for row, _ in counted})
    ]
    return [f"| {title} | {' | '.join(GRADES)} |", "|---|" + "--:|" * len(GRADES), *rows, ""]


def main() -> int:
    parser = argparse.ArgumentParser(description="simulated jobs against explain and run")
    parser.add_argument("count", type=int, nargs="?", default=5000)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--largest", type=int, default=512, help="ranks of the largest job")
    parser.add_argument("--out", type=Path, help="write the page there")
    parser.add_argument("--show", action="store_true", help="print every answer that is not right")
    asked = parser.parse_args()
    found = Tally(Counter(), Counter(), Counter(), [])
    with ProcessPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        parts = [
            pool.submit(
                tally, first, min(SLICE, asked.first + asked.count - first), asked.largest,
                show=asked.show,
            )
            for first in range(asked.first, asked.first + asked.count, SLICE)
        ]  # fmt: skip
        for done in as_completed(parts):
            part = done.result()
            found.ways.update(part.ways)
            found.kinds.update(part.kinds)
            found.ranks.update(part.ranks)
            found.lines.extend(part.lines)
            for line in part.lines:
                print(line, flush=True)
    report = page(found, asked.count, asked.first, asked.largest)
    print("\n".join(report))
    if asked.out:
        asked.out.write_text("\n".join(report))
    return int(any(grade in FAILURES for _, grade in found.ways))


if __name__ == "__main__":
    sys.exit(main())
