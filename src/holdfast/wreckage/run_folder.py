"""The folder of a `holdfast run`: its journal tells who was who, and which files to read.

Of several attempts the last one that failed is explained. A run that failed and went on was
restarted for a reason, and that reason is what its user wants to know.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import Any

import msgspec

from holdfast.paths import MARKER, RunPaths
from holdfast.remains.nouns import Exit, Line, Told

_LARGEST_JOURNAL = 64 << 20
_ATTEMPT = re.compile(r"attempt-(\d{1,9})")


class RunFolder(msgspec.Struct, frozen=True, kw_only=True):
    """What the journal says of the attempt that is explained."""

    paths: RunPaths
    attempt: int
    world_size: int | None
    pids: dict[int, int]
    """rank -> pid"""
    host: str
    exits: tuple[Exit, ...]
    told: tuple[Told, ...]
    finished: bool
    """this very attempt ended well: nothing is to be explained"""

    def files(self) -> Iterator[tuple[int | None, str]]:
        """(rank, path) of what is worth reading: the ranks' logs, and the last evidence taken."""
        folder = self.paths.attempt(self.attempt)
        for name in _listed(folder):
            inside = re.fullmatch(r"rank-(\d{1,9})", name)
            if inside:
                rank = int(inside[1])
                yield rank, self.paths.stdout(self.attempt, rank)
                yield rank, self.paths.stderr(self.attempt, rank)
        for evidence in self.evidence_folders()[-1:]:
            for name in _listed(evidence):
                whose = re.match(r"rank-(\d{1,9})\.(?:stack|recorder)\.json$", name)
                if whose or name == "kernel.log":
                    yield int(whose[1]) if whose else None, os.path.join(evidence, name)

    def evidence_folders(self) -> list[str]:
        """Oldest first."""
        folder = self.paths.attempt(self.attempt)
        numbered = [
            (number, name)
            for name in _listed(folder)
            if (number := RunPaths.evidence_number(name)) is not None
        ]
        return [os.path.join(folder, name) for _, name in sorted(numbered)]


def looks_like(path: str) -> bool:
    return os.path.isfile(os.path.join(path, MARKER))


def read(path: str) -> RunFolder:
    """Never raises: a journal cut in the middle of a line, as a crash leaves it, is read as far
    as it goes."""
    root, name = os.path.split(os.path.abspath(path))
    paths = RunPaths(root, name)
    records = list(_journal(paths.journal))
    attempt = _attempt_to_explain(records, paths)
    mine = [(number, r) for number, r in records if r.get("attempt", attempt) == attempt]
    worlds = [r["world"] for _, r in mine if isinstance(r.get("world"), int)]
    ranks = [r for _, r in mine if r.get("kind") == "rank" and isinstance(r.get("rank"), int)]
    hosts = [h for _, r in mine for h in r.get("hosts", ()) if isinstance(h, str)]
    ended = [r.get("exit_code") for _, r in mine if r.get("kind") == "end"]
    return RunFolder(
        paths=paths,
        attempt=attempt,
        world_size=worlds[-1] if worlds else None,
        pids={r["rank"]: r["pid"] for r in ranks if isinstance(r.get("pid"), int)},
        host=hosts[-1] if hosts else "",
        exits=tuple(_exits(mine, paths.journal)),
        told=tuple(_told(mine, paths.journal)),
        finished=ended[-1:] == [0] and not any(r.get("kind") == "verdict" for _, r in mine),
    )


def _journal(path: str) -> Iterator[tuple[int, dict[str, Any]]]:
    try:
        with open(path, "rb") as file:
            text = file.read(_LARGEST_JOURNAL)
    except OSError:
        return
    for number, line in enumerate(text.splitlines(), start=1):
        try:
            record = msgspec.json.decode(line)
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            continue
        if isinstance(record, dict):
            yield number, record


def _attempt_to_explain(records: list[tuple[int, dict[str, Any]]], paths: RunPaths) -> int:
    failed = [
        r["attempt"]
        for _, r in records
        if r.get("kind") == "verdict" and isinstance(r.get("attempt"), int)
    ]
    if failed:
        return int(failed[-1])
    seen = [int(found[1]) for name in _listed(paths.folder) if (found := _ATTEMPT.fullmatch(name))]
    return max(seen, default=0)


def _exits(records: list[tuple[int, dict[str, Any]]], journal: str) -> Iterator[Exit]:
    for number, record in records:
        code, rank = record.get("code"), record.get("rank")
        if record.get("kind") != "rank" or not isinstance(code, int) or not isinstance(rank, int):
            continue
        what = f"rank {rank} {record.get('what', 'ended')} ({code})"
        pid = record.get("pid")
        yield Exit(
            code=code,
            rank=rank,
            pid=pid if isinstance(pid, int) else None,
            teller="holdfast",
            line=_line(record, journal, number, what, rank),
        )


def _told(records: list[tuple[int, dict[str, Any]]], journal: str) -> Iterator[Told]:
    for number, record in records:
        if record.get("kind") not in ("notice", "verdict") or not record.get("slug"):
            continue
        reason = str(record.get("reason", ""))
        yield Told(
            code=str(record.get("code", "")),
            slug=str(record["slug"]),
            ranks=_numbers(record.get("ranks")),
            victims=_numbers(record.get("victims")),
            reason=reason,
            fix=str(record.get("fix", "")),
            verdict=record["kind"] == "verdict",
            line=_line(record, journal, number, reason, None),
        )


def _line(record: dict[str, Any], journal: str, number: int, text: str, rank: int | None) -> Line:
    at = record.get("t")
    return Line(
        text=text,
        source=journal,
        number=number,
        rank=rank,
        at=float(at) if isinstance(at, (int, float)) else None,
    )


def _numbers(value: object) -> tuple[int, ...]:
    return tuple(n for n in value if isinstance(n, int)) if isinstance(value, list) else ()


def _listed(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []
