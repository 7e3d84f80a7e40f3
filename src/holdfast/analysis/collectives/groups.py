"""Which ranks belong to a group.

NCCL's recorder lists them (its pg_config), Gloo's does not: there the default group has all ranks,
and any other group has those that were ever seen in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

import msgspec

from holdfast import text
from holdfast.analysis.collectives.signature import Kind, kind
from holdfast.analysis.scene.scene import Collective, Recorder, Scene

Recorders = Mapping[int, Recorder]


def is_default(group: str) -> bool:
    """'0', or '0 (gloo)' where a job has two backends."""
    return group.partition(" ")[0] == "0"


def in_words(group: str, world: str = "") -> str:
    """'', ' of group 3', ' of the world at 127.0.0.1:29511', or both."""
    own = "" if is_default(group) else f" of group {group}"
    return own + (f" of {world}" if world else "")


class IndexedRecorders(dict[int, Recorder]):
    """Recorders by rank, which are not changed any more, and what is asked of them for every group
    worked out once: a large job has as many groups as ranks."""

    @cached_property
    def listed(self) -> dict[str, tuple[int, ...]]:
        """Group -> what the first recorder that lists its members says"""
        found: dict[str, tuple[int, ...]] = {}
        for recorder in self.values():
            for group, members in recorder.members.items():
                found.setdefault(group, members)
        return found

    @cached_property
    def seen(self) -> dict[str, frozenset[int]]:
        """Group -> the ranks that have entered a collective of it"""
        found: dict[str, list[int]] = {}
        for rank, recorder in self.items():
            for group in recorder.entered:
                found.setdefault(group, []).append(rank)
        return {group: frozenset(ranks) for group, ranks in found.items()}

    @cached_property
    def met(self) -> dict[str, dict[int, dict[int, Collective]]]:
        """Group -> sequence -> rank -> what it had there; of operations issued as one the first"""
        found: dict[str, dict[int, dict[int, Collective]]] = {}
        for rank, recorder in self.items():
            for c in recorder.collectives:
                group = found.get(c.group)
                if group is None:
                    group = found[c.group] = {}
                place = group.get(c.sequence)
                if place is None:
                    place = group[c.sequence] = {}
                place.setdefault(rank, c)
        return found

    @cached_property
    def kinds(self) -> dict[str, dict[int, Kind | None]]:
        """Group -> sequence -> what all its ranks had there; None where they differ"""
        return {
            group: {number: _one_kind(seen) for number, seen in positions.items()}
            for group, positions in self.met.items()
        }


def _one_kind(seen: Mapping[int, Collective]) -> Kind | None:
    distinct = {kind(c) for c in {(c.op, c.shape): c for c in seen.values()}.values()}
    return distinct.pop() if len(distinct) == 1 else None


def indexed(recorders: Recorders) -> IndexedRecorders:
    return (
        recorders if isinstance(recorders, IndexedRecorders) else IndexedRecorders(dict(recorders))
    )


def listed_members(group: str, recorders: Recorders) -> tuple[int, ...]:
    """What a recorder says of its members; () when none does."""
    return indexed(recorders).listed.get(group, ())


def seen_in(group: str, recorders: Recorders) -> frozenset[int]:
    return indexed(recorders).seen.get(group, frozenset())


def read_members(group: str, recorders: Recorders) -> frozenset[int]:
    """Every rank with a recorder that `belongs` to it."""
    if told := listed_members(group, recorders):
        return frozenset(told) & recorders.keys()
    return frozenset(recorders) if is_default(group) else seen_in(group, recorders)


def belongs(rank: int, group: str, recorders: Recorders) -> bool:
    """As far as a recorder says so, or the rank was ever seen in it."""
    if members := listed_members(group, recorders):
        return rank in members
    return is_default(group) or (rank in recorders and group in recorders[rank].entered)


def of(scene: Scene) -> IndexedRecorders:
    """The recorders there are, with one name for one group; `scene` is of one world."""
    return scene.memo(_of)


def _of(scene: Scene) -> IndexedRecorders:
    return named({v.rank: v.recorder for v in scene.ranks if isinstance(v.recorder, Recorder)})


def named(recorders: Recorders) -> IndexedRecorders:
    """The same recorders, with one name for one group.

    Older torch called all parts of a split group alike (NCCL, `split_group`, so every
    device mesh whose ranks are bound to a device): '1' was {0, 1} on two ranks, {2, 3} on the
    others.
    """
    first: dict[str, tuple[int, ...]] = {}
    shared: set[str] = set()
    for recorder in recorders.values():
        for group, members in recorder.members.items():
            if first.setdefault(group, members) != members:
                shared.add(group)
    return IndexedRecorders(
        (rank, _told_apart(recorder, shared) if shared else recorder)
        for rank, recorder in recorders.items()
    )


def _told_apart(recorder: Recorder, shared: set[str]) -> Recorder:
    names = {
        group: f"{group} of ranks {text.numbers(list(members))}"
        for group, members in recorder.members.items()
        if group in shared
    }
    return renamed(recorder, names)


def renamed(recorder: Recorder, names: Mapping[str, str]) -> Recorder:
    """`names`: group -> its new name, for those that get one."""

    def under_new_names(collectives: tuple[Collective, ...]) -> tuple[Collective, ...]:
        return tuple(
            msgspec.structs.replace(c, group=names[c.group]) if c.group in names else c
            for c in collectives
        )

    return msgspec.structs.replace(
        recorder,
        collectives=under_new_names(recorder.collectives),
        messages=under_new_names(recorder.messages),
        entered={names.get(group, group): n for group, n in recorder.entered.items()},
        finished={names.get(group, group): n for group, n in recorder.finished.items()},
        members={names.get(group, group): who for group, who in recorder.members.items()},
    )
