"""A launcher that is a member, then the coordinator: elected in a real etcd."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.analysis.scene.scene import Failure, Policy
from holdfast.nodes.channel_errors import ChannelTimeout
from holdfast.nodes.clock_exchange import boot_time
from holdfast.nodes.etcd.access import EtcdAccess
from holdfast.nodes.etcd.client import EtcdClient
from holdfast.nodes.etcd.election import LEASE, Follow
from holdfast.nodes.etcd.elector import RENEW_EVERY, Elected, Elector
from holdfast.nodes.etcd.etcd_errors import EtcdUnreachable
from holdfast.run.launch import lease_guard
from holdfast.run.nodes import elected, takeover
from holdfast.run.nodes.elected import ElectedLauncher
from holdfast.run.nodes.elected_roles import CoordinatorLease
from holdfast.run.nodes.link import fencing
from holdfast.run.nodes.messages import RoundNode, RoundStart
from holdfast.run.nodes.round_source import JobIsOver, RoundPlace, WaitInterrupted
from holdfast.run.nodes.takeover import CarriedJob
from holdfast.run.watch.interface import JobAction
from tests.drill.lab.etcd import Etcd

pytestmark = pytest.mark.xdist_group("etcd")


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Etcd]:
    with Etcd(tmp_path_factory.mktemp("etcd")) as made:
        yield made


class Role:
    """Stands for the coordinator or a member: rounds come at once, it is over when told so."""

    def __init__(self, name: str, coordinates: bool, round_: int) -> None:
        self.name, self.coordinates, self.round = name, coordinates, round_
        self.why_over = ""
        self.action = JobAction.KEEP_RUNNING
        self.closed = False
        self.ends_job = False
        self.said: list[str] = []

    @property
    def rounds(self) -> Any:
        return self

    @property
    def watch(self) -> Any:
        return self

    def start(self) -> RoundStart:
        node = RoundNode(name=self.name, first_rank=0, nproc=2)
        return RoundStart(
            round=self.round, attempt=self.round - 1, nodes=(node,), store_node="", store_port=1
        )

    def next_round(self, open_store: object, told: Any) -> RoundPlace:
        del open_store
        if told() is not None:
            raise WaitInterrupted
        if self.ends_job:
            raise JobIsOver("done", 0)
        self.round += 1
        return RoundPlace(self.start(), self.name, "127.0.0.1")

    def over(self) -> str:
        return self.why_over

    def say_over(self, why: str, action: str) -> None:
        self.said.append(f"{why}; {action}")

    def hand_over(self, sign: signal.Signals) -> bool:
        return self.coordinates and sign is not signal.SIGINT

    def own_address(self, place: RoundPlace) -> str:
        return place.address

    def carried(self) -> CarriedJob | None:
        return CarriedJob(newest=self.start(), restarts=7) if self.coordinates else None

    def close(self) -> None:
        self.closed = True

    def look(self) -> JobAction:
        return self.action

    def ranks_started(self, attempt: int, pids: object) -> None: ...

    def ranks_stopped(self, unkillable: object) -> None: ...

    def culprits(self) -> frozenset[int]:
        return frozenset({1})

    def exiting(self) -> frozenset[int]:
        return frozenset({0})


class Node:
    """One launcher, and all the roles that it was given."""

    def __init__(self, access: EtcdAccess, run: str, name: str) -> None:
        self.name = name
        self.said: list[str] = []
        self.roles: list[Role] = []
        self.unreachable = False
        self.elector = Elector(
            EtcdClient(access), run, name, f"id-{name}", token="", say=self.said.append
        )
        self.launcher = ElectedLauncher(self.elector, self, say=self.said.append, join_timeout=20.0)

    def coordinate(self, won: Elected) -> Role:
        self.elector.announce(("10.0.0.1",), 1)
        self.roles.append(Role(self.name, True, won.round))
        return self.roles[-1]

    def follow(self, coordinator: Follow) -> Role:
        if self.unreachable:
            raise ChannelTimeout("a:1 does not answer")
        self.roles.append(Role(coordinator.coordinator.name, False, 0))
        return self.roles[-1]

    def next_round(self) -> RoundPlace:
        return self.launcher.next_round(lambda addresses, port: 1, lambda: None)


@pytest.fixture
def nodes(etcd: Etcd, request: pytest.FixtureRequest) -> Iterator[tuple[Node, Node]]:
    a, b = (Node(etcd.access(), request.node.name, name) for name in "ab")
    a.next_round()
    yield a, b
    a.launcher.finish(0)
    b.launcher.finish(0)


def test_a_member_whose_coordinator_left_takes_its_place(nodes: tuple[Node, Node]) -> None:
    a, b = nodes
    b.next_round()
    b.launcher.ranks_started(0, {0: 100, 1: 101})
    assert b.launcher.look() is JobAction.KEEP_RUNNING
    assert b.launcher.culprits() == {1}
    assert b.launcher.exiting() == {0}
    a.roles[0].why_over = "b was elected"
    assert a.launcher.look() is JobAction.RESTART
    b.roles[0].why_over = "the coordinator a is lost: gone"
    assert b.launcher.look() is JobAction.RESTART
    assert b.launcher.culprits() == {0, 1}
    assert b.launcher.exiting() == frozenset()
    assert b.roles[0].said == [], "nothing is said before the ranks are gone"
    b.launcher.ranks_stopped([])
    assert b.roles[0].said == [
        f"the coordinator a is lost: gone; the ranks here were ended; {elected.ELECTING}"
    ]
    a.elector.step_down()  # as at the end of its ranks
    place = b.next_round()
    assert b.roles[0].closed
    assert b.roles[1].coordinates
    assert place.start.round == 2
    assert b.launcher.look() is JobAction.KEEP_RUNNING
    a.next_round()
    assert not a.roles[1].coordinates
    assert a.roles[1].name == "b"


def test_what_a_successor_has_to_know_is_in_etcd(nodes: tuple[Node, Node]) -> None:
    a, _ = nodes
    a.launcher.look()
    deadline = time.monotonic() + 10
    seen: dict[str, Any] = {}
    while not seen:
        assert time.monotonic() < deadline
        found = EtcdClient(a.elector._client.access).read(a.elector._keys.job)
        seen = next((_document(one.value) for one in found.values()), {})
    assert takeover.carried_job(seen).restarts == 7


def _document(text: str) -> dict[str, Any]:
    return dict(msgspec.json.decode(text)["carried"])


def test_the_end_of_the_job_is_the_end(nodes: tuple[Node, Node]) -> None:
    a, b = nodes
    b.next_round()
    b.roles[0].ends_job = True
    with pytest.raises(JobIsOver, match="done"):
        b.next_round()
    a.launcher.finish(3)
    b.roles[0].why_over = "the coordinator a is lost: gone"
    with pytest.raises(JobIsOver, match="the job ended with exit code 3"):
        b.next_round()


def test_a_signal_ends_the_wait_for_a_coordinator_that_cannot_be_reached(
    nodes: tuple[Node, Node], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, b = nodes
    b.unreachable = True
    monkeypatch.setattr(elected, "SAID_AFTER", 0.1)

    def told() -> signal.Signals | None:
        return signal.SIGTERM if b.said else None

    with pytest.raises(WaitInterrupted):
        b.launcher.next_round(lambda addresses, port: 1, told)
    assert b.said == ["cannot join the coordinator that etcd names: a:1 does not answer"]


def test_an_etcd_that_never_answers_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(elected, "FIRST_CONTACT", 0.5)
    nobody = Node(EtcdAccess((("127.0.0.1", 1),)), "run", "a")
    with pytest.raises(EtcdUnreachable, match=r"did not answer within .* s: 127.0.0.1:1: Conn"):
        nobody.launcher.meet()


FAILED = Failure(slug="node-lost", ranks=(), step=5, lasted=1.0)


@pytest.mark.parametrize(
    ("left", "policy", "allowed", "words"),
    [
        (
            CarriedJob(resumes=True),
            Policy(patience=None, max_restarts=3),
            True,
            "restarting (1 of 3)",
        ),
        (
            CarriedJob(),
            Policy(patience=None, max_restarts=3),
            False,
            "nothing was seen that resumes this job",
        ),
        (
            CarriedJob(),
            Policy(patience=None, max_restarts=3, restarts_typed=True),
            True,
            "(1 of 3)",
        ),
        (
            CarriedJob(),
            Policy(patience=None, max_restarts=0, restarts_typed=True),
            False,
            "--max-restarts is 0",
        ),
        (
            CarriedJob(failures=(FAILED,), step=5),
            Policy(patience=None, max_restarts=1, restarts_typed=True),
            False,
            "all 1 restarts are used",
        ),
        (
            CarriedJob(failures=(FAILED,), step=9, resumes=True),
            Policy(patience=None, max_restarts=1),
            True,
            "not counted: the job made progress",
        ),
    ],
)
def test_a_takeover_is_a_restart_like_any_other(
    left: CarriedJob, policy: Policy, allowed: bool, words: str
) -> None:
    again = takeover.may_continue(takeover.with_loss(left), policy)
    assert again.allowed is allowed
    assert words in again.reason
    assert takeover.carried_job(left.plain()) == left


PROCESSES_END = lease_guard.BACKSTOP + 0.2
"""seconds after the end of a lease, with the tick of a coordinator's link"""


