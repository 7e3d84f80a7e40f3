"""A coordinator and its members over real connections: rounds, orders, and how a wait ends."""

from __future__ import annotations

import contextlib
import io
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import msgspec
import pytest

from holdfast.run.nodes.coordination import Coordination, other_job
from holdfast.run.nodes.link.launcher_link import JoinedLink
from holdfast.run.nodes.membership import Membership
from holdfast.run.nodes.messages import (
    EndRound,
    NodeReport,
    RanksGone,
    Ready,
    TakeEvidence,
)
from holdfast.run.nodes.round_source import JobIsOver, RoundPlace, WaitInterrupted
from holdfast.run.nodes.rounds import RoundPolicy
from holdfast.view.run_screen import Screen
from tests.run.nodes.link.pair import LONG, a_card, coordinating, joined, until

PORT = 20123


def not_told() -> signal.Signals | None:
    return None


class Job:
    """The coordinator on node a, members as they come; `opened` are the store's addresses."""

    def __init__(
        self,
        stack: contextlib.ExitStack,
        policy: RoundPolicy,
        *,
        run: str = "20261116-a",
        **of_card: Any,
    ) -> None:
        self.stack = stack
        self.link = stack.enter_context(coordinating(run=run))
        self.screen = io.StringIO()
        card = a_card("a", identity="a-0", **of_card)
        self.coordination = Coordination(
            self.link, card=card, policy=policy, screen=Screen(self.screen)
        )
        self.opened: list[tuple[str, ...]] = []
        self.threads = stack.enter_context(ThreadPoolExecutor())

    def open_store(self, addresses: Any, port: int) -> int:
        assert port == 0
        self.opened.append(tuple(addresses))
        return PORT

    def member(self, name: str, **of_card: Any) -> Membership:
        link = self.stack.enter_context(joined(self.link.port, card=a_card(name, **of_card)))
        return Membership(link, screen=Screen(io.StringIO()), journal=Notes(), fence=NoFence())

    def member_that_comes_back(self, name: str, *, to: Job | None = None) -> Membership:
        """After it lost the coordinator; `to` is where it then finds one."""

        def join_again(told: Callable[[], signal.Signals | None]) -> JoinedLink:
            del told
            port = (to or self).link.port
            return self.stack.enter_context(joined(port, card=a_card(name)))

        link = self.stack.enter_context(joined(self.link.port, card=a_card(name)))
        return Membership(
            link,
            screen=Screen(self.screen),
            journal=Notes(),
            fence=NoFence(),
            join_again=join_again,
        )

    def form(
        self, *members: Membership, told: Callable[[], signal.Signals | None] = not_told
    ) -> tuple[RoundPlace, list[Future[RoundPlace]]]:
        waiting = [self.threads.submit(m.next_round, self.open_store, told) for m in members]
        return self.coordination.next_round(self.open_store, not_told), waiting


class NoFence:
    def extend(self, until: float) -> None: ...

    def lift(self) -> None: ...


class Notes:
    def __init__(self) -> None:
        self.records: list[Any] = []

    def write(self, record: Any) -> None:
        self.records.append(record)


@pytest.fixture
def stack() -> Iterator[contextlib.ExitStack]:
    with contextlib.ExitStack() as everything:
        yield everything


def test_a_node_that_fails_its_own_checks_ends_the_start_at_once(
    stack: contextlib.ExitStack,
) -> None:
    job = Job(stack, RoundPolicy(2, 2))
    found = msgspec.structs.replace(a_card("b"), unfit="own-name: nope0 is no interface")
    link = stack.enter_context(joined(job.link.port, card=found))
    with pytest.raises(JobIsOver, match="b cannot start: own-name: nope0 is no interface") as over:
        job.form()
    assert over.value.exit_code == 1
    until(lambda: any(isinstance(message, EndRound) for message in link.news()))


