"""The newest checkpoint that verifies, on every rank the same; then is it this run's; then load.

Rank 0 looks and decides. The bytes are read by all, each a share of the files:

    rank 0: try/K {path}   ->  every rank: seen/K/RANK {problem}   ->  rank 0: try/K+1 …
"""

from __future__ import annotations

import os
from collections.abc import Collection
from typing import TYPE_CHECKING

import msgspec

from holdfast.analysis.checkpoints import manifest as manifests
from holdfast.analysis.checkpoints.manifest import Manifest
from holdfast.checkpoint import choose, commit, compare, object_state
from holdfast.checkpoint.choose import CheckpointProblem
from holdfast.checkpoint.cores import disk_threads, ranks_here
from holdfast.checkpoint.files import DISK, read
from holdfast.checkpoint.lock import FolderLock
from holdfast.checkpoint.message_board import MessageBoard
from holdfast.checkpoint.run_config import RunConfig
from holdfast.checkpoint.state import State, saved_own_structure, saved_structure
from holdfast.errors import EnvironmentFailure, Error
from holdfast.rank.events import has_launcher, tell
from holdfast.rank.phase import phase
from holdfast.rank.print_line import say

if TYPE_CHECKING:
    from holdfast.checkpoint.sharded import ShardedState


class _Proposal(msgspec.Struct, frozen=True, kw_only=True):
    """What rank 0 wants looked at; with `final`, what it has chosen."""

    path: str = ""
    final: bool = False
    refusal: str = ""
    hint: str = ""
    config: dict[str, str] = {}
    """with `final`: rank 0's, the only one that counts"""


class _RankFinding(msgspec.Struct, frozen=True, kw_only=True):
    """What one rank found in its share of the files."""

    problem: CheckpointProblem | None = None
    absent: bool = False
    """it does not see the checkpoint at all"""


def resume(
    board: MessageBoard,
    folder: str,
    state: State,
    *,
    config: RunConfig,
    accept: Collection[str],
    lock: FolderLock,
    sharded: ShardedState | None = None,
) -> int | None:
    """Restore `state`; the step that is safe, None when nothing was there."""
    with phase("resume"):
        chosen = _lead(board, folder, lock, config) if board.rank == 0 else _follow(board)
        path = chosen.path
        if not path:
            if board.rank == 0:
                say(f"no checkpoint in {folder}: starting at step {state.step}")
                _tell(state.step, "", board.world_size, None, ())
            return None
        saved = manifests.decode(read(DISK, os.path.join(path, manifests.MANIFEST)))
        found = _compare(path, saved, state, chosen.config, board)
        compare.refuse(path, found, accept)
        if sharded is not None:  # first: the generators are restored last of all
            sharded.restore(path, saved.world_size)
        notes = state.restore(
            path, board.rank, saved.world_size, accept_data_change="data" in accept
        )
    for note in notes:
        say(note)
    if board.rank == 0:
        taken = [difference.accept for difference in found]
        also = f", accepted: {', '.join(taken)}" if taken else ""
        if not has_launcher():  # which says so itself, and how many steps are repeated
            say(f"resumed at step {state.step} from {path}{also}")
        if "config" in taken:
            say(
                "what was restored keeps its saved values, the optimizer's learning rate among "
                "them: set new ones after resume()"
            )
        _tell(state.step, path, board.world_size, saved, taken)
    return saved.step


def take_folder(folder: str, lock: FolderLock) -> None:
    """This job's from now on; what saves of dead jobs left behind is removed."""
    if lock.held:
        return
    commit.make_root(DISK, folder)
    lock.take()
    if lock.unsupported:
        say(f"{folder} cannot be locked ({lock.unsupported}): let no other job write there")
    commit.sweep(DISK, folder)


# --- which one ---------------------------------------------------------------------------------