@given(
    confirmed=st.floats(0, 100),
    under_way=st.floats(0, takeover.UNDER_WAY),
    by_etcd=st.booleans(),
    later=st.floats(0, 30),
)
def test_a_takeover_waits_as_long_as_every_fence_takes(
    confirmed: float, under_way: float, by_etcd: bool, later: float
) -> None:
    """Whatever has become of the coordinator before: it is stopped, stuck or cut off."""
    lease = fencing.SHORT_LEASE
    # our own sign of life that we knew was heard: then we stood for election, or later
    elected = confirmed + lease.seconds + later
    # nobody can be elected before a lease in etcd is over
    renewed = elected - LEASE
    # what it heard of us last, it heard a moment after that sign
    heard = confirmed + under_way
    its_lease = renewed + LEASE if by_etcd else heard + lease.lease.lost
    its_ranks = its_lease + fencing.OWN_ENDING
    others = its_lease + lease.seconds + fencing.OWN_ENDING  # confirmed at the last moment
    alone = elected + takeover.fence_after_election({"a"}, coordinator="a")
    silent = elected + takeover.fence_after_election({"a", "c"}, coordinator="a")
    assert its_ranks + PROCESSES_END < alone
    assert max(its_ranks, others) + PROCESSES_END < silent


def test_a_lease_that_is_over_stays_so() -> None:
    """Its link has ended: taken back by etcd, it would coordinate nodes that cannot join it."""

    class Fence:
        def extend(self, until: float) -> None:
            ends.append(until)

        def lift(self) -> None: ...

    ends: list[float] = []
    lease = CoordinatorLease(Fence())
    assert not lease.is_over()
    lease.proven_until(boot_time() + 60)
    assert not lease.is_over()
    lapsed = CoordinatorLease(Fence())
    lapsed.proven_until(boot_time() - 1)
    assert lapsed.is_over()
    lapsed.proven_until(boot_time() + 60)
    assert lapsed.is_over()
    assert len(ends) == 2