def test_the_others_start_without_a_node_that_fails_its_own_checks(
    stack: contextlib.ExitStack,
) -> None:
    job = Job(stack, RoundPolicy(2, 3, last_call=0.5))
    unfit = msgspec.structs.replace(a_card("b"), unfit="own-name: nope0 is no interface")
    stack.enter_context(joined(job.link.port, card=unfit))
    place, waiting = job.form(job.member("c"))
    assert [node.name for node in place.start.nodes] == ["a", "c"]
    assert waiting[0].result(LONG)
    assert "b cannot start: own-name" in job.screen.getvalue()


@pytest.mark.parametrize(
    ("theirs", "refused"),
    [
        ({"job": "other.py --lr 1"}, "started with other.py, this job with job.py"),
        ({"job": "job.py --lr 2"}, ""),  # arguments may differ on purpose
        ({"uid": 2}, "started by user 2, this job by user 1"),
        ({"uid": 2, "boot_id": "another"}, ""),
        ({"uid": None}, ""),
        ({"job": ""}, ""),
    ],
)
def test_without_token_and_id_another_job_is_told_apart(
    theirs: dict[str, Any], refused: str
) -> None:
    mine: dict[str, Any] = {"job": "job.py --lr 1", "uid": 1, "boot_id": "x"}
    found = other_job(a_card("b", **{**mine, **theirs}), a_card("a", **mine))
    assert (refused in found) if refused else not found


def test_another_job_at_the_same_place_is_refused_and_the_job_waits_on(
    stack: contextlib.ExitStack,
) -> None:
    job = Job(stack, RoundPolicy(2, 2, guarded=False), job="job.py")
    stranger = job.member("x", job="other.py")
    place, waiting = job.form(job.member("b"), stranger)
    assert [node.name for node in place.start.nodes] == ["a", "b"]
    with pytest.raises(JobIsOver, match="a refused this node: it was started"):
        waiting[1].result(LONG)
    assert "x was refused" in job.screen.getvalue()


def test_a_round_is_the_same_on_all_nodes(stack: contextlib.ExitStack) -> None:
    job = Job(stack, RoundPolicy(2, 2))
    b = job.member("b")
    here, (there,) = job.form(b)
    place = there.result(LONG)
    assert place.start == here.start
    assert (here.start.round, here.start.attempt, here.start.store_port) == (1, 0, PORT)
    assert (here.node_rank, place.node_rank, here.world) == (0, 1, 2)
    assert (here.address, place.address) == ("127.0.0.1", "127.0.0.1")
    assert job.opened == [("127.0.0.1",)]
    assert "b has joined (1 rank)" in job.screen.getvalue()
    assert "attempt 0: 2 ranks on 2 nodes: a (0), b (1)" in job.screen.getvalue()


def test_reports_and_requests_pass_and_older_ones_do_not(stack: contextlib.ExitStack) -> None:
    job = Job(stack, RoundPolicy(2, 2))
    b = job.member("b")
    job.form(b)[1][0].result(LONG)
    coordination = job.coordination
    b.send(NodeReport(round=0, at=1.0, ranks=()))
    b.send(NodeReport(round=1, at=2.0, ranks=(), evidence=7, events=((1, {"kind": "saved"}),)))
    b.send(NodeReport(round=1, at=3.0, ranks=(), evidence=8))

    def newest() -> NodeReport | None:
        coordination.look(0.0)
        report = coordination.states()["b"].report
        return report if report and report.evidence == 8 else None

    assert until(newest).round == 1
    assert coordination.new_events() == [(1, {"kind": "saved"})]
    assert coordination.new_events() == []
    coordination.ask_for_evidence(9)
    assert until(b.news) == [TakeEvidence(round=1, number=9)]


