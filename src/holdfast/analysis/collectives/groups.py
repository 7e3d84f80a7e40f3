"""Which ranks belong to a group.

NCCL's recorder lists them (its pg_config), Gloo's does not: there the default group has all ranks,
and any other group has those that were ever seen in it.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from holdfast import text
from holdfast.analysis.scene.scene import Collective, Recorder, Scene

Recorders = Mapping[int, Recorder]


def is_default(group: str) -> bool:
    """'0', or '0 (gloo)' where a job has two backends."""
    return group.partition(" ")[0] == "0"


def in_words(group: str, world: str = "") -> str:
    """'', ' of group 3', ' of the world at 127.0.0.1:29511', or both."""
    own = "" if is_default(group) else f" of group {group}"
    return own + (f" of {world}" if world else "")


def listed_members(group: str, recorders: Recorders) -> tuple[int, ...]:
    """What a recorder says of its members; () when none does."""
    return next((r.members[group] for r in recorders.values() if group in r.members), ())


def seen_in(group: str, recorders: Recorders) -> frozenset[int]:
    return frozenset(rank for rank, r in recorders.items() if group in r.entered)


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


def of(scene: Scene) -> dict[int, Recorder]:
    """The recorders there are, with one name for one group; `scene` is of one world."""
    return scene.memo(_of)


def _of(scene: Scene) -> dict[int, Recorder]:
    return named({v.rank: v.recorder for v in scene.ranks if isinstance(v.recorder, Recorder)})


def named(recorders: Recorders) -> dict[int, Recorder]:
    """The same recorders, with one name for one group.

    Older torch called all parts of a split group alike (NCCL, `split_group`, so every
    device mesh whose ranks are bound to a device): '1' was {0, 1} on two ranks, {2, 3} on the
    others.
    """
    meanings: dict[str, set[tuple[int, ...]]] = {}
    for recorder in recorders.values():
        for group, members in recorder.members.items():
            meanings.setdefault(group, set()).add(members)
    shared = {group for group, sets in meanings.items() if len(sets) > 1}
    return {rank: _told_apart(recorder, shared) if shared else recorder
            for rank, recorder in recorders.items()}  # fmt: skip


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
