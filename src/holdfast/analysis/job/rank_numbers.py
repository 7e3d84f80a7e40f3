"""Do the rank numbers that processes claim form a group? Pure.

Ranks that use one store with one world size W belong together; they form a group when every
number below W is claimed once. Which process takes which number is up to the script, and so is
whether it forms several groups.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec

from holdfast import text
from holdfast.analysis.job import join
from holdfast.analysis.scene.scene import Claim, RankView, Scene

Claimant = tuple[RankView, Claim]
SHOWN_CLAIMS = 4
"""ranks whose claims fit into one sentence"""


class NumberConflict(msgspec.Struct, frozen=True, kw_only=True):
    """Ranks that cannot form a group with the numbers they claim."""

    members: tuple[RankView, ...]
    misnumbered: tuple[RankView, ...]
    """those that claim another number or world size than they were given"""
    problem: str
    sure: bool
    """False where ranks that are not visible here may complete the group"""


def find_conflict(scene: Scene) -> NumberConflict | None:
    claimants = [
        (view, claim)
        for view in scene.ranks
        if view.beat is not None
        and not view.beat.steps  # a rank that takes steps has its group
        and (claim := view.beat.claim) is not None
        and min(claim.rank, claim.world_size) >= 0
    ]
    complete = not _may_still_come(scene)
    found = [
        (group, *_problem(group, claimants, complete=complete)) for group in _groups(claimants)
    ]
    bad = [(group, problem, sure) for group, problem, sure in found if problem]
    inside = [member for group, _, _ in bad for member in group]
    around = [m for m in claimants if any(_one_store(m[1], group[0][1]) for group, _, _ in bad)]
    # A rank that is missing from a group may have formed another one.
    misnumbered = _misnumbered(inside) or _misnumbered(around)
    if not misnumbered:
        return None
    # With NCCL init_process_group returns before ranks connect; with Gloo the group has formed.
    joining = any(not join.joined(view) for view, _ in inside)
    return NumberConflict(
        members=tuple(view for view, _ in around),
        misnumbered=misnumbered,
        problem="; ".join(dict.fromkeys(problem for _, problem, _ in bad)),
        sure=joining and any(sure for _, _, sure in bad),
    )


def describe_claims(views: Sequence[RankView]) -> str:
    """'rank 1 (pid 4001) claims to be 0 of 2 and was given 1 of 2'"""
    said = [
        f"rank {v.rank} (pid {v.pid}) claims to be {claim.rank} of {claim.world_size} and was "
        f"given {claim.given_rank} of {claim.given_world_size}"
        for v in views[:SHOWN_CLAIMS]
        if (claim := join.claim_of(v))
    ]
    more = len(views) - SHOWN_CLAIMS
    return ", ".join(said) + (f", and {more} more" if more > 0 else "")


def _groups(claimants: list[Claimant]) -> list[list[Claimant]]:
    found: list[list[Claimant]] = []
    for member in claimants:
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


def _problem(
    group: list[Claimant], claimants: list[Claimant], *, complete: bool
) -> tuple[str, bool]:
    """Why these cannot form a group, '' if they can; and whether that is certain."""
    first = group[0][1]
    world, counts = first.world_size, Counter(claim.rank for _, claim in group)
    if beyond := [number for number in counts if number >= world]:
        verb = text.plural(beyond, "is", "are")
        return f"{text.numbers(beyond)} {verb} out of range for world size {world}", True
    if world == 1:
        return "", False  # each of them is a group by itself
    missing = [number for number in range(world) if number not in counts]
    unclaimed = f"no rank claims {text.numbers(missing)}" if missing else ""
    if _clash(counts, several=first.own_store, complete=complete, missing=bool(missing)):
        twice = text.numbers(number for number, count in counts.items() if count > 1)
        taken = f"number {twice} is claimed more than once"
        return (f"{taken}, {unclaimed}" if unclaimed else taken), not first.own_store
    if not missing or not complete:
        return "", False
    sizes = sorted({c.world_size for _, c in claimants if _one_store(c, first)})
    if len(sizes) > 1:
        return f"world sizes {' and '.join(map(str, sizes))} do not agree", not first.own_store
    # The numbers match what was given: a rank is late, or uses another store.
    unheard = world != first.given_world_size
    return (
        f"{unclaimed} of {world}, although all ranks have started to join" if unheard else ""
    ), False


def _clash(counts: Counter[int], *, several: bool, complete: bool, missing: bool) -> bool:
    """Whether a number is claimed twice in what must be one group.

    With key prefixes, which are not visible, one store of the script may serve several groups:
    then every number is claimed equally often once all ranks have joined.
    """
    if max(counts.values()) == 1:
        return False
    return not several or (complete and (missing or len(set(counts.values())) > 1))


def _may_still_come(scene: Scene) -> bool:
    return any(
        v.death is None and v.words is None and not join.joined(v) and not join.claim_of(v)
        for v in scene.ranks
    )


def _misnumbered(members: list[Claimant]) -> tuple[RankView, ...]:
    """Those that claim another number or world size than they were given."""
    return tuple(
        view
        for view, claim in members
        if min(claim.given_rank, claim.given_world_size) >= 0
        and (claim.rank, claim.world_size) != (claim.given_rank, claim.given_world_size)
    )
