"""What the ranks' looks at one checkpoint mean: take it, set it aside, look again, or refuse. Pure.

every rank looks at its share ->  no problem              take it
                                  damage seen by some     "confirm": rank 0, the rank that saw
                                                          it and one of another machine look at
                                                          that file
those agree                   ->  damage                  set it aside
they do not                   ->  look again (a new name may be hidden for a minute on NFS),
                                  then refuse: that one machine sees damage proves nothing
cannot be read now            ->  look again, then refuse: it may be the newest intact one
of a later format             ->  refuse
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from holdfast.checkpoint.choose import CheckpointProblem

NAMED = 6
"""checkpoints that a sentence names"""
WITHOUT_IT = "to go on without it, move it out of the folder"


class RankLook(msgspec.Struct, frozen=True, kw_only=True):
    """What one rank found in the files it was asked to look at."""

    rank: int
    host: str = ""
    problem: CheckpointProblem | None = None
    absent: bool = False
    """it does not see the checkpoint at all"""

    @property
    def who(self) -> str:
        return f"rank {self.rank}" + (f" on {self.host}" if self.host else "")

    @property
    def what(self) -> str:
        if self.absent:
            return "does not see it"
        return f"says: {self.problem.why}" if self.problem else "finds no problem"


class ResumeDecision(msgspec.Struct, frozen=True, kw_only=True):
    action: Literal["take", "confirm", "set-aside", "again", "refuse"]
    problem: CheckpointProblem | None = None
    """to confirm, or why it is set aside"""
    sentence: str = ""
    """why it is looked at again or refused"""
    hint: str = ""


def decide(
    path: str, looks: Sequence[RankLook], *, confirming: bool, time_is_over: bool
) -> ResumeDecision:
    """`confirming`: the looks are those of `confirmers`, all at one file."""
    damage = [look for look in looks if look.problem and look.problem.is_damage]
    others = [look for look in looks if look.problem and not look.problem.is_damage]
    absent = [look for look in looks if look.absent]
    newer = [look.problem for look in others if look.problem and look.problem.kind == "newer"]
    if newer:
        return ResumeDecision(
            action="refuse",
            sentence=f"{path} was {newer[0].why}",
            hint=f"install the holdfast that wrote it; {WITHOUT_IT}",
        )
    if others or absent:
        return _again(path, [*others, *absent][0], looks, time_is_over=time_is_over)
    if not confirming:
        problem = damage[0].problem if damage else None
        return ResumeDecision(action="confirm" if damage else "take", problem=problem)
    if not damage:  # gone at the second look, which was at one file: all is looked at once more
        return ResumeDecision(
            action="refuse" if time_is_over else "again",
            sentence=f"{path}: damage that some rank sees is gone when others look for it",
            hint="nothing was moved: look at the disk and its server, and start again",
        )
    if len(damage) == len(looks):
        return ResumeDecision(action="set-aside", problem=damage[0].problem)
    return _again(path, damage[0], looks, time_is_over=time_is_over)


def confirmers(looks: Sequence[RankLook], hosts: Sequence[str]) -> tuple[int, ...]:
    """Rank 0, the first rank that saw damage, and the first one on another machine than rank 0."""
    saw = [look.rank for look in looks if look.problem and look.problem.is_damage]
    elsewhere = [rank for rank, host in enumerate(hosts) if host != hosts[0]]
    return tuple(sorted({0, *saw[:1], *elsewhere[:1]}))


def _again(
    path: str, worst: RankLook, looks: Sequence[RankLook], *, time_is_over: bool
) -> ResumeDecision:
    well = [look for look in looks if not look.problem and not look.absent]
    seen = f"{worst.who} {worst.what}"
    but = f"; {well[0].who} {well[0].what}" if well else ""
    sentence = f"{path}: {seen}{but}"
    if not time_is_over:
        return ResumeDecision(action="again", sentence=sentence)
    if worst.absent:
        hint = "put the folder on a file system that all machines share"
    elif well:
        hint = (
            f"nothing was moved: look for a stale mount, bad memory or a bad network card on "
            f"{worst.host or worst.who}, and start again"
        )
    else:
        hint = f"make it readable (mount, server, permissions) and start again; {WITHOUT_IT}"
    return ResumeDecision(action="refuse", sentence=sentence, hint=hint)


def none_taken(folder: str, found: Sequence[tuple[str, CheckpointProblem]]) -> str:
    """Why a job must not begin at step 0 beside these."""
    each = "; ".join(f"{path.rpartition('/')[2]}: {problem.why}" for path, problem in found[:NAMED])
    more = f"; and {len(found) - NAMED} more" if len(found) > NAMED else ""
    which = f"none of the {len(found)} checkpoints" if len(found) > 1 else "the only checkpoint"
    return (
        f"{which} in {folder} can{'' if len(found) > 1 else 'not'} be used ({each}{more}): "
        "not starting at step 0 beside what is left of them"
    )
