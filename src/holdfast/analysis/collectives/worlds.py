"""The worlds of a job: which ranks share one default group, by what they said when they joined.

Most jobs are one world. A script may also form several (an ensemble, a sweep, actors and
learners, an inference server in each pair), keep a rank out of all of them (a coordinator, a data
server), or destroy its group and make it again. Recorders know nothing of that: every world
calls its default group '0' and its ranks 0, 1, 2…

So a job is judged one world at a time. `parts` gives a scene of each, with its own ranks only and
with the launcher's rank numbers in the recorders. What is true of one is never compared with
another, and a rank outside is no world's missing member.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from holdfast import text
from holdfast.analysis.collectives import own_numbers
from holdfast.analysis.scene import heard
from holdfast.analysis.scene.scene import Claim, RankView, Scene


class World(msgspec.Struct, kw_only=True):
    claim: Claim
    """what one of its members said"""
    ranks: dict[int, int]
    """number in the world -> rank"""
    strangers: set[int] = set()
    """ranks that have destroyed this world's group and made it again, or not yet: what their
    recorders hold belongs to another group"""

    @property
    def missing(self) -> list[int]:
        return [n for n in range(self.claim.world_size) if n not in self.ranks]


def parts(scene: Scene) -> tuple[Scene, ...]:
    """The same moment, one world at a time; a rank that is in none stands alone. Ranks on nodes
    that are not heard are missing members: where they were is no longer known."""
    return scene.memo(_known_parts)


def part_of(scene: Scene, ranks: Iterable[int]) -> Scene:
    """The world those ranks are in; the whole scene when they are in several, or none is named."""
    wanted = set(ranks)
    found = (part for part in parts(scene) if wanted <= {view.rank for view in part.ranks})
    return next(found, scene) if wanted else scene


def several(scene: Scene) -> dict[str, tuple[int, ...]]:
    """Name -> its ranks in the order of their numbers; empty where all ranks are in one."""
    found = find(scene)
    if len(found) < 2 and sum(len(world.ranks) for world in found) in (0, len(scene.ranks)):
        return {}
    return {
        name: tuple(world.ranks.get(n, -1 - n) for n in range(world.claim.world_size))
        for name, world in zip(_names(found), found, strict=True)
    }


def _known_parts(scene: Scene) -> tuple[Scene, ...]:
    return tuple(known for part in _parts(scene) if (known := heard.known_part(part)).ranks)


def _parts(scene: Scene) -> tuple[Scene, ...]:
    if scene.world is not None:
        return (scene,)
    worlds = find(scene)
    placed = {rank for world in worlds for rank in world.ranks.values()}
    outside = [view for view in scene.ranks if view.rank not in placed]
    if not worlds:
        return (scene,)
    if len(worlds) == 1 and not outside:
        return (_part(scene, worlds[0], name=""),)
    names = _names(worlds) if sum(len(w.ranks) > 1 for w in worlds) > 1 else [""] * len(worlds)
    return (
        *(_part(scene, world, name=name) for world, name in zip(worlds, names, strict=True)),
        *(
            msgspec.structs.replace(scene, ranks=(view,), world=f"rank {view.rank}")
            for view in outside
        ),
    )


def _part(scene: Scene, world: World, *, name: str) -> Scene:
    members = set(world.ranks.values())
    numbering = own_numbers.Numbering(world.ranks)
    views = tuple(
        own_numbers.translated(scene, view, numbering, stranger=view.rank in world.strangers)
        for view in scene.ranks
        if view.rank in members
    )
    missing = len(world.missing)
    if not name and not missing and views == scene.ranks:
        return scene
    return msgspec.structs.replace(scene, ranks=views, world=name, missing_members=missing)


def _names(worlds: list[World]) -> list[str]:
    """'the world at 127.0.0.1:29511'; where that does not tell them apart, by their ranks."""
    places = [f"the world at {world.claim.store}" for world in worlds]
    return [
        place
        if world.claim.store and places.count(place) == 1
        else f"the world of {text.ranks(world.ranks.values())}"
        for world, place in zip(worlds, places, strict=True)
    ]


# --- which rank is in which --------------------------------------------------------------------


def find(scene: Scene) -> list[World]:
    """By the claims, as far as ranks made any; those that made none are members where a world
    lacks exactly them."""
    worlds = [world for group in _by_key(scene) for world in _told_apart(group)]
    worlds = _with_strangers(worlds)
    placed = {rank for world in worlds for rank in world.ranks.values()}
    unplaced = [view.rank for view in scene.ranks if view.rank not in placed]
    for world in worlds:
        if _is_the_launchers(world.claim):
            # Its numbers are those the launcher gave, so it is known which ranks have not come.
            without = set(unplaced)
            found = {number: number for number in world.missing if number in without}
            world.ranks |= found
            unplaced = [rank for rank in unplaced if rank not in found]
    lacking = [world for world in worlds if len(world.ranks) < world.claim.world_size]
    if len(lacking) == 1 and len(lacking[0].missing) == len(unplaced):
        lacking[0].ranks |= dict(zip(lacking[0].missing, unplaced, strict=True))
    return sorted(worlds, key=lambda world: min(world.ranks.values()))


Claimant = tuple[RankView, Claim]


def _claim(view: RankView) -> Claim | None:
    """Also of a group it has destroyed: others may still wait for it there."""
    claim = view.beat.claim or view.beat.former_claim if view.beat else None
    return claim if claim is not None and 0 <= claim.rank < claim.world_size else None


def _by_key(scene: Scene) -> Iterable[list[Claimant]]:
    """Claims that may be of one world. An address may be written in several ways, so of it only
    the port counts: on one machine no two stores have the same."""
    found: dict[tuple[object, ...], list[Claimant]] = {}
    for view in scene.ranks:
        if claim := _claim(view):
            port = claim.store.rpartition(":")[2]
            key = port, claim.own_store, claim.world_size, claim.remade
            found.setdefault(key, []).append((view, claim))
    return found.values()


def _told_apart(claimants: list[Claimant]) -> Iterator[World]:
    """One world where no number is claimed twice, else one for each address; where even that does
    not help (one store serves several, by prefixes that torch does not tell) it is not known
    which ranks belong together, and none is compared with another."""
    if (world := _world(claimants)) is not None:
        yield world
        return
    addresses: dict[str, list[Claimant]] = {}
    for view, claim in claimants:
        addresses.setdefault(_address(view, claim), []).append((view, claim))
    for group in addresses.values():
        whole = _world(group)
        yield from (
            [whole]
            if whole is not None
            else [World(claim=claim, ranks={claim.rank: view.rank}) for view, claim in group]
        )


def _world(claimants: list[Claimant]) -> World | None:
    ranks = {claim.rank: view.rank for view, claim in claimants}
    return World(claim=claimants[0][1], ranks=ranks) if len(ranks) == len(claimants) else None


def _address(view: RankView, claim: Claim) -> str:
    plain = plain_address(claim.store)
    return f"{view.host} {plain}" if plain.startswith("loopback:") else plain


def plain_address(store: str) -> str:
    """The same for two ways to write one address, as far as that can be known without looking."""
    host, colon, port = store.rpartition(":")
    loopback = host.strip("[]") in ("localhost", "::1") or host.startswith("127.")
    return f"loopback:{port}" if colon and loopback else store


def _with_strangers(worlds: list[World]) -> list[World]:
    """Ranks that have destroyed a group and made it again while others are still in it, or the
    other way round: the smaller side is missing from the larger one's group."""
    kept: list[World] = []
    for world in sorted(worlds, key=lambda world: -len(world.ranks)):
        larger = next((other for other in kept if _made_again(other, world)), None)
        if larger is None:
            kept.append(world)
        else:
            larger.ranks |= world.ranks
            larger.strangers = larger.strangers | set(world.ranks.values())
    return kept


def _made_again(one: World, other: World) -> bool:
    a, b = one.claim, other.claim
    return (
        a.remade != b.remade
        and (a.own_store, a.world_size) == (b.own_store, b.world_size)
        and plain_address(a.store) == plain_address(b.store)
        and not one.ranks.keys() & other.ranks.keys()
        and len(one.ranks) - len(one.strangers) > len(other.ranks)
    )


def _is_the_launchers(claim: Claim) -> bool:
    given = plain_address(claim.given_store)
    return claim.world_size == claim.given_world_size and plain_address(claim.store) == given
