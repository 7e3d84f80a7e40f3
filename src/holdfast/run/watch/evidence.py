"""Take the stacks, recorders and counters of every living rank, and keep them.

Each sentence that was said has a folder `evidence-N`; looks that led to no sentence overwrite one
another. An attempt keeps the first 4 and the newest 16 of them.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import msgspec

from holdfast.analysis.collectives import recorder
from holdfast.analysis.job.run_paths import RunPaths
from holdfast.analysis.machine import Unread
from holdfast.analysis.scene.scene import Recorder
from holdfast.run.watch.rank_state import ObservedRank
from holdfast.system import pyspy, recorder_query

SECONDS = 2.0
"""for all of it: a job that dies must not wait for our curiosity"""
KEEP_FIRST = 4
"""folders of an attempt's first sentences, which show how it began"""
KEEP_NEWEST = 16
"""and of its last ones; those between go, so that an attempt has 20 at most"""


def take(
    ranks: Sequence[ObservedRank],
    paths: RunPaths | None,
    *,
    attempt: int,
    number: int,
    kernel: tuple[str, ...] | Unread = (),
) -> str:
    """Stacks and recorders of the living, into the ranks and into the run's folder.

    Returns the folder, or '' when there is none. What could not be had is listed there.
    """
    living = [rank for rank in ranks if rank.death is None]
    with ThreadPoolExecutor(max_workers=max(1, len(living))) as pool:
        answers = pool.map(_ask, living)
        stacks = pyspy.dump_many([rank.pid for rank in living], seconds=SECONDS)
        raw = dict(zip((rank.rank for rank in living), answers, strict=True))
    for rank in living:
        rank.stack = stacks.get(rank.pid)
        rank.recorder = _parsed(raw[rank.rank])
    return _keep(living, raw, kernel, paths, attempt=attempt, number=number) if paths else ""


def _ask(rank: ObservedRank) -> bytes | Unread:
    if rank.activity is not None and rank.activity.state in ("T", "t"):
        return Unread(why="the process is stopped, and with it the thread that would answer")
    return recorder_query.ask(rank.socket, seconds=SECONDS)


def _parsed(answer: bytes | Unread) -> Recorder | Unread:
    if isinstance(answer, Unread):
        return answer
    try:
        return recorder.parse(answer)
    except ValueError as problem:
        return Unread(why=f"its flight recorder was not understood: {problem}")


def _keep(
    living: Sequence[ObservedRank],
    raw: dict[int, bytes | Unread],
    kernel: tuple[str, ...] | Unread,
    paths: RunPaths,
    *,
    attempt: int,
    number: int,
) -> str:
    """Never raises: evidence that cannot be written is still used for the verdict."""
    pieces: dict[str, object] = {}
    for rank in living:
        pieces[paths.stack(attempt, number, rank.rank)] = rank.stack
        pieces[paths.activity(attempt, number, rank.rank)] = rank.activity
        pieces[paths.recorder(attempt, number, rank.rank)] = raw[rank.rank]
    if kernel:
        lines = kernel if isinstance(kernel, Unread) else "".join(f"{k}\n" for k in kernel).encode()
        pieces[paths.kernel_log(attempt, number)] = lines
    folder = paths.evidence(attempt, number)
    try:
        shutil.rmtree(folder, ignore_errors=True)  # of an earlier look that led to nothing
        os.makedirs(folder)
        _thin_out(paths, attempt=attempt, newest=number)
        missing = [gap for path, piece in pieces.items() if (gap := _write(path, piece))]
        if missing:
            with open(paths.missing(attempt, number), "w", encoding="utf-8") as file:
                file.writelines(missing)
    except OSError:
        return ""
    return folder


def _write(path: str, piece: object) -> str:
    """'' or the line that says why it is not there."""
    if piece is None or isinstance(piece, Unread):
        return f"{os.path.basename(path)}: {piece.why if piece else 'not seen yet'}\n"
    with open(path, "wb") as file:
        file.write(piece if isinstance(piece, bytes) else msgspec.json.encode(piece))
    return ""


def _thin_out(paths: RunPaths, *, attempt: int, newest: int) -> None:
    """A job that stalls and continues for days is reported again and again."""
    numbers = [paths.evidence_number(name) for name in os.listdir(paths.attempt(attempt))]
    for number in numbers:
        if number is not None and KEEP_FIRST <= number <= newest - KEEP_NEWEST:
            shutil.rmtree(paths.evidence(attempt, number), ignore_errors=True)
