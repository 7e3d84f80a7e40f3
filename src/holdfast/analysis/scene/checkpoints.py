"""What the ranks of a job have reported of their checkpoints: frozen nouns, no I/O, no judgement.

It comes from our library (`holdfast.Checkpoint`) and from the hook at a rank's first step, by
way of the rank's events file (rank/events.py).
"""

from __future__ import annotations

import errno

import msgspec


class CheckpointEvent(msgspec.Struct, frozen=True, kw_only=True):
    """The base; each belongs to one attempt of the run."""

    attempt: int


class Resumed(CheckpointEvent, frozen=True):
    """`resume()` returned: the script continues from here."""

    step: int
    """0 when there was nothing to resume from"""
    path: str
    world_size: int
    saved_world: int
    """0 when unknown, or nothing was there"""
    accepted: tuple[str, ...] = ()
    """differences that the user accepted: 'config', 'world-size'"""
    data: str = ""
    """as the manifest says: 'global', 'per-rank', 'unknown'; '' when it was not reported"""


class SetAside(CheckpointEvent, frozen=True):
    """A checkpoint that did not verify, and was moved out of the way."""

    path: str
    why: str
    problem: str = ""
    """'missing' when a file is not there, 'changed' when its bytes are not those that were saved,
    'unreadable' when it could not be read; '' when it was not reported"""

    @property
    def part_missing(self) -> bool:
        return self.problem == "missing"


class Saved(CheckpointEvent, frozen=True):
    """A checkpoint that is safe on the disk."""

    step: int
    path: str
    bytes: int
    stall: float
    """seconds the training paused for it"""
    seconds: float
    """how long the writing took"""
    at: float
    """wall seconds"""
    any_world: bool = False
    """a job with another number of ranks can resume from it"""


class SaveFailed(CheckpointEvent, frozen=True):
    """A checkpoint that could not be written; the training continues."""

    step: int
    why: str
    errno: int
    where: str
    safe: int | None
    """the newest step that is on disk"""
    unsaved: float
    """seconds since that one was saved"""

    @property
    def disk_full(self) -> bool:
        return self.errno in (errno.ENOSPC, errno.EDQUOT)

    @property
    def at_stake(self) -> str:
        """What would be lost now."""
        if self.safe is None:
            return "nothing is saved yet"
        steps = self.step - self.safe
        return f"last safe step {self.safe}, {steps} {'step' if steps == 1 else 'steps'} ago"


class FirstStepState(CheckpointEvent, frozen=True):
    """Rank 0 as it was just before the first step of an attempt, seen without our library."""

    digest: str
    """of a few values of its parameters; '' when they could not be read"""
    optimizer_step: int | None
    """how many steps the optimizer itself had counted; 0 when it had no state at all yet, None
    when it has state and counts none, or cannot be read"""
    loaded: bool
    """torch.load or a load_state_dict had been called"""
    other_ways: bool = False
    """a library is there that can load without them"""
    optimizer_loaded: bool = False
    """an optimizer's load_state_dict had been called"""
    moved: bool = False
    """later in that attempt its parameters were seen to differ from these"""


class ScriptSaved(CheckpointEvent, frozen=True):
    """A checkpoint that the script wrote without our library."""

    step: int
    """of the job, as far as it is known"""
    path: str
    """'' when it is not known"""
    optimizer: bool
    """with the state of an optimizer"""

    @property
    def words(self) -> str:
        """After 'the script …'."""
        return f"saved {self.path or 'a checkpoint'} at step {self.step}"


class CheckpointAccount(msgspec.Struct, frozen=True, kw_only=True):
    """All of it, over all attempts of a run, oldest first."""

    resumed: tuple[Resumed, ...] = ()
    """rank 0 speaks for all: at most one an attempt"""
    saves: tuple[Saved, ...] = ()
    """the newest ones"""
    saves_failed: int = 0
    """since the last one that succeeded"""
    last_failure: SaveFailed | None = None
    failure_said: float = 0.0
    """seconds without a save when that was last said"""
    set_aside: tuple[SetAside, ...] = ()
    first_steps: tuple[FirstStepState, ...] = ()
    """at most one an attempt"""
    script_saved: ScriptSaved | None = None
    """the newest one; one with optimizer state comes before one without"""
    reached: int = 0
    """the step that the attempts before this one had come to, as far as it is known"""
    base: int = 0
    """the step at which this attempt began; its own steps are counted from there"""

    def accepted(self, difference: str, *, attempt: int) -> Resumed | None:
        """The resume of that attempt, if the user had accepted such a difference for it."""
        found = (one for one in reversed(self.resumed) if one.attempt == attempt)
        return next((one for one in found if difference in one.accepted), None)
