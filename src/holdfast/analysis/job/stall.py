"""Which rank stalls the job, and since when: shared by the faults of stuck and late ranks."""

from __future__ import annotations

import msgspec

from holdfast import text
from holdfast.analysis.collectives import waits, worlds
from holdfast.analysis.collectives.positions import Wait
from holdfast.analysis.job import pace, phrases
from holdfast.analysis.scene.scene import RankView, Scene
from holdfast.findings import Evidence

LONG_ENOUGH = 2.0
"""seconds: in every healthy step some rank waits for another, for milliseconds"""
WAITS = 1.0
"""seconds that a rank must have waited in one and the same collective: a job may continue without
steps (an evaluation, a custom update), and then some rank waits at any moment, but briefly"""
PLACES = 2
"""collectives named in a sentence: a large mesh may wait in dozens"""
SILENT = 3.0
"""seconds without activity that are worth a word; counters are a second old at the first notice"""
COARSE = 1.3
"""seconds by which a sign of life may seem younger than it is: counters are read once a second"""


class Stall(msgspec.Struct, frozen=True, kw_only=True):
    scene: Scene
    roots: tuple[int, ...]
    one_of: bool
    """which of the roots it is is not known"""
    victims: tuple[int, ...]
    wait: Wait | None
    """what the first victim is in"""
    seconds: float
    """for how long the victims have surely waited"""
    timeout: float
    """of that wait; 0 when unknown"""

    def waiting(self) -> str:
        """'ranks 1-3 wait for it in all_reduce #1208', or, in several groups,
        'rank 0 waits for it in all_gather #182 of group 1, rank 3 in …, rank 1 behind them'; in
        several worlds 'rank 2 waits for it in all_reduce #26 of the world at 127.0.0.1:29511'"""
        places = self._places()
        world = f" of {self.scene.world}" if self.scene.world and places else ""
        first = next(iter(places.values()), self.victims)
        placed = {rank for ranks in places.values() for rank in ranks}
        behind = [rank for rank in self.victims if rank not in placed]
        words = [
            f"{text.ranks(ranks)}{_wait_for_it(ranks)} in {title}{world}"
            if ranks is first
            else f"{text.ranks(ranks)} in {title}"
            for title, ranks in places.items()
        ] or [f"{text.ranks(first)}{_wait_for_it(first)}"]
        if places and behind:
            words.append(f"{text.ranks(behind)} behind {_them(self.victims, behind)}")
        return ", ".join(words)

    def _places(self) -> dict[str, tuple[int, ...]]:
        """Where the ranks are that wait for a root itself: most groups of a large job do not."""
        victims, roots = set(self.victims), set(self.roots)
        waiting = [w for w in waits.analyse(self.scene).waits if w.rank in victims]
        direct = [w for w in waiting if not roots.isdisjoint(w.absent)] or waiting
        places: dict[str, list[int]] = {}
        for wait in direct:
            if wait.title:
                places.setdefault(wait.title, []).append(wait.rank)
        largest = sorted(places, key=lambda title: -len(places[title]))[:PLACES]
        return {title: tuple(ranks) for title, ranks in places.items() if title in largest}

    def sentence(self) -> str:
        """'rank 0 (pid 1) has been in save() at ckpt.py:40 for 6.0 s, at work; ranks 1-3 wait…'"""
        view = self.scene.rank(self.roots[0])
        quiet = self.scene.now - max(self.scene.rank(r).alive_at for r in self.roots)
        if view.activity and view.activity.state == "D":
            life = f", inside the kernel ({view.activity.wait_channel or 'state D'})"
        elif quiet >= SILENT:
            life = f", no activity for {text.elapsed(quiet)}"
        else:
            life = ", active" if quiet < self.seconds - COARSE else ""
        verb = text.plural(self.roots, "has", "have")
        which = "one of " if self.one_of else ""
        return (
            f"{which}{phrases.who(self.scene, self.roots)} {verb} been {place(view)} for "
            f"{text.elapsed(self.seconds)}{life}; {self.waiting()}"
        )

    def evidence(self) -> list[Evidence]:
        return [
            *(
                Evidence(quote=place(self.scene.rank(r)), source="stack", rank=r)
                for r in self.roots
            ),
            *(
                Evidence(quote=self._title(r), source="flight recorder", rank=r)
                for r in self.victims
            ),
        ]

    def _title(self, rank: int) -> str:
        wait = waits.analyse(self.scene).of(rank)
        return f"waits in {wait.title}" if wait else "waits"


def find(scene: Scene) -> Stall | None:
    """In the world that has waited longest."""
    found = [one for part in worlds.parts(scene) if (one := _of_one_world(part)) is not None]
    return max(found, key=lambda one: one.seconds, default=None)


def _of_one_world(scene: Scene) -> Stall | None:
    seen = waits.analyse(scene)
    if not seen.roots or seen.mismatch:
        return None
    lasted = max(scene.now - pace.last_progress(scene), 0.0)
    victims = set(seen.victims)
    waited = max((w.seconds for w in seen.waits if w.rank in victims), default=lasted)
    if lasted < LONG_ENOUGH or waited < WAITS:
        return None
    wait = seen.of(seen.victims[0]) if seen.victims else None
    return Stall(
        scene=scene,
        roots=seen.roots,
        one_of=seen.one_of,
        victims=seen.victims,
        wait=wait,
        seconds=min(waited + scene.now - (scene.evidence_at or scene.now), lasted),
        timeout=_timeout(scene, wait, seen.victims),
    )


def _wait_for_it(ranks: tuple[int, ...]) -> str:
    return f" {text.plural(ranks, 'waits', 'wait')} for it"


def _them(victims: tuple[int, ...], behind: list[int]) -> str:
    return "it" if len(victims) == len(behind) + 1 else "them"


def place(view: RankView) -> str:
    return waits.where_is(view)


def _timeout(scene: Scene, wait: Wait | None, victims: tuple[int, ...]) -> float:
    if wait and wait.timeout:
        return wait.timeout
    told = [b.group_timeout for r in victims if (b := scene.rank(r).beat) and b.group_timeout]
    return min(told, default=0.0)
