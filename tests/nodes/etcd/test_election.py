"""Who takes over what: the rules, over all orders of events."""

from __future__ import annotations

import dataclasses

import hypothesis
import msgspec
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from holdfast.nodes.etcd.client import Absent, StoredValue, Unchanged
from holdfast.nodes.etcd.election import (
    Await,
    ElectedNode,
    ElectionCandidate,
    ElectionKeys,
    ElectionView,
    Follow,
    JobEnded,
    KeptJob,
    RegisteredNode,
    StandForElection,
    keys_of,
    must_step_down,
    next_move,
    view_of,
)

KEYS = keys_of("run")


def coordinator(name: str = "a", *, job: str = "j", port: int = 1) -> ElectedNode:
    addresses = ("10.0.0.1",)
    return ElectedNode(name=name, identity=f"id-{name}", job=job, port=port, addresses=addresses)


def view(
    held: ElectedNode | None = None, job: KeptJob | None = None, created: int = 5
) -> ElectionView:
    return ElectionView(held, job, created if job else 0, ("a", "b"))


JOB = KeptJob(id="j", lease=1, token="t", round=3)
ENDED = KeptJob(id="j", lease=1, round=3, ended="done")
MEMBER = ElectionCandidate("b", "id-b", "j", 3)


@pytest.mark.parametrize(
    ("seen", "me", "move"),
    [
        (view(), ElectionCandidate("a", "id-a"), StandForElection),
        (view(coordinator(), JOB), ElectionCandidate("b", "id-b"), Follow),
        (view(coordinator(), JOB), MEMBER, Follow),
        (view(coordinator(port=0), JOB), MEMBER, Await),
        (view(None, JOB), MEMBER, StandForElection),
        # the coordinator could not write the number of the newest round down any more
        (view(None, JOB), MEMBER._replace(round=4), StandForElection),
        (view(None, JOB), MEMBER._replace(round=2), Await),
        (view(None, JOB), ElectionCandidate("spare", "id-s"), Await),
        (view(None, KeptJob(id="j", lease=1)), ElectionCandidate("b", "id-b"), StandForElection),
        (view(), MEMBER, JobEnded),
        (view(None, ENDED), MEMBER, JobEnded),
        (view(None, ENDED), ElectionCandidate("new", "id-new"), StandForElection),
        (view(coordinator(), KeptJob(id="k", lease=1)), MEMBER, JobEnded),
        (view(coordinator(job="old"), JOB), ElectionCandidate("b", "id-b"), Await),
        # nodes at work put back what etcd has forgotten
        (view()._replace(at_work=("a",)), ElectionCandidate("new", "id-new"), Await),
        # our own candidacy, whose answer was lost
        (view(coordinator("b", port=0), JOB), MEMBER, StandForElection),
    ],
)
def test_what_a_launcher_does(seen: ElectionView, me: ElectionCandidate, move: type) -> None:
    assert isinstance(next_move(seen, me, KEYS), move)


def test_a_launcher_to_which_etcd_has_just_come_back_begins_no_job() -> None:
    new = ElectionCandidate("new", "id-new")
    assert isinstance(next_move(view(), new, KEYS, settled=False), Await)
    assert isinstance(next_move(view(None, ENDED), new, KEYS, settled=False), StandForElection)
    assert isinstance(next_move(view(coordinator(), JOB), new, KEYS, settled=False), Follow)


def test_a_run_id_is_one_folder_of_keys() -> None:
    assert keys_of("a/b").prefix == "/holdfast/a%2Fb/"
    assert not keys_of("a").job.startswith(keys_of("a/job").prefix)


def test_etcd_that_is_away_for_all_stops_no_job() -> None:
    assert not must_step_down(overruled=False, unproven=True, member_missing=False)
    assert not must_step_down(overruled=False, unproven=False, member_missing=True)
    assert must_step_down(overruled=False, unproven=True, member_missing=True)
    assert must_step_down(overruled=True, unproven=False, member_missing=False)


@dataclasses.dataclass
class Launcher:
    me: ElectionCandidate
    coordinates: bool = False
    job: str = ""


