"""What a drill does to a job, as data: a fault's drill face says it, drill/acts carries it out."""

from __future__ import annotations

import enum
from typing import Literal

import msgspec


class Then(enum.Enum):
    """What must become of the job."""

    RESTARTS = "restarts"
    """the runner starts the ranks again by itself, and they resume"""
    ENDS = "ends"
    """the run ends in order; started again, as a scheduler would, it resumes"""
    GIVES_UP = "gives up"
    """the ranks are started again, fail the same way, and the run ends; started again without the
    fault, it resumes"""
    GOES_ON = "goes on"
    """training continues in the same attempt"""
    RECOVERS = "recovers"
    """training continues, or the ranks are started again and resume: both are right"""
    REFUSES = "refuses"
    """it does not start, and says why; started again without the fault, it trains"""


class Act(msgspec.Struct, frozen=True, kw_only=True, tag_field="act", tag=True):
    """One thing that is done to the job. Each kind has one file in drill/acts."""


class SignalProcess(Act, frozen=True, kw_only=True):
    number: int
    to: Literal["rank", "rank and children", "launcher"] = "rank"
    """the launcher is that of the rank's host"""


class BreakInside(Act, frozen=True, kw_only=True):
    """What cannot come from outside, done by the witness in the rank itself (rank/witness)."""

    how: str
    """'raise', 'exit', 'hang', 'hold-gil'…: a name that rank/witness/breakages.py knows"""
    seconds: float = 0.0
    times: int = 1
    """in so many attempts, each when its process has taken as many steps"""


class Preempt(Act, frozen=True, kw_only=True):
    """What Slurm does: SIGTERM to every process of the job, SIGKILL when the grace is over."""

    grace: float
    """seconds"""
    left: float = 3600.0
    """seconds to the end that the scheduler had promised"""


class Injection(msgspec.Struct, frozen=True, kw_only=True):
    does: str
    """for the screen and the report: 'SIGKILL to rank 2 at step 20'"""
    act: Act
    then: Then
    slugs: tuple[str, ...] = ()
    """any of which is the right name; empty: that of the fault itself"""
    culprits: tuple[int, ...] | None = None
    """ranks that must be named; None: the rehearsal's rank; empty: none need be"""
    any_rank: bool = False
    """whichever meets it may be named"""
    blameless: tuple[str, ...] = ()
    """further right names, which blame no rank: a quota on a rank is a lack of CPU time"""
    hosts: tuple[str, ...] = ()
    """of which one must be named, for a fault of a host or of a link"""
    beside: tuple[str, ...] = ()
    """slugs that may be said as well, since they are true"""
    notice_within: float | None = None
    """seconds after which it must have been named; None: as usual for such a fault (bounds.py)"""
    at_step: int | None = None
    """instead of the rehearsal's"""
    from_start: bool = False
    """there before the job is started, whatever the rehearsal's step"""
    lifted: bool = False
    """taken away again once it was named (disk space freed, link healed)"""
    costs_saves: int = 0
    """newest checkpoints that it destroys: the job resumes from the one before them"""
    world: int | None = None
    """ranks of the attempt that follows; None: as many as before"""
    fewest_hosts: int | None = None
    """with how many the job may go on (`--nnodes FEWEST:ALL`); None: it needs all of them"""
    join_timeout: float | None = None
    """seconds that hosts wait for each other, where the drill is that one does not come, or is not
    there again"""
    told_by_checkpoint: bool = False
    """only `holdfast.Checkpoint` can name it: a script with saves of its own may deal with it
    without a word"""
    may_miss: bool = False
    """a job may be too small to meet it (no packet of that size): where it trains on to its end
    as if nothing had happened, nothing is proven, and nothing broken"""
    cannot_load: str = ""
    """slug of the script's own fault where no attempt gets past loading its checkpoint"""
    fails_without: str = ""
    """what the script lacks if it does not recover from this: said with the broken promise"""


class CannotInject(msgspec.Struct, frozen=True):
    """This drill does not apply to that job, or cannot be done here."""

    why: str


NO_OTHER_RANK = CannotInject("the job has one rank: no other one would wait for it")
