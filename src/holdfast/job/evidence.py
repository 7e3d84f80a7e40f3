"""Take the stacks, recorders and counters of every living rank, and keep them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import msgspec

from holdfast.collectives import recorder
from holdfast.facts import Unread
from holdfast.job.observe import Watched
from holdfast.paths import RunPaths
from holdfast.probe import pyspy, recorder_query
from holdfast.signals import Recorder

SECONDS = 2.0
"""for all of it: a job that dies must not wait for our curiosity"""


def take(ranks: Sequence[Watched], paths: RunPaths | None, *, attempt: int, number: int) -> str:
    """Stacks and recorders of the living, into the ranks and into the run's folder.

    Returns the folder, or '' when there is none. What could not be had is listed there.
    """
    living = [rank for rank in ranks if rank.death is None]
    with ThreadPoolExecutor(max_workers=max(1, len(living))) as pool:
        answers = pool.map(lambda rank: recorder_query.ask(rank.socket, seconds=SECONDS), living)
        stacks = pyspy.dump_many([rank.pid for rank in living], seconds=SECONDS)
        raw = dict(zip((rank.rank for rank in living), answers, strict=True))
    for rank in living:
        rank.stack = stacks.get(rank.pid)
        rank.recorder = _parsed(raw[rank.rank])
    return _keep(living, raw, paths, attempt=attempt, number=number) if paths else ""


def _parsed(answer: bytes | Unread) -> Recorder | Unread:
    if isinstance(answer, Unread):
        return answer
    try:
        return recorder.parse(answer)
    except ValueError as problem:
        return Unread(why=f"its flight recorder was not understood: {problem}")


def _keep(
    living: Sequence[Watched],
    raw: dict[int, bytes | Unread],
    paths: RunPaths,
    *,
    attempt: int,
    number: int,
) -> str:
    """Never raises: evidence that cannot be written is still used for the verdict."""
    missing = []
    try:
        folder = paths.evidence(attempt, number)
        shutil.rmtree(folder, ignore_errors=True)  # of an earlier look that led to nothing
        os.makedirs(folder)
        for rank in living:
            pieces = {
                paths.stack(attempt, number, rank.rank): rank.stack,
                paths.activity(attempt, number, rank.rank): rank.activity,
                paths.recorder(attempt, number, rank.rank): raw[rank.rank],
            }
            for path, piece in pieces.items():
                if piece is None or isinstance(piece, Unread):
                    why = piece.why if piece else "not seen yet"
                    missing.append(f"{os.path.basename(path)}: {why}\n")
                    continue
                with open(path, "wb") as file:
                    file.write(piece if isinstance(piece, bytes) else msgspec.json.encode(piece))
        if missing:
            with open(paths.missing(attempt, number), "w", encoding="utf-8") as file:
                file.writelines(missing)
    except OSError:
        return ""
    return paths.evidence(attempt, number)