def test_the_round_ends_everywhere_and_the_next_one_forms(stack: contextlib.ExitStack) -> None:
    job = Job(stack, RoundPolicy(2, 3, last_call=0.5))
    b, c = job.member("b"), job.member("c")
    for waiting in job.form(b, c)[1]:
        waiting.result(LONG)
    order = EndRound(round=1, action="restart", reason="restarting (1 of 3)")
    job.coordination.end_round(order, without=["c"])
    assert until(b.news) == [order]
    (left,) = until(c.news)
    assert isinstance(left, EndRound)
    assert (left.action, left.exit_code) == ("stop", 124)
    assert left.reason == "this node is left out: restarting (1 of 3)"
    c.send(RanksGone(round=1))
    here, (again,) = job.form(b)
    assert [node.name for node in here.start.nodes] == ["a", "b"]
    assert (again.result(LONG).start.attempt, here.start.round) == (1, 2)


def test_a_spare_is_told_and_waits_until_there_is_room(stack: contextlib.ExitStack) -> None:
    job = Job(stack, RoundPolicy(1, 2, last_call=0.1))
    job.form()
    b, c = job.member("b"), job.member("c")
    for spare in (b, c):
        spare.send(Ready(after=0))

    def two_wait() -> bool:
        job.coordination.look(1e9)
        return len(job.coordination._rounds.waiting()) == 2

    until(two_wait)
    assert job.coordination.waiting_nodes() == ("b",)  # there is room for one
    assert job.coordination.can_do_without(["b", "c"])
    assert not job.coordination.can_do_without(["a"])


def test_a_node_that_left_is_lost_in_its_round_also_when_it_comes_back(
    stack: contextlib.ExitStack,
) -> None:
    job = Job(stack, RoundPolicy(1, 2))
    b = job.member("b")
    job.form(b)[1][0].result(LONG)
    b.send(RanksGone(round=1))
    b.close("stopped by SIGTERM")

    def lost() -> bool:
        job.coordination.look(1e9)
        return job.coordination.states()["b"].hearing == "lost"

    until(lost)
    state = job.coordination.states()["b"]
    assert (state.farewell, state.farewell_words) == ("left", "stopped by SIGTERM")
    again = job.stack.enter_context(joined(job.link.port, card=a_card("b", identity="b-2")))
    again.send(Ready(after=0))

    def waits() -> bool:
        job.coordination.look(1e9)
        return bool(job.coordination._rounds.waiting())

    until(waits)
    assert job.coordination.states()["b"].hearing == "lost"


def test_nodes_that_do_not_come_end_the_job_on_all_that_did(stack: contextlib.ExitStack) -> None:
    policy = RoundPolicy(3, 3, expected=("a", "b", "c"), join_timeout=3.0)
    job = Job(stack, policy)
    b = job.member("b")
    waiting = job.threads.submit(b.next_round, job.open_store, not_told)
    with pytest.raises(JobIsOver) as here:
        job.coordination.next_round(job.open_store, not_told)
    with pytest.raises(JobIsOver) as there:
        waiting.result(LONG)
    assert here.value.sentence == there.value.sentence
    assert here.value.sentence.endswith("missing: c")
    assert (here.value.exit_code, there.value.exit_code) == (124, 124)
    assert "2 of 3 nodes ready: a and b; waiting for c" in job.screen.getvalue()


def test_ctrl_c_on_a_waiting_member_ends_the_job(stack: contextlib.ExitStack) -> None:
    job = Job(stack, RoundPolicy(3, 3))
    b = job.member("b")
    waiting = job.threads.submit(b.next_round, job.open_store, lambda: signal.SIGINT)
    with pytest.raises(JobIsOver) as over:
        job.coordination.next_round(job.open_store, not_told)
    assert (over.value.sentence, over.value.exit_code) == ("stopped by SIGINT on b", 130)
    with pytest.raises(WaitInterrupted):
        waiting.result(LONG)


def test_a_signal_here_ends_the_wait(stack: contextlib.ExitStack) -> None:
    job = Job(stack, RoundPolicy(2, 2))
    with pytest.raises(WaitInterrupted):
        job.coordination.next_round(job.open_store, lambda: signal.SIGTERM)


