"""The newest checkpoint that verifies, on every rank the same; then is it this run's; then load.

choose_together.py finds it; here it is compared with the job that resumes, and loaded.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from typing import TYPE_CHECKING

import msgspec

from holdfast.analysis.checkpoints import manifest as manifests
from holdfast.analysis.checkpoints.manifest import Manifest
from holdfast.checkpoint import choose_together, commit, compare, object_state
from holdfast.checkpoint.choose_together import Leader, Question, RankDisk
from holdfast.checkpoint.files import DISK, read
from holdfast.checkpoint.load_ahead import LoadAhead
from holdfast.checkpoint.lock import FolderLock
from holdfast.checkpoint.message_board import MessageBoard
from holdfast.checkpoint.remote.fetch import fetch_if_none
from holdfast.checkpoint.run_config import RunConfig
from holdfast.checkpoint.state import State, saved_own_structure, saved_structure
from holdfast.errors import CheckpointsGone, EnvironmentFailure, Error
from holdfast.rank.delivery import SAVED
from holdfast.rank.events import has_launcher, tell
from holdfast.rank.phase import phase
from holdfast.rank.print_line import say

if TYPE_CHECKING:
    from holdfast.checkpoint.sharded import ShardedState


def resume(
    board: MessageBoard,
    folder: str,
    state: State,
    *,
    config: RunConfig,
    accept: Collection[str],
    lock: FolderLock,
    sharded: ShardedState | None = None,
    uploaded_to: str = "",
) -> int | None:
    """Restore `state`; the step that is safe, None when nothing was there.

    `uploaded_to`: where the newest one comes from when the folder has none.
    """
    with phase("resume"):
        ahead = LoadAhead(state, sharded, board.rank)
        view = RankDisk(board, ahead=ahead.begin)
        chosen = (
            _lead(view, folder, lock, config, accept, uploaded_to)
            if board.rank == 0
            else _follow(view, folder)
        )
        path = chosen.path
        if not path:
            if board.rank == 0:
                say(f"no checkpoint in {folder}: starting at step {state.step}")
                _tell(state.step, "", board.world_size, None, ())
            return None
        saved = manifests.decode(read(DISK, os.path.join(path, manifests.MANIFEST)))
        found: list[compare.RunDifference] = []
        if saved.imported:
            from holdfast.checkpoint.exchange import resume_imported  # noqa: PLC0415 - rare

            notes = resume_imported.restore(path, saved, state)[board.rank :]
        else:
            structure = state.structure()
            if sharded is not None:
                structure = sharded.structure(structure)
            found = _compare(path, saved, state, structure, chosen.config, board)
            compare.refuse(path, found, accept)
            found_ahead = ahead.finish(path)
            if sharded is not None:  # first: the generators are restored last of all
                sharded.restore(path, saved.world_size, found_ahead.sharded)
            notes = state.restore(
                path,
                board.rank,
                saved.world_size,
                accept_data_change="data" in accept,
                prepared=found_ahead.state,
            )
            if board.rank == 0:
                notes += state.left_behind(saved.world_size, board.world_size)
        taken = [difference.accept for difference in found]
        settings = _settings(state, path, saved, taken, accept)
    for note in notes:
        say(note)
    if board.rank == 0:
        _report(state, path, saved, taken)
        if settings:
            say(settings)
        _tell(state.step, path, board.world_size, saved, taken)
    return saved.step


def _report(state: State, path: str, saved: Manifest, taken: Collection[str]) -> None:
    if has_launcher():  # which says so itself, and how many steps are repeated
        return
    also = f", accepted: {', '.join(taken)}" if taken else ""
    say(f"resumed at step {state.step} from {path}{also}")
    if state.data_scope == "unknown" and not saved.imported:
        say("the data position is not in the checkpoint (State has no data=): the loader starts "
            "from its beginning")  # fmt: skip


def _settings(
    state: State, path: str, saved: Manifest, taken: Collection[str], accept: Collection[str]
) -> str:
    """What the script sets otherwise than when this was saved, and what came of it; '' where there
    is nothing to say. Without config= it is no difference that could have been refused."""
    if "config" not in taken and "config" not in accept:
        kept = [] if saved.imported else state.settings_not_in_force(path)
        hint = "to have it as the script sets it, start with HOLDFAST_ACCEPT=config"
        return f"{'; '.join(kept)} ({hint})" if kept else ""
    changed = state.apply_changed_settings(path)
    if changed:
        return f"now in force as the script sets it: {'; '.join(changed)}"
    if "config" not in taken:
        return ""
    if changed is None:
        return (
            "what was restored keeps its saved values, the optimizer's learning rate among them: "
            "set new ones after resume()"
        )
    return "optimizer and scheduler are set as when this was saved: they continue unchanged"


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


def _lead(
    view: RankDisk,
    folder: str,
    lock: FolderLock,
    config: RunConfig,
    accept: Collection[str],
    uploaded_to: str,
) -> Question:
    leader = Leader(view)
    try:
        take_folder(folder, lock)
        if uploaded_to:
            fetch_if_none(uploaded_to, folder)
        path = leader.choose(folder, lock.token, accept)
        if not path and "fresh" not in accept:
            _refuse_if_emptied(folder, os.environ.get(SAVED, ""))
        told = config.texts(wait=True) if path else {}
    except (Error, OSError) as problem:
        if isinstance(problem, Error):
            leader.fail(problem)
            raise
        failure = EnvironmentFailure(f"{folder} cannot be used: {problem}")
        leader.fail(failure)
        raise failure from problem
    chosen = Question(final=True, path=path, config=told)
    leader.close(chosen)
    return chosen


def _refuse_if_emptied(folder: str, saved: str) -> None:
    """The launcher remembers what an earlier attempt saved here."""
    if saved and os.path.dirname(saved) == folder:
        raise CheckpointsGone(
            f"an earlier attempt of this run saved {saved}, and now there is no checkpoint in "
            f"{folder}: not starting at step 0",
            hint="is its disk mounted? To begin at step 0 anyway, set HOLDFAST_ACCEPT=fresh",
        )


def _follow(view: RankDisk, folder: str) -> Question:
    chosen = choose_together.follow(view)
    if chosen.path and not choose_together.lies_in(folder, chosen.path):
        raise EnvironmentFailure(
            f"rank 0 resumes from {chosen.path}, which is not in {folder}",
            hint="give every rank the same folder",
        )
    return chosen


# --- is it this run's --------------------------------------------------------------------------


def _compare(
    path: str,
    saved: Manifest,
    state: State,
    structure: dict[str, str],
    config: dict[str, str],
    board: MessageBoard,
) -> list[compare.RunDifference]:
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