def test_a_takeover_waits_for_the_ranks_of_nodes_that_are_not_heard() -> None:
    alone = takeover.fence_after_election({"a"}, coordinator="a")
    assert alone == takeover.fence_after_election((), coordinator="a")
    # etcd gave the coordinator up after its lease, which it may have renewed a moment before
    assert LEASE - RENEW_EVERY + alone >= fencing.SHORT_LEASE.gone_after
    # the others may have heard it until it handed over
    silent = takeover.fence_after_election({"a", "c"}, coordinator="a")
    assert silent >= fencing.SHORT_LEASE.gone_after


def test_a_coordinator_that_is_told_to_stop_costs_no_restart() -> None:
    typed = Policy(patience=None, max_restarts=1, restarts_typed=True)
    left = CarriedJob(failures=(FAILED,), leaving="a was told to stop (SIGTERM)")
    assert takeover.with_loss(left) == left
    assert takeover.may_continue(left, typed).allowed
    default = Policy(patience=None, max_restarts=3)
    assert takeover.may_hand_over(left, typed, others=1, least=1)
    assert not takeover.may_hand_over(left, typed, others=1, least=2)
    assert not takeover.may_hand_over(left, default, others=1, least=1)
    assert takeover.may_hand_over(CarriedJob(resumes=True), default, others=1, least=1)


def test_who_hands_over_does_not_end_the_job(nodes: tuple[Node, Node]) -> None:
    a, b = nodes
    b.next_round()
    b.roles[0].why_over = "the coordinator a left"
    a.launcher.told_to_stop(signal.SIGTERM)
    a.launcher.finish(143)
    b.next_round()
    assert b.roles[1].coordinates
