"""Which checkpoint a path means, without a lock and without touching anything. No torch.

    with opened("ckpts") as found:      # or "ckpts/step-000001200", or a copy of one
        found.path, found.manifest      # verified, and safe from retention in this block

A folder of checkpoints means its newest that verifies. One that is removed between the look and
the opening is no damage: the next one is taken.
"""

from __future__ import annotations

import contextlib
import os
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from holdfast.analysis.checkpoints.manifest import MANIFEST, Manifest, order_of
from holdfast.checkpoint import choose, reader_lock
from holdfast.checkpoint.choose import Candidate, CheckpointProblem
from holdfast.checkpoint.cores import disk_threads
from holdfast.checkpoint.reading.verification import DamagedPiece, Verification, wrong_pieces
from holdfast.errors import ConfigError, EnvironmentFailure

Verify = Callable[[str, Manifest], "CheckpointProblem | None"]


def verify_all(step_folder: str, manifest: Manifest) -> CheckpointProblem | None:
    return choose.verify(step_folder, manifest.files, threads=disk_threads(1))


@dataclass(frozen=True)
class FoundCheckpoint:
    path: str
    manifest: Manifest
    notes: tuple[str, ...] = ()
    """newer ones that were passed over, and why"""


def is_step_folder(path: str) -> bool:
    """A checkpoint by its name, or a copy of one under another name."""
    name = os.path.basename(os.path.normpath(path))
    return order_of(name) is not None or os.path.lexists(os.path.join(path, MANIFEST))


@contextlib.contextmanager
def opened(path: str, verify: Verify = verify_all) -> Iterator[FoundCheckpoint]:
    """Held for reading until the block ends. Raises where there is none, or none verifies."""
    with contextlib.ExitStack() as held:
        yield _choose(os.path.abspath(path), verify, held)


def _choose(path: str, verify: Verify, held: contextlib.ExitStack) -> FoundCheckpoint:
    if not os.path.isdir(path):
        raise ConfigError(f"{path} is not a folder" if os.path.lexists(path)
                          else f"{path} does not exist")  # fmt: skip
    notes: list[str] = []
    for step_folder in [path] if is_step_folder(path) else _newest_first(path):
        with contextlib.ExitStack() as trial:
            if not _hold(step_folder, trial):
                continue
            candidate = inspect(step_folder)
            problem = candidate.problem
            if problem is None and candidate.manifest is not None:
                problem = verify(step_folder, candidate.manifest)
            if not os.path.isdir(step_folder):
                continue  # removed by retention since it was listed
            if problem is None and candidate.manifest is not None:
                held.enter_context(trial.pop_all())
                return FoundCheckpoint(step_folder, candidate.manifest, tuple(notes))
            notes.append(f"{step_folder}: {problem}")
    if not notes:
        raise ConfigError(f"no checkpoint in {path}")
    more = f" ({len(notes) - 1} more cannot be used either)" if len(notes) > 1 else ""
    raise EnvironmentFailure(f"no checkpoint can be used: {notes[0]}{more}",
                             hint=f"holdfast checkpoint verify {path}")  # fmt: skip


def _hold(step_folder: str, held: contextlib.ExitStack) -> bool:
    """False for one that is just being removed; what else is wrong is told by the look at it."""
    manifest = os.path.join(step_folder, MANIFEST)
    tries = 0
    # One that only asks whether it is in use has it locked as well, for a moment.
    while not _try_hold(step_folder, held):
        tries += 1
        if tries > 20 or not os.path.lexists(manifest):
            return os.path.isdir(step_folder) and not os.path.lexists(manifest)
        time.sleep(0.05)
    return True


def _try_hold(step_folder: str, held: contextlib.ExitStack) -> bool:
    try:
        held.enter_context(reader_lock.hold(step_folder))
    except OSError as error:
        return not isinstance(error, FileNotFoundError)
    return True


def _newest_first(folder: str) -> list[str]:
    try:
        names = os.listdir(folder)
    except OSError as error:
        raise EnvironmentFailure(f"{folder} cannot be listed: {error.strerror}") from error
    orders = {order: name for name in names if (order := order_of(name))}
    return [os.path.join(folder, orders[order]) for order in sorted(orders, reverse=True)]


def inspect(step_folder: str) -> Candidate:
    """As a resume does, and no file of it may be a link or a device."""
    odd = not_a_file(step_folder, [MANIFEST])
    if odd:
        return Candidate(path=step_folder, step=0, manifest=None, problem=odd)
    found = choose.inspect(step_folder)
    if found.problem is None and found.manifest is not None:
        names = [entry.name for entry in found.manifest.files]
        odd = not_a_file(step_folder, names)
    return found if odd is None else Candidate(
        path=found.path, step=found.step, manifest=found.manifest, problem=odd
    )  # fmt: skip


def not_a_file(folder: str, names: Sequence[str]) -> CheckpointProblem | None:
    """Only a regular file in the folder itself is read: a link may lead anywhere."""
    for name in names:
        try:
            mode = os.lstat(os.path.join(folder, name)).st_mode
        except OSError:
            continue  # whether it is missing is told elsewhere
        if not stat.S_ISREG(mode):
            what = "a link" if stat.S_ISLNK(mode) else "not a regular file"
            return CheckpointProblem(f"{name} is {what}: only regular files are read")
    return None


def verify(step_folder: str, progress: Callable[[int], None]) -> Verification | None:
    """Every byte, also after the first damage; None if it was removed meanwhile."""
    with contextlib.ExitStack() as held:
        if not _hold(step_folder, held):
            return None
        found = inspect(step_folder)
        if found.problem is not None or found.manifest is None:
            whole = DamagedPiece(file="", why=str(found.problem))
            return Verification(path=step_folder, step=found.step, bytes=0, damaged=(whole,))
        wrong = wrong_pieces(step_folder, found.manifest, progress)
        total = sum(entry.size for entry in found.manifest.files)
    return Verification(path=step_folder, step=found.step, bytes=total, damaged=tuple(wrong))