def _lead(board: MessageBoard, folder: str, lock: FolderLock, config: RunConfig) -> _Proposal:
    number = 0
    try:
        take_folder(folder, lock)
        for candidate in choose.candidates(folder):
            problem = candidate.problem
            if problem is None:
                board.post(f"try/{number}", _Proposal(path=candidate.path))
                number += 1
                problem = _ask_all(board, number - 1, candidate.path)
            if problem is None:
                told = config.texts(wait=True)
                chosen = _Proposal(path=candidate.path, final=True, config=told)
                board.post(f"try/{number}", chosen)
                return chosen
            _set_aside(candidate.path, problem)
    except (Error, OSError) as problem:
        # The others wait for this answer: they fail with the same sentence.
        if isinstance(problem, Error):
            refusal = _Proposal(final=True, refusal=problem.sentence, hint=problem.hint)
            board.post(f"try/{number}", refusal)
            raise
        sentence = f"{folder} cannot be used: {problem}"
        board.post(f"try/{number}", _Proposal(final=True, refusal=sentence))
        raise EnvironmentFailure(sentence) from problem
    board.post(f"try/{number}", _Proposal(final=True))
    return _Proposal(final=True)


def _follow(board: MessageBoard) -> _Proposal:
    number = 0
    while True:
        asked = board.receive(f"try/{number}", _Proposal, purpose="resume")
        if asked.refusal:
            raise EnvironmentFailure(asked.refusal, hint=asked.hint)
        if asked.final:
            return asked
        board.post(f"seen/{number}/{board.rank}", _look(board, asked.path))
        number += 1


def _look(board: MessageBoard, path: str) -> _RankFinding:
    candidate = choose.first_look(path)
    if not os.path.isdir(path):
        return _RankFinding(absent=True)
    if candidate.problem or candidate.manifest is None:
        return _RankFinding(problem=candidate.problem)
    problem = choose.verify(
        path,
        candidate.manifest.files,
        rank=board.rank,
        world_size=board.world_size,
        threads=disk_threads(ranks_here()),
    )
    return _RankFinding(problem=problem)


def _ask_all(board: MessageBoard, number: int, path: str) -> CheckpointProblem | None:
    """The first problem that any rank has with it."""
    own = _look(board, path)
    others = [
        board.receive(f"seen/{number}/{rank}", _RankFinding, sender=rank, purpose="resume")
        for rank in range(1, board.world_size)
    ]
    absent = [rank for rank, seen in enumerate(others, start=1) if seen.absent]
    if absent:
        raise EnvironmentFailure(
            f"rank {absent[0]} does not see {path}, which rank 0 sees",
            hint="put the folder on a file system that all machines share",
        )
    return next((seen.problem for seen in [own, *others] if seen.problem), None)


def _set_aside(path: str, problem: CheckpointProblem) -> None:
    aside = choose.set_aside(path, problem)
    where = f"moved to {aside.path}" if aside.moved else f"left in place: {aside.why_not}"
    say(f"skipped checkpoint {path}: {problem.why}; {where}")
    tell("set-aside", path=aside.path, why=problem.why, problem=problem.kind)


# --- is it this run's --------------------------------------------------------------------------


def _compare(
    path: str, saved: Manifest, state: State, config: dict[str, str], board: MessageBoard
) -> list[compare.RunDifference]:
    structure = state.structure()
    if saved.structure != object_state.fingerprint(structure):
        first = state.first_structure()
        if saved.structure == object_state.fingerprint(first):
            structure = first
    running = compare.RunningJob(
        structure=object_state.fingerprint(structure),
        config=config,
        world_size=board.world_size,
        kind=state.kind,
        per_rank=state.bound_to_ranks,
    )
    found = compare.differences(saved, running)
    if compare.only_structure_differs(saved, running):
        details = object_state.first_differences(saved_structure(path), structure)
        found[0] = msgspec.structs.replace(found[0], sentence=f"its tensors differ ({details})")
    if not found:
        found += _own_differences(path, saved, state, board.rank)
    return found


def _own_differences(
    path: str, saved: Manifest, state: State, rank: int
) -> list[compare.RunDifference]:
    """Of what this rank saved for itself."""
    own = state.own_structure()
    if rank >= saved.world_size or not own:
        return []
    then = saved_own_structure(path, rank)
    details = "" if then is None else object_state.first_differences(then, own)
    return [compare.own_tensors(rank, details)] if details else []


def _tell(
    step: int, path: str, world_size: int, saved: Manifest | None, accepted: Collection[str]
) -> None:
    tell(
        "resume",
        step=step,
        path=path,
        world_size=world_size,
        saved_world=saved.world_size if saved else 0,
        data=saved.data if saved else "",
        accepted=list(accepted),
    )
