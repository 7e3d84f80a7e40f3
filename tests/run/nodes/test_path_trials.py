"""Trials of paths as the coordinator leads them; nodes and the clock are the test's."""

from __future__ import annotations

from collections.abc import Collection

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from holdfast.analysis.nodes import Listening, Outcome, PortKind, Reached, Target
from holdfast.nodes.probing.messages import (
    OpenedListeners,
    OpenListeners,
    ProbeReply,
    ProbeRequest,
    TriedPaths,
    TryPaths,
)
from holdfast.run.nodes.path_trials import LISTEN_SECONDS, TRY_SECONDS, PathTrials

NODES = {name: (("e0", f"10.0.0.{n}"),) for n, name in enumerate("abcd", start=1)}


def all_pairs(names: Collection[str]) -> list[tuple[str, str]]:
    return [(one, other) for one in names for other in names if one != other]


def answer(request: ProbeRequest) -> ProbeReply:
    if isinstance(request, OpenListeners):
        (interface, address), *_ = request.addresses
        target = Target(
            node=request.node,
            interface=interface,
            address=address,
            port=40000,
            kind=PortKind.EPHEMERAL,
        )
        return OpenedListeners(
            trial=request.trial, listening=Listening(targets=(target,), left_out=())
        )
    reach = tuple(
        Reached(
            source=request.node,
            target=target,
            outcome=Outcome.DROPPED,
            error="",
            seconds=0.1,
            local_address="",
        )
        for target in request.targets
    )
    return TriedPaths(trial=request.trial, routes=(), reach=reach, sizes=(), losses=())


def play(trials: PathTrials, *, mute: Collection[str] = ()) -> float:
    """All answer at once but those that are mute; how long it took."""
    now = 0.0
    while trials.busy and now < 100:
        for node, request in list(trials.look(now, NODES)):
            if node not in mute:
                trials.heard(node, answer(request))
        now += 0.1
    return now


def test_all_listen_before_any_tries() -> None:
    trials = PathTrials()
    trials.want(all_pairs("ab"))
    first = list(trials.look(0.0, NODES))
    assert [type(request) for _, request in first] == [OpenListeners, OpenListeners]
    trials.heard("a", answer(first[0][1]))
    assert list(trials.look(0.1, NODES)) == []
    trials.heard("b", answer(first[1][1]))
    assert [type(request) for _, request in trials.look(0.2, NODES)] == [TryPaths, TryPaths]


def test_all_paths_are_tried_both_ways() -> None:
    trials = PathTrials()
    trials.want(all_pairs(NODES))
    play(trials)
    assert trials.newest
    seen = {(one.source, one.target.node) for one in trials.newest.reach}
    assert seen == set(all_pairs(NODES))
    assert trials.newest.silent == ()


def test_only_the_paths_that_were_asked_for() -> None:
    trials = PathTrials()
    trials.want([("a", "c")])
    play(trials)
    assert trials.newest
    assert [(one.source, one.target.node) for one in trials.newest.reach] == [("a", "c")]


def test_a_node_that_does_not_answer_is_named_and_no_path_to_it_is_blamed() -> None:
    trials = PathTrials()
    trials.want(all_pairs("abc"))
    took = play(trials, mute="b")
    assert trials.newest
    assert trials.newest.silent == ("b",)
    assert {(one.source, one.target.node) for one in trials.newest.reach} == set(all_pairs("ac"))
    assert took < LISTEN_SECONDS + TRY_SECONDS + 1


def test_an_outcome_is_as_old_as_the_first_try_in_it() -> None:
    """What was broken then may be well when the last answer comes."""
    trials = PathTrials()
    trials.want([("a", "b")])
    for node, request in list(trials.look(5.0, NODES)):
        trials.heard(node, answer(request))
    ((node, request),) = list(trials.look(6.0, NODES))
    trials.heard(node, answer(request))
    assert list(trials.look(9.0, NODES)) == []
    assert trials.newest
    assert trials.newest.at == 6.0


def test_an_answer_of_an_earlier_trial_does_not_count() -> None:
    trials = PathTrials()
    trials.want([("a", "b")])
    play(trials)
    trials.want([("a", "b")])
    (node, request), *_ = trials.look(200.0, NODES)
    late = OpenedListeners(trial=1, listening=Listening(targets=(), left_out=()))
    trials.heard(node, late)
    trials.heard("b", late)
    assert list(trials.look(200.1, NODES)) == []
    assert request.trial == 2


def test_a_node_cannot_aim_the_others_at_a_stranger() -> None:
    trials = PathTrials()
    trials.want([("a", "b"), ("b", "a")])
    for node, request in list(trials.look(0.0, NODES)):
        said = answer(request)
        assert isinstance(said, OpenedListeners)
        if node == "b":
            (mine,) = said.listening.targets
            aimed = tuple(
                msgspec.structs.replace(mine, address=address, port=port)
                for address, port in (("192.0.2.1", 22), ("10.0.0.2", 40000), ("10.0.0.2", 22))
            )
            said = msgspec.structs.replace(said, listening=Listening(targets=aimed, left_out=()))
        trials.heard(node, said)
    (asked,) = (request for node, request in trials.look(0.1, NODES) if node == "a")
    assert isinstance(asked, TryPaths)
    assert [target.address for target in asked.targets] == ["10.0.0.2"]


@given(
    pairs=st.lists(st.sampled_from(all_pairs(NODES)), min_size=1),
    mute=st.sets(st.sampled_from("abcd")),
)
def test_every_trial_ends(pairs: list[tuple[str, str]], mute: set[str]) -> None:
    trials = PathTrials()
    trials.want(pairs)
    assert play(trials, mute=mute) <= LISTEN_SECONDS + TRY_SECONDS + 1
    assert trials.newest
    asked = {(a, b) for a, b in pairs if a not in mute and b not in mute}
    assert {(one.source, one.target.node) for one in trials.newest.reach} == asked
    assert set(trials.newest.silent) == {node for pair in pairs for node in pair} & mute
