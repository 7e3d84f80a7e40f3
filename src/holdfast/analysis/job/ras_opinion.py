"""NCCL's RAS as a second witness of a stall: whether it names the same ranks. Pure.

It never decides. Where it names others, the sentence says so: a reader must not learn that later.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from holdfast import text
from holdfast.analysis.job import pace
from holdfast.analysis.ras import judge
from holdfast.analysis.ras.answer import RasAnswer, RasMember, RasProcess
from holdfast.analysis.ras.judge import RasGap
from holdfast.analysis.scene.ras_look import RasLook
from holdfast.analysis.scene.scene import Scene
from holdfast.analysis.scene.surroundings import node_of
from holdfast.findings import Evidence, Verdict

SOURCE = "NCCL RAS"


class RasOpinion(msgspec.Struct, frozen=True, kw_only=True):
    silent: tuple[int, ...] = ()
    """ranks that do not answer it"""
    behind: tuple[int, ...] = ()
    """ranks that have launched fewer collectives than most"""
    gap: RasGap | None = None
    moved: bool = False
    """ranks have launched collectives between two looks of this stall"""
    processes: int = 0

    @property
    def named(self) -> frozenset[int]:
        return frozenset((*self.silent, *self.behind))

    def words(self) -> str:
        """'rank 2 does not answer it', 'rank 2 has launched 128 AllReduce, the others 129'; ''
        where it names none."""
        told = []
        if self.silent:
            verb = text.plural(self.silent, "does", "do")
            told.append(f"{text.ranks(self.silent)} {verb} not answer it")
        if self.behind and self.gap:
            verb = text.plural(self.behind, "has", "have")
            told.append(
                f"{text.ranks(self.behind)} {verb} launched {self.gap.least} "
                f"{self.gap.operation}, the others {self.gap.most}"
            )
        return " and ".join(told)

    def undecided(self) -> str:
        count = f"all {self.processes} processes" if self.processes else "all processes"
        if (gap := self.gap) is None:
            return f"{count} answer and have launched the same collectives"
        verb = "has" if gap.count_ahead == 1 else "have"
        return (
            f"{count} answer; {text.counted(gap.count_ahead, 'rank')} {verb} launched {gap.most} "
            f"{gap.operation}, {text.counted(gap.count_behind, 'rank')} fewer"
        )


def of(scene: Scene) -> RasOpinion | None:
    """None where it was not asked since the job last made progress, or knows none of its ranks."""
    look = scene.ras
    if not isinstance(look, RasLook) or look.at <= pace.last_progress(scene):
        return None
    answer = look.answer
    since = look.before if look.before and look.before.at > pace.last_progress(scene) else None
    silent = _ranks(scene, answer.silent)
    gaps = sorted(_gaps(answer, since), key=lambda one: one.odd != "behind")
    gap = gaps[0] if gaps else None
    behind = _ranks(scene, gap.behind) if gap and gap.odd == "behind" else ()
    if not silent and not behind and all(_rank(scene, m) is None for m in _members(answer)):
        return None
    return RasOpinion(
        silent=silent,
        behind=behind,
        gap=gap,
        moved=bool(since and judge.moved(since, answer)),
        processes=answer.processes,
    )


def _gaps(answer: RasAnswer, since: RasAnswer | None) -> tuple[RasGap, ...]:
    return judge.lasting(since, answer) if since else judge.gaps(answer)


def _members(answer: RasAnswer) -> list[RasMember]:
    return [member for one in answer.communicators for member in one.members]


def _ranks(scene: Scene, processes: Iterable[RasProcess | RasMember]) -> tuple[int, ...]:
    found = {_rank(scene, one) for one in processes}
    return tuple(sorted(rank for rank in found if rank is not None))


def _rank(scene: Scene, one: RasProcess | RasMember) -> int | None:
    """By its pid; on several machines by its address too, where the node is known to have it."""
    same = scene.memo(_by_pid).get(one.pid or 0, [])
    if len(same) > 1:
        same = [r for r in same if (node := node_of(scene, r)) and one.host in node.addresses]
    return same[0] if len(same) == 1 else None


def _by_pid(scene: Scene) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for view in scene.ranks:
        found.setdefault(view.pid, []).append(view.rank)
    return found


def beside(scene: Scene, verdict: Verdict) -> Verdict:
    """The verdict, and what RAS says to it: in the sentence where it names ranks."""
    opinion = of(scene)
    if opinion is None:
        return verdict
    words, blamed = opinion.words(), frozenset(verdict.ranks)
    if opinion.moved:
        told = "ranks have launched collectives since the last look"
        said = f"{verdict.reason}; NCCL's RAS: {told}, so the job may be moving"
    elif not words:
        told, said = opinion.undecided(), verdict.reason
    elif not blamed:
        told, said = words, f"{verdict.reason}; NCCL's RAS: {words}"
    elif blamed & opinion.named:
        told, said = words, f"{verdict.reason}; NCCL's RAS agrees: {words}"
    else:
        told, said = words, f"{verdict.reason}; NCCL's RAS points elsewhere: {words}"
    seen = Evidence(quote=told, source=SOURCE)
    return msgspec.structs.replace(verdict, reason=said, evidence=(*verdict.evidence, seen))
