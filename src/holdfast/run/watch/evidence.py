"""Take the stacks, recorders and counters of every living rank, and keep them.

Each sentence that was said has a folder `evidence-N`; looks that led to no sentence overwrite one
another. A run keeps the first 4 and the newest 16 of them, whatever attempt they belong to.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import msgspec

from holdfast.analysis.collectives import loader_workers, recorder
from holdfast.analysis.job.run_paths import RunPaths
from holdfast.analysis.machine import Unread
from holdfast.analysis.scene.gpu import GpuLook
from holdfast.analysis.scene.scene import Recorder, Stack, WorkerStack
from holdfast.rank import heartbeat_page
from holdfast.run.runs.folder_writer import FolderWriter, Refusal
from holdfast.run.watch.rank_state import ObservedRank
from holdfast.system import pyspy, recorder_query
from holdfast.system.activity import descendants

SECONDS = 2.0
"""for all of it: a job that dies must not wait for our curiosity"""
WAIT = 1.0
"""seconds for the disk to take it: a sentence is to name a folder that is there"""
WORKERS = 16
"""DataLoader workers looked at, of all ranks together"""
KEEP_FIRST = 4
"""folders of a run's first sentences, which show how it began"""
KEEP_NEWEST = 16
"""and of its last ones; those between go, so that a run has 20 at most"""


def take(
    ranks: Sequence[ObservedRank],
    paths: RunPaths | None,
    *,
    writer: FolderWriter | None,
    attempt: int,
    number: int,
    kernel: tuple[str, ...] | Unread = (),
    gpus: tuple[GpuLook, ...] | Unread | None = None,
    ras: Callable[[], bytes] = bytes,
) -> str:
    """Stacks and recorders of the living, into the ranks and into the run's folder; `ras` is asked
    last for the answer of NCCL's RAS, which has been asked for.

    Returns the folder, or '' when there is none. What could not be had is listed there.
    """
    living = [rank for rank in ranks if rank.death is None]
    with ThreadPoolExecutor(max_workers=max(1, len(living))) as pool:
        answers = pool.map(_ask, living)
        stacks = pyspy.dump_many([rank.pid for rank in living], seconds=SECONDS)
        raw = dict(zip((rank.rank for rank in living), answers, strict=True))
    for rank in living:
        rank.stack = stacks.get(rank.pid)
        answer = _parsed(raw[rank.rank])
        if isinstance(answer, Recorder) or not rank.left_recorder:  # it may be on its way out
            rank.recorder = answer
    _look_at_workers(living)
    if len(living) < len(ranks):
        for rank in living:
            rank.look_for_lost_peer()
    told = ras()
    if paths is None or writer is None:
        return ""
    pieces = _pieces(living, raw, kernel, paths, attempt=attempt, number=number)
    if gpus is not None:
        pieces[paths.gpus(attempt, number)] = gpus
    if told:
        pieces[paths.ras(attempt, number)] = told
    folder = paths.evidence(attempt, number)
    return folder if _keep(writer, folder, pieces, paths.missing(attempt, number)) else ""


def _look_at_workers(living: Sequence[ObservedRank]) -> None:
    """Of ranks that wait for their DataLoader: the line that hangs is in a child process."""
    families = {
        rank.rank: descendants(rank.pid)[:WORKERS]
        for rank in living
        if isinstance(rank.stack, Stack) and loader_workers.waits_for_a_worker(rank.stack)
    }
    pids = [pid for family in families.values() for pid in family]
    seen = pyspy.dump_many(pids[:WORKERS], seconds=SECONDS) if pids else {}
    for rank in living:
        rank.workers = tuple(
            WorkerStack(pid=pid, stack=stack)
            for pid in families.get(rank.rank, ())
            if isinstance(stack := seen.get(pid), Stack)
        )


def _ask(rank: ObservedRank) -> bytes | Unread:
    if rank.activity is not None and rank.activity.state in ("T", "t"):
        return Unread(why="the process is stopped, and with it the thread that would answer")
    beat = heartbeat_page.read(rank.page)
    if beat is not None and beat.capturing:
        return Unread(why="it captures a CUDA graph, which the question would spoil")
    return recorder_query.ask(rank.socket, seconds=SECONDS)


def _parsed(answer: bytes | Unread) -> Recorder | Unread:
    if isinstance(answer, Unread):
        return answer
    try:
        return recorder.parse(answer)
    except ValueError as problem:
        return Unread(why=f"its flight recorder was not understood: {problem}")


def _pieces(
    living: Sequence[ObservedRank],
    raw: dict[int, bytes | Unread],
    kernel: tuple[str, ...] | Unread,
    paths: RunPaths,
    *,
    attempt: int,
    number: int,
) -> dict[str, object]:
    pieces: dict[str, object] = {}
    for rank in living:
        pieces[paths.stack(attempt, number, rank.rank)] = rank.stack
        for worker in rank.workers:
            path = paths.worker_stack(attempt, number, rank.rank, worker.pid)
            pieces[path] = worker.stack
        pieces[paths.activity(attempt, number, rank.rank)] = rank.activity
        pieces[paths.recorder(attempt, number, rank.rank)] = raw[rank.rank]
    if kernel:
        lines = kernel if isinstance(kernel, Unread) else "".join(f"{k}\n" for k in kernel).encode()
        pieces[paths.kernel_log(attempt, number)] = lines
    return pieces


def _keep(writer: FolderWriter, folder: str, pieces: dict[str, object], missing: str) -> bool:
    """Whether it is on the disk: evidence that cannot be written is still used for the verdict."""
    files, gaps = {}, ""
    for path, piece in pieces.items():
        name = os.path.basename(path)
        if piece is None or isinstance(piece, Unread):
            gaps += f"{name}: {piece.why if piece else 'not seen yet'}\n"
        else:
            files[name] = piece if isinstance(piece, bytes) else msgspec.json.encode(piece)
    if gaps:
        files[os.path.basename(missing)] = gaps.encode()
    refused: list[Refusal] = []
    writer.when_refused(folder, refused.append)
    return writer.wait(writer.files(folder, files), WAIT) and not refused
