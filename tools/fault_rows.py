"""What each fault of the table should come to, and a row of it, judged from a run's journal."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import msgspec

from holdfast.run.runs import journal

Record = dict[str, Any]
DEATH_SEEN = 0.3
NAMED = 5.0
ACTED = 5.0


@dataclass(frozen=True)
class Expected:
    slug: str
    kind: str
    """'death' and 'certain' are acted on at once, 'patience' when that is over, 'notice' never"""
    steps: int = 40
    script: str = "ddp.py"
    """below tests/targets"""
    evidence: bool = True
    """the others are still there to leave some"""


FAULTS = {
    "kill": Expected("rank-killed", "death"),
    "exception": Expected("python-exception", "death"),
    "exit": Expected("rank-exits-early", "death"),
    "report": Expected("python-exception", "death"),
    "leave": Expected("rank-exits-early", "death"),
    "late": Expected("python-exception", "death", steps=20, evidence=False),
    "segfault": Expected("native-crash", "death"),
    "hog": Expected("host-oom", "death"),
    "stop": Expected("rank-frozen", "certain"),
    "sleep": Expected("rank-stuck", "patience"),
    "busy": Expected("rank-stuck", "patience"),
    "gil": Expected("gil-held", "patience"),
    "size": Expected("collective-mismatch", "certain"),
    "skip": Expected("collective-mismatch", "certain"),
    "group": Expected("rank-conditional-code", "certain"),
    "slow": Expected("slow-rank", "notice", steps=90),
}

PARALLEL = {
    f"{job} {fault}": Expected(slug, kind, steps=steps, script=script)
    for job, script in (("fsdp2", "fsdp2.py"), ("tp×dp", "tp_dp.py"))
    for fault, slug, kind, steps in (
        ("exception", "python-exception", "death", 40),
        ("exit", "rank-exits-early", "death", 40),
        ("stop", "rank-frozen", "certain", 40),
        ("sleep", "rank-stuck", "patience", 40),
        ("size", "collective-mismatch", "certain", 40),
        ("slow", "slow-rank", "notice", 60),
    )
}
"""the same faults where ranks meet in other ways: sharded parameters, and several groups"""
PARALLEL["tp×dp group"] = Expected("rank-conditional-code", "certain", script="tp_dp.py")
WORLDS = {
    f"worlds {fault}": Expected(slug, kind, steps=240, script="worlds.py")
    for fault, slug, kind in (
        ("exception", "python-exception", "death"),
        ("exit", "rank-exits-early", "death"),
        ("stop", "rank-frozen", "certain"),
        ("sleep", "rank-stuck", "patience"),
    )
}
"""in one of two worlds, while the other one trains on; and in a group that was made again"""
WORLDS["again sleep"] = Expected("rank-stuck", "patience", script="made_again.py")
WORLDS["again size"] = Expected("collective-mismatch", "certain", script="made_again.py")
EVERY = FAULTS | PARALLEL | WORLDS


@dataclass
class Row:
    fault: str
    rank: int
    slug: str = ""
    seen: float | None = None
    """seconds to the first sign: a death noticed, evidence taken, a sentence"""
    named: float | None = None
    acted: float | None = None
    evidence: str = ""
    exit_code: int | None = None
    wrong: list[str] = field(default_factory=list)
    skipped: str = ""

    HEAD: ClassVar[str] = "| fault | rank | named | seen | notice | action | evidence | end | |"

    def line(self) -> str:
        if self.skipped:
            return f"| {self.fault} | {self.rank} | | | | | | | skipped: {self.skipped} |"
        times = " | ".join("" if t is None else f"{t:.2f}" for t in (self.seen, self.named,
                                                                    self.acted))  # fmt: skip
        verdict = "; ".join(self.wrong) or "right"
        return (
            f"| {self.fault} | {self.rank} | {self.slug} | {times} | {self.evidence} "
            f"| {self.exit_code} | {verdict} |"
        )


def judge(fault: str, rank: int, folder: Path, *, ranks: int, patience: float) -> Row:
    row = Row(fault=fault, rank=rank)
    run = folder / "runs" / "latest"
    records: list[Record] = [
        msgspec.to_builtins(record) for record in journal.read(str(run / "journal.jsonl"))
    ]
    moment = folder / "fault-time"
    if not records or not moment.exists():
        row.wrong.append("the fault never came")
        return row
    at = float(moment.read_text())
    first = [record for record in records if record.get("attempt") == 0 and record["t"] >= at]
    # The scripts keep no checkpoint, and are told so after the restart: that is no blame.
    said = [record for record in records
            if record["kind"] in ("notice", "verdict")
            and record["slug"] != "restart-from-zero"]  # fmt: skip
    _times(row, first, at)
    row.exit_code = next((r["exit_code"] for r in records if r["kind"] == "end"), None)
    expected = EVERY[fault]
    row.wrong += _blame(row, expected, said)
    row.wrong += _haste(row, expected, patience)
    row.evidence = f"{_traces(run / 'attempt-0', rank, ranks)}/{ranks - 1}"
    if expected.evidence and row.evidence != f"{ranks - 1}/{ranks - 1}":
        row.wrong.append("evidence is missing")
    if row.exit_code != 0:
        row.wrong.append("the job did not end well")
    return row


def _times(row: Row, records: list[Record], at: float) -> None:
    def first(*kinds: str) -> float | None:
        return next((r["t"] - at for r in records if r["kind"] in kinds), None)

    row.seen = first("rank", "evidence", "notice", "verdict")
    row.named = first("notice", "verdict")
    row.acted = first("action")


def _blame(row: Row, expected: Expected, said: list[Record]) -> list[str]:
    final = said[-1] if said else {}
    row.slug = str(final.get("slug", ""))
    wrong = []
    if row.slug != expected.slug:
        wrong.append(f"should be {expected.slug}")
    if list(final.get("ranks", ())) != [row.rank]:
        wrong.append(f"names {final.get('ranks')}")
    for record in said:
        innocent = [rank for rank in record["ranks"] if rank != row.rank]
        if innocent or record["attempt"]:
            wrong.append(f"{record['kind']} {record['slug']} blames {record['ranks']} in "
                         f"attempt {record['attempt']}")  # fmt: skip
    return wrong


def _haste(row: Row, expected: Expected, patience: float) -> list[str]:
    wrong = []
    if expected.kind == "death" and (row.seen is None or row.seen > _death_seen(row)):
        wrong.append(f"seen later than {_death_seen(row)} s")
    if row.named is None or row.named > _named(row):
        wrong.append(f"named later than {_named(row)} s")
    if expected.kind == "notice":
        return wrong + ["acted on"] * (row.acted is not None)
    if row.acted is None:
        return [*wrong, "not acted on"]
    if expected.kind == "patience":
        if not patience <= row.acted <= patience + NAMED:
            wrong.append(f"acted on after {row.acted:.1f} s")
    elif row.acted > ACTED + (row.fault == "hog") * HOG:
        wrong.append(f"acted on later than {ACTED} s")
    return wrong


HOG = 10.0
"""seconds a hog may take to fill its cgroup: it dies only then"""
SLOW = 15.0
"""seconds of slow steps before a pace is known to have changed: it is no hang"""


TEARDOWN = 1.0
"""seconds that Python with torch takes to come apart: one that exits is dead only then"""


def _death_seen(row: Row) -> float:
    later = {"hog": HOG, "report": TEARDOWN, "late": TEARDOWN}
    return DEATH_SEEN + later.get(row.fault, 0.0)


def _named(row: Row) -> float:
    return {"hog": NAMED + HOG, "slow": SLOW}.get(row.fault.rpartition(" ")[2], NAMED)


def _traces(attempt: Path, culprit: int, ranks: int) -> int:
    """How many of the others left something: a stack, a recorder, or last words."""
    return sum(
        any(attempt.glob(f"evidence-*/rank-{rank}.stack.json"))
        or any(attempt.glob(f"evidence-*/rank-{rank}.recorder.json"))
        or (attempt / f"rank-{rank}" / "last_words.json").exists()
        for rank in range(ranks)
        if rank != culprit
    )
