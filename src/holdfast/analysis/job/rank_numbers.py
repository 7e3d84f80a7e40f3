"""Do the numbers that ranks claim make a group? Pure.

Ranks that call one store with one world size W belong together; they make a group when every
number below W is claimed once. Which rank takes which number is the script's affair, and so is
whether it makes several groups.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec

from holdfast import text
from holdfast.analysis.job import join
from holdfast.analysis.scene.scene import Claim, RankView, Scene

Member = tuple[RankView, Claim]
NAMED = 4
"""ranks whose claims fit into a sentence"""


class Muddle(msgspec.Struct, frozen=True, kw_only=True):
    """Ranks that can not become a group as they are numbered."""

    members: tuple[RankView, ...]
    strayed: tuple[RankView, ...]
    """those that say something else than they were given"""
    trouble: str
    sure: bool
    """False where somebody we can not see might still make it a group"""


def find(scene: Scene) -> Muddle | None:
    speaking = [
        (view, claim)
        for view in scene.ranks
        if view.beat is not None
        and not view.beat.steps  # whoever trains has found its group
        and (claim := view.beat.claim) is not None
        and min(claim.rank, claim.world_size) >= 0
    ]
    complete = not _may_still_come(scene)
    found = [(group, *_trouble(group, speaking, complete=complete)) for group in _groups(speaking)]
    bad = [(group, trouble, sure) for group, trouble, sure in found if trouble]
    inside = [member for group, _, _ in bad for member in group]
    around = [m for m in speaking if any(_one_store(m[1], group[0][1]) for group, _, _ in bad)]
    # Whoever is missing from a group may have made one of its own.
    strayed = _strayed(inside) or _strayed(around)
    if not strayed:
        return None
    # With NCCL init_process_group returns before anybody has met; with Gloo the group is there.
    on_the_way = any(not join.joined(view) for view, _ in inside)
    return Muddle(
        members=tuple(view for view, _ in around),
        strayed=strayed,
        trouble="; ".join(dict.fromkeys(trouble for _, trouble, _ in bad)),
        sure=on_the_way and any(sure for _, _, sure in bad),
    )


def sayings(views: Sequence[RankView]) -> str:
    """'rank 1 (pid 4001) says it is 0 of 2'"""
    said = [
        f"rank {v.rank} (pid {v.pid}) says it is {claim.rank} of {claim.world_size} "
        f"and was given {claim.given_rank} of {claim.given_world_size}"
        for v in views[:NAMED]
        if (claim := join.claim_of(v))
    ]
    more = len(views) - NAMED
    return ", ".join(said) + (f", and {more} more" if more > 0 else "")


def _groups(speaking: list[Member]) -> list[list[Member]]:
    found: list[list[Member]] = []
    for member in speaking:
        home = next((group for group in found if _together(group[0][1], member[1])), None)
        if home is None:
            found.append([member])
        else:
            home.append(member)
    return found


def _together(one: Claim, other: Claim) -> bool:
    return one.world_size == other.world_size and _one_store(one, other)


def _one_store(one: Claim, other: Claim) -> bool:
    return one.own_store == other.own_store and join.same_place(one.store, other.store)


def _trouble(group: list[Member], speaking: list[Member], *, complete: bool) -> tuple[str, bool]:
    """What keeps these from becoming a group, '' for nothing; and whether that is sure."""
    first = group[0][1]
    world, counts = first.world_size, Counter(claim.rank for _, claim in group)
    if beyond := [number for number in counts if number >= world]:
        verb = text.plural(beyond, "is", "are")
        return f"{text.numbers(beyond)} {verb} not below the world size {world}", True
    if world == 1:
        return "", False  # each of them is a world of its own
    missing = [number for number in range(world) if number not in counts]
    nobody = f"nobody is {text.numbers(missing)}" if missing else ""
    if _clash(counts, several=first.own_store, complete=complete, missing=bool(missing)):
        twice = text.numbers(number for number, count in counts.items() if count > 1)
        taken = f"number {twice} is claimed more than once"
        return (f"{taken}, {nobody}" if nobody else taken), not first.own_store
    if not missing or not complete:
        return "", False
    sizes = sorted({c.world_size for _, c in speaking if _one_store(c, first)})
    if len(sizes) > 1:
        return f"world sizes {' and '.join(map(str, sizes))} do not agree", not first.own_store
    # The numbers fit what was given: somebody is late, or calls another store.
    unheard = world != first.given_world_size
    return (f"{nobody} of {world}, and all that were started have spoken" if unheard else ""), False


def _clash(counts: Counter[int], *, several: bool, complete: bool, missing: bool) -> bool:
    """Whether a number is claimed twice in what must be one group.

    By prefixes, which can not be seen, one store of the script's may serve several groups: then
    every number is claimed equally often once all have spoken.
    """
    if max(counts.values()) == 1:
        return False
    return not several or (complete and (missing or len(set(counts.values())) > 1))


def _may_still_come(scene: Scene) -> bool:
    return any(
        v.death is None and v.words is None and not join.joined(v) and not join.claim_of(v)
        for v in scene.ranks
    )


def _strayed(members: list[Member]) -> tuple[RankView, ...]:
    """Those that say something else than they were given."""
    return tuple(
        view
        for view, claim in members
        if min(claim.given_rank, claim.given_world_size) >= 0
        and (claim.rank, claim.world_size) != (claim.given_rank, claim.given_world_size)
    )