class Elections(RuleBasedStateMachine):
    """Four launchers and what etcd holds; answers may be lost, keys expire in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.stored: dict[str, StoredValue] = {}
        self.revision = 1
        self.newest: dict[str, tuple[int, set[str]]] = {}
        """job -> its newest round and who was in it"""
        self.fresh = 0
        self.launchers = [Launcher(ElectionCandidate(f"n{i}", f"id-{i}")) for i in range(4)]

    def put(self, key: str, value: msgspec.Struct) -> None:
        self.revision += 1
        before = self.stored.get(key)
        created = before.created if before else self.revision
        text = msgspec.json.encode(value).decode()
        self.stored[key] = StoredValue(text, created, self.revision, 1)

    def holds(self, one: Absent | Unchanged) -> bool:
        found = self.stored.get(one.key)
        return (found.created if found else 0) == (one.created if isinstance(one, Unchanged) else 0)

    def held(self) -> ElectedNode | None:
        return view_of(self.stored, KEYS).coordinator

    @rule(number=st.integers(0, 3), late=st.booleans(), answer_lost=st.booleans())
    def campaign(self, number: int, late: bool, answer_lost: bool) -> None:
        launcher = self.launchers[number]
        if launcher.coordinates:
            return
        before = view_of(self.stored, KEYS)
        move = next_move(before, launcher.me, KEYS)
        if late:  # something happens between the look and the candidacy
            self.stored.pop(KEYS.job, None)
        if isinstance(move, JobEnded):
            self.launchers[number] = Launcher(
                ElectionCandidate(f"n{number}", f"new-{self.revision}")
            )
            self.revision += 1
        if not isinstance(move, StandForElection) or not all(map(self.holds, move.only_if)):
            return
        assert before.coordinator is None or before.coordinator.identity == launcher.me.identity
        job = move.job or KeptJob(id=f"job-{self.revision}", lease=1)
        if move.job is None:
            self.put(KEYS.job, job)
        number_of_round, members = self.newest.setdefault(job.id, (0, set()))
        assert not number_of_round or launcher.me.identity in members
        entry = ElectedNode(name=launcher.me.name, identity=launcher.me.identity, job=job.id)
        self.put(KEYS.coordinator, entry)
        if not answer_lost:
            launcher.coordinates, launcher.job = True, job.id

    @rule(members=st.sets(st.integers(0, 3)))
    def start_a_round(self, members: set[int]) -> None:
        held = self.held()
        leader = [
            n
            for n, one in enumerate(self.launchers)
            if held and one.coordinates and one.me.identity == held.identity
        ]
        seen = view_of(self.stored, KEYS).job
        if not leader or not held or not seen or seen.id != held.job:
            return
        job = msgspec.structs.replace(seen, round=seen.round + 1)
        self.put(KEYS.coordinator, msgspec.structs.replace(held, port=1))
        self.put(KEYS.job, job)
        taking_part = {*members, leader[0]}
        taking_part = {n for n in taking_part if self.launchers[n].me.job in ("", job.id)}
        for n in taking_part:
            one = self.launchers[n]
            one.me = one.me._replace(job=job.id, round=job.round)
        who = {self.launchers[n].me.identity for n in taking_part}
        assert job.round > self.newest[job.id][0]
        self.newest[job.id] = (job.round, who)

    @rule()
    def coordinator_is_lost(self) -> None:
        held = self.held()
        for one in self.launchers:
            if held and one.me.identity == held.identity:
                one.coordinates = False
        self.stored.pop(KEYS.coordinator, None)

    @precondition(lambda self: KEYS.coordinator not in self.stored)
    @rule()
    def job_is_forgotten(self) -> None:
        self.stored.pop(KEYS.job, None)

    @invariant()
    def one_coordinates(self) -> None:
        held = self.held()
        leading = [one.me.identity for one in self.launchers if one.coordinates]
        assert leading in ([], [held.identity if held else None])


def test_only_one_coordinates_and_only_who_was_there_takes_over() -> None:
    hypothesis.stateful.run_state_machine_as_test(
        Elections, settings=hypothesis.settings(max_examples=60, stateful_step_count=25)
    )


def test_registered_nodes_are_read_by_name() -> None:
    entry = msgspec.json.encode(RegisteredNode(name="b")).decode()
    keys: ElectionKeys = keys_of("r")
    busy = msgspec.json.encode(RegisteredNode(name="c", job="j")).decode()
    found = {name: StoredValue(text, 1, 1, 1) for name, text in (("x", entry), ("y", busy))}
    seen = view_of({keys.node(name): stored for name, stored in found.items()}, keys)
    assert seen.nodes == ("b", "c")
    assert seen.at_work == ("c",)
