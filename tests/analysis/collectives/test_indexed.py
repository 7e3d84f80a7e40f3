"""What is worked out once for all groups is what looking through all recorders each time gives."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from holdfast.analysis.collectives import groups, own_numbers, siblings
from holdfast.analysis.collectives.groups import Recorders
from holdfast.analysis.collectives.mismatch import among
from holdfast.analysis.collectives.signature import Kind, kind
from holdfast.analysis.scene.scene import Collective, Recorder
from tests.run.scenes import a_recorder, entry

RANKS = range(6)
GROUPS = ("0", "1", "2", "3")
OPS = ("all_reduce", "broadcast", "all_to_all")
SHAPES = ("[4] Float", "[2, 2] Float", "[8] Float")


@st.composite
def recorders(draw: st.DrawFn) -> dict[int, Recorder]:
    """Ranks in a few groups that mostly, not always, do the same at the same position."""
    usual = {
        (group, n): (draw(st.sampled_from(OPS)), draw(st.sampled_from(SHAPES)))
        for group in GROUPS
        for n in range(1, 7)
    }
    side_by_side = draw(st.booleans())
    if side_by_side:
        usual |= {("2", n): usual["1", n] for n in range(1, 7)}
    mistakes = draw(st.sampled_from([0, 1, 4]))
    found: dict[int, Recorder] = {}
    for rank in RANKS:
        if draw(st.integers(0, 9)) == 0:
            continue
        made: list[Collective] = []
        own_groups = ("0", "1" if rank < 3 else "2") if side_by_side else GROUPS
        for group in draw(st.sets(st.sampled_from(own_groups), min_size=1)):
            last = draw(st.integers(4, 6))
            over = draw(st.integers(0, last))
            for n in range(1, last + 1):
                odd = mistakes > draw(st.integers(0, 15))
                op, shape = draw(st.sampled_from(list(usual.values()))) if odd else usual[group, n]
                made.append(entry(n, op=op, shape=shape, group=group, finished=n <= over))
        members = draw(st.dictionaries(st.sampled_from(GROUPS), st.sampled_from(MEMBERS)))
        own = a_recorder(*made)
        found[rank] = Recorder(
            collectives=own.collectives,
            entered=own.entered,
            finished=own.finished,
            members=members,
        )
    return found


MEMBERS = ((0, 1, 2), (3, 4, 5), tuple(RANKS))


def plainly_siblings(group: str, sequence: int, known: Recorders) -> dict[str, dict[int, Kind]]:
    """Group -> what its ranks had at that position."""
    past: dict[str, dict[int, dict[int, Kind]]] = {}
    for rank, recorder in known.items():
        for c in recorder.collectives:
            if sequence - siblings.LOOK_BACK <= c.sequence <= sequence:
                past.setdefault(c.group, {}).setdefault(c.sequence, {})[rank] = kind(c)
    own = past.pop(group, {})
    ranks = {rank for rank, r in known.items() if group in r.entered}
    found = {}
    for other, theirs in past.items():
        common = [n for n in own if n in theirs and n < sequence]
        alike = all(len({*own[n].values(), *theirs[n].values()}) == 1 for n in common)
        apart = ranks.isdisjoint(rank for rank, r in known.items() if other in r.entered)
        if apart and alike and len(common) >= siblings.ENOUGH:
            found[other] = theirs.get(sequence, {})
    return found


@given(recorders(), st.sampled_from(GROUPS), st.integers(1, 7))
def test_siblings(known: dict[int, Recorder], group: str, sequence: int) -> None:
    plain = plainly_siblings(group, sequence, known)
    assert set(siblings.of(group, sequence, known)) == set(plain)
    voices = {rank: said for votes in plain.values() for rank, said in votes.items()}
    assert siblings.votes(group, sequence, known) == voices
    assert siblings.beside(group, sequence, known) == voices.keys()


@given(recorders())
def test_members(known: dict[int, Recorder]) -> None:
    indexed = groups.indexed(known)
    assert groups.indexed(indexed) is indexed
    for group in GROUPS:
        told = next((r.members[group] for r in known.values() if group in r.members), ())
        seen = {rank for rank, r in known.items() if group in r.entered}
        for given_as in (known, indexed):
            assert groups.listed_members(group, given_as) == told
            assert groups.seen_in(group, given_as) == seen
            assert groups.read_members(group, given_as) == {
                rank for rank in known if groups.belongs(rank, group, given_as)
            }


@given(recorders())
def test_groups_that_share_a_name_are_told_apart(known: dict[int, Recorder]) -> None:
    meanings = {(g, m) for r in known.values() for g, m in r.members.items()}
    shared = {g for g in GROUPS if sum(name == g for name, _ in meanings) > 1}
    named = groups.named(known)
    assert list(named) == list(known)
    for rank, recorder in known.items():
        assert (named[rank] == recorder) == shared.isdisjoint(recorder.members)


def plainly_mismatched(known: Recorders, *, failed: bool) -> tuple[str, int] | None:
    """The first open position at which two ranks differ."""
    places = {
        (c.group, c.sequence)
        for r in known.values()
        for c in r.collectives
        if c.sequence
        >= min(r.finished.get(c.group, 0) + 1, r.entered[c.group] + (0 if failed else 1))
    }
    for group, sequence in sorted(places, key=lambda place: (place[1], place[0])):
        had = {
            kind(c)
            for r in known.values()
            for c in r.collectives
            if (c.group, c.sequence) == (group, sequence)
        }
        if len(had) > 1:
            return group, sequence
    return None


@given(recorders(), st.booleans())
def test_mismatches(known: dict[int, Recorder], failed: bool) -> None:
    found = among(known, failed=failed, complete=True)
    assert (found and (found.group, found.sequence)) == plainly_mismatched(known, failed=failed)


@given(
    st.dictionaries(st.integers(0, 7), st.integers(0, 7)),
    st.dictionaries(st.sampled_from(GROUPS), st.lists(st.integers(0, 9)).map(tuple)),
)
def test_numbers_of_a_world(ranks: dict[int, int], members: dict[str, tuple[int, ...]]) -> None:
    numbering = own_numbers.Numbering(ranks)
    plain = {g: tuple(ranks.get(n, -1 - n) for n in ns) for g, ns in members.items()}
    assert numbering.keeps(members) == (plain == members)
    assert {g: numbering.of_group(ns) for g, ns in members.items()} == plain