def test_a_member_that_waits_says_that_its_coordinator_is_gone(
    stack: contextlib.ExitStack,
) -> None:
    job = Job(stack, RoundPolicy(2, 2))
    b = job.member("b")
    waiting = job.threads.submit(b.next_round, job.open_store, not_told)
    job.link.close()
    with pytest.raises(JobIsOver) as over:
        waiting.result(LONG)
    assert over.value.exit_code == 124
    assert "node a, which coordinates the job and serves its store, was lost" in over.value.sentence


def test_a_member_that_lost_its_coordinator_joins_again_and_the_job_re_forms(
    stack: contextlib.ExitStack,
) -> None:
    """At once: nothing waits for a lease of the launcher that it was."""
    job = Job(stack, RoundPolicy(2, 2))
    b = job.member_that_comes_back("b")
    job.form(b)[1][0].result(LONG)
    job.link.give_up("b", "the cable is out")
    assert until(b.lost).others_may_start
    job.coordination.end_round(EndRound(round=1, action="restart", reason="b was lost"))
    here, (there,) = job.form(b)
    assert [(n.name, n.nproc) for n in there.result(LONG).start.nodes] == [("a", 1), ("b", 1)]
    assert (here.start.round, here.start.attempt) == (2, 1)
    assert "joined a again" in job.screen.getvalue()
    b.send(NodeReport(round=2, at=1.0, ranks=()))

    def reported() -> bool:
        job.coordination.look(0.0)
        return job.coordination.states()["b"].report is not None

    until(reported)


def test_a_member_that_joins_again_before_it_was_missed_is_lost_in_its_round(
    stack: contextlib.ExitStack,
) -> None:
    job = Job(stack, RoundPolicy(2, 2))
    b = job.member_that_comes_back("b")
    job.form(b)[1][0].result(LONG)
    again = job.member("b")

    def lost() -> bool:
        job.coordination.look(0.0)
        return job.coordination.states()["b"].hearing == "lost"

    until(lost)
    state = job.coordination.states()["b"]
    assert (state.farewell, again.node) == ("left", "b")
    assert "has joined again" in state.farewell_words


def test_a_member_takes_no_part_in_another_run(stack: contextlib.ExitStack) -> None:
    job = Job(stack, RoundPolicy(2, 2))
    new = Job(stack, RoundPolicy(2, 2), run="20261117-b")
    b = job.member_that_comes_back("b", to=new)
    waiting = job.threads.submit(b.next_round, job.open_store, not_told)
    job.link.give_up("b", "the cable is out")
    with pytest.raises(JobIsOver) as over:
        waiting.result(LONG)
    assert "a coordinates another run now, 20261117-b" in over.value.sentence
    assert over.value.exit_code == 124


class FastClock:
    """Five seconds a look."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 5.0
        return self.now


def test_nodes_that_do_not_come_are_missed_by_name_before_the_timeout(
    stack: contextlib.ExitStack,
) -> None:
    screen = io.StringIO()
    coordination = Coordination(
        stack.enter_context(coordinating()), card=a_card("a", identity="a-0"),
        policy=RoundPolicy(2, 2, expected=("a", "b"), join_timeout=60.0),
        screen=Screen(screen), clock=FastClock(),
    )  # fmt: skip
    with pytest.raises(JobIsOver):
        coordination.next_round(lambda *_: 0, not_told)
    first, missed, again, last = screen.getvalue().splitlines()
    waits = "1 of 2 nodes ready: a; waiting for b, up to"
    assert f"holdfast> {waits}" in first
    assert f"notice[HOLD109] ranks-missing: {waits}" in missed
    assert "ranks-missing" in again  # half a minute later
    assert "verdict[HOLD905] join-timeout: 1 of 2 nodes ready: a within the join timeout" in last
