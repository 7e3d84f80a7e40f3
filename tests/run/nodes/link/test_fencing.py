"""Whatever is lost or late: a launcher's ranks have ended before a round starts without it."""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable, Sequence
from typing import TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.nodes.keepalive import GONE_SECONDS
from holdfast.nodes.lease import LATE_LOOK, Hearing
from holdfast.run.launch import lease_guard
from holdfast.run.nodes.link import fencing
from holdfast.run.nodes.link.fencing import LeaseTerms, SignsOfLife, lease_is_over
from holdfast.run.nodes.link.member_stream import MemberStream
from tests.run.nodes.link.pair import TOKEN, a_card

END = 60.0
SHORT, PATIENT = fencing.SHORT_LEASE, LeaseTerms(fencing.PATIENT, patient=True)
T = TypeVar("T")


class Simulation:
    """A launcher and its coordinator with clocks and a network that do what they are told.

    Gaps are the seconds between two looks of a loop; `up` and `down` say how many seconds a
    datagram takes, or None when it is lost. The launcher's clock is `ahead`.
    """

    def __init__(
        self,
        launcher_gap: Callable[[float], float],
        coordinator_gap: Callable[[float], float],
        up: Callable[[float], float | None],
        down: Callable[[float], float | None],
        ahead: float = 0.0,
    ) -> None:
        self.now = 0.0
        self._order = itertools.count()
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._gaps = launcher_gap, coordinator_gap
        self._fates = up, down
        self._ahead = ahead
        self.signs = SignsOfLife(ahead)
        self._launcher_heard = 0
        self.member = MemberStream("b", a_card(), TOKEN, 0.0)
        self._looked = 0.0
        self.launcher_over: float | None = None
        """when the launcher saw that its lease is over"""
        self.lost: float | None = None
        self.fenced: float | None = None
        self._launcher()
        self._coordinator()

    def play(self) -> None:
        while self._due and self._due[0][0] < END:
            self.now, _, event = heapq.heappop(self._due)
            event()

    def _at(self, when: float, event: Callable[[], None]) -> None:
        heapq.heappush(self._due, (when, next(self._order), event))

    def _launcher(self) -> None:
        local = self.now + self._ahead
        if lease_is_over(self.signs, local, SHORT):
            self.launcher_over = self.now
            return
        number, confirmed = self.signs.next_number(local), self._launcher_heard
        if (takes := self._fates[0](self.now)) is not None:
            self._at(self.now + takes, lambda: self.member.spoke(number, confirmed, self.now))
        self._at(self.now + self._gaps[0](self.now), self._launcher)

    def _coordinator(self) -> None:
        if (late := self.now - self._looked - LATE_LOOK) > 0:
            self.member.loop_was_late(late)
        self._looked = self.now
        heard = self.member.judge(self.now)
        if heard.hearing == "lost" and self.lost is None:
            self.lost = self.now
        if heard.fenced:
            self.fenced = self.now
            return
        number, confirmed = self.member.signs.next_number(self.now), self.member.confirmed
        if self.lost is None and (takes := self._fates[1](self.now)) is not None:
            self._at(self.now + takes, lambda: self._confirmed(number, confirmed))
        self._at(self.now + self._gaps[1](self.now), self._coordinator)

    def _confirmed(self, number: int, confirmed: int) -> None:
        if self.launcher_over is None:
            self._launcher_heard = max(self._launcher_heard, number)
            self.signs.confirmed(confirmed)


LONGEST_GAP = 3.4
"""of a launcher's loop: it leaves time to end the ranks within fencing.ENDING"""
ENDING = 0.5
gaps = st.sampled_from([0.2, 0.2, 0.25, 0.9, 1.1, 2.0, LONGEST_GAP])
takes = st.one_of(st.none(), st.floats(0, 12), st.sampled_from([0.0, 0.001, 0.2, None, None]))
spells = st.lists(st.tuples(st.floats(0.1, 15), takes), min_size=1, max_size=8)
loops = st.lists(st.tuples(st.floats(0.1, 15), gaps), min_size=1, max_size=8)


def by_spells(listed: Sequence[tuple[float, T]]) -> Callable[[float], T]:
    """One after the other, over and over."""
    whole = sum(length for length, _ in listed)

    def now_is(now: float) -> T:
        at = now % whole
        for length, found in listed:
            at -= length
            if at < 0:
                return found
        return listed[-1][1]

    return now_is


def stalls_once(begins: float) -> Callable[[float], float]:
    """A loop that is late at the first look after `begins`."""
    late = iter([LONGEST_GAP])
    return lambda now: next(late, 0.2) if now >= begins else 0.2


@given(spells, spells, loops, loops, st.floats(-1000, 1000))
def test_no_round_starts_while_ranks_of_a_lost_node_may_run(
    up: list[tuple[float, float | None]],
    down: list[tuple[float, float | None]],
    launcher: list[tuple[float, float]],
    coordinator: list[tuple[float, float]],
    ahead: float,
) -> None:
    """Also with a launcher whose one late look comes at the worst moment: all are tried."""
    for loop in (by_spells(launcher), *map(stalls_once, range(0, 30, 4))):
        simulation = Simulation(loop, by_spells(coordinator), by_spells(up), by_spells(down), ahead)
        simulation.play()
        if simulation.fenced is not None:
            assert simulation.launcher_over is not None
            assert simulation.launcher_over + ENDING <= simulation.fenced


stops = st.sampled_from([0.2, 0.2, 0.25, 0.9, LONGEST_GAP, 8.0, 30.0])
loops_that_stop = st.lists(st.tuples(st.floats(0.1, 15), stops), min_size=1, max_size=8)


@given(spells, spells, loops_that_stop, loops, st.floats(-1000, 1000))
def test_the_kernel_ends_ranks_in_time_of_a_launcher_that_does_not_run(
    up: list[tuple[float, float | None]],
    down: list[tuple[float, float | None]],
    launcher: list[tuple[float, float]],
    coordinator: list[tuple[float, float]],
    ahead: float,
) -> None:
    simulation = Simulation(
        by_spells(launcher), by_spells(coordinator), by_spells(up), by_spells(down), ahead
    )
    simulation.play()
    if simulation.fenced is not None:
        ranks_end = simulation.signs.ranks_end_at(SHORT) - ahead + lease_guard.BACKSTOP
        assert ranks_end + ENDING <= simulation.fenced


def test_of_a_launcher_that_is_killed_nothing_is_left_when_it_is_started_again() -> None:
    ends = lease_guard.AFTER_LAUNCHER + lease_guard.BACKSTOP + ENDING
    for seconds in (fencing.SHORTEST, fencing.PATIENT, fencing.LONGEST):
        terms = LeaseTerms(seconds, patient=True)
        assert ends <= min(terms.closed_for, terms.gone_after)


def steady(_: float) -> float:
    return 0.2


def at_once(_: float) -> float | None:
    return 0.001


def until_20(now: float) -> float | None:
    return 0.001 if now < 20 else None


@pytest.mark.parametrize(
    ("up", "down"),
    [(until_20, until_20), (until_20, at_once), (at_once, until_20)],
    ids=["cut", "only the launcher is not heard", "only the coordinator is not heard"],
)
def test_a_cut_and_a_one_way_cut_are_noticed_by_both_within_nine_seconds(
    up: Callable[[float], float | None], down: Callable[[float], float | None]
) -> None:
    simulation = Simulation(steady, steady, up, down)
    simulation.play()
    assert simulation.launcher_over is not None
    assert 20 + 6 < simulation.launcher_over < 20 + 9
    assert simulation.lost is not None
    assert 20 + 7 < simulation.lost < 20 + 9
    assert simulation.fenced is not None


@given(st.floats(0.01, 5.0), st.floats(10, 20))
def test_a_flap_of_five_seconds_loses_nobody(length: float, begins: float) -> None:
    def fate(now: float) -> float | None:
        return None if begins <= now < begins + length else 0.2

    simulation = Simulation(steady, steady, fate, fate)
    simulation.play()
    assert (simulation.launcher_over, simulation.lost) == (None, None)


def test_a_coordinator_that_slept_gives_nobody_up_for_it() -> None:
    def sleeps(now: float) -> float:
        return 6.0 if 10 < now < 10.3 else 0.2

    simulation = Simulation(steady, sleeps, at_once, at_once)
    simulation.play()
    assert (simulation.launcher_over, simulation.lost) == (None, None)


@pytest.mark.parametrize("gap", [1.1, 2.0, 4.0])
def test_a_coordinator_that_is_late_again_and_again_still_loses_a_dead_node(gap: float) -> None:
    """It listens for a moment between two pauses, as on a machine that starves."""
    pauses = by_spells([(gap + 0.5, gap), (0.5, 0.2)])
    simulation = Simulation(steady, pauses, lambda now: 0.001 if now < 10 else None, at_once)
    simulation.play()
    assert simulation.lost is not None
    assert simulation.lost < 10 + 6 * fencing.FENCE


@given(loops, loops)
def test_late_looks_of_the_coordinator_lose_nobody_who_is_heard(
    launcher: list[tuple[float, float]], coordinator: list[tuple[float, float]]
) -> None:
    gaps_of = by_spells([(length, min(gap, 2.0)) for length, gap in launcher])
    simulation = Simulation(gaps_of, by_spells(coordinator), at_once, at_once)
    simulation.play()
    assert (simulation.launcher_over, simulation.lost) == (None, None)


def test_a_patient_lease_lasts_as_long_as_the_kernels_keep_the_connection() -> None:
    """A launcher that is stopped, or suspended with its ranks, goes on where it was."""
    signs = SignsOfLife(100.0)
    assert not lease_is_over(signs, 5000.0, PATIENT, connected_at=5000.0)
    assert signs.ranks_end_at(PATIENT) == math.inf
    for silent, deaf in ((4000.0, 4000.0), (0.0, 4000.0)):
        found = fencing.hearing_of(silent, deaf=deaf, closed=None, timed_out=False, terms=PATIENT)
        assert found is Hearing.LATE


def test_what_was_killed_is_lost_at_once_under_a_patient_lease_too() -> None:
    closed = fencing.hearing_of(1.6, deaf=1.6, closed=1.6, timed_out=False, terms=PATIENT)
    timed_out = fencing.hearing_of(20.0, deaf=20.0, closed=5.0, timed_out=True, terms=PATIENT)
    assert (closed, timed_out) == (Hearing.LOST, Hearing.LATE)


@given(st.floats(fencing.SHORTEST, 200.0), st.floats(0, GONE_SECONDS))
def test_under_a_patient_lease_ranks_end_before_others_start(seconds: float, kept: float) -> None:
    """`kept`: seconds for which its kernel keeps a connection on which nothing comes any more."""
    terms = LeaseTerms(seconds, patient=True)
    signs = SignsOfLife(0.0)
    over = next(
        at / 5
        for at in range(2000)
        if lease_is_over(signs, at / 5, terms, connected_at=min(at / 5, kept))
    )
    assert over + fencing.ENDING <= terms.gone_after


def test_a_launcher_that_is_stopped_may_have_ranks_however_long_it_is_silent() -> None:
    member = MemberStream("b", a_card(), TOKEN, 0.0, terms=PATIENT)
    member.machine_answered = True
    member.machine_asked(answered=True, now=10.0)
    member.closed("Connection timed out", 400.0)
    assert member.judge(410.0).hearing == "lost"
    assert not member.judge(5000.0).fenced
    member.machine_asked(answered=False, now=5000.0)
    assert member.judge(5000.0).fenced, "its machine is gone"


def test_a_launcher_that_is_started_again_need_not_wait_for_a_patient_lease() -> None:
    first = a_card(identity="b-1", boot_id="x")
    again = a_card(identity="b-2", boot_id="x")
    elsewhere = a_card(identity="b-3", boot_id="y")
    member = MemberStream("b", first, TOKEN, 0.0, terms=PATIENT)
    member.closed("closed the connection", 1.0)
    assert [member.is_followed_by(again, at) for at in (5.0, 12.0)] == [False, True]
    assert [member.is_followed_by(elsewhere, at) for at in (12.0, 70.0)] == [False, True]


def test_a_launcher_gains_nothing_by_being_late() -> None:
    signs = SignsOfLife(100.0)
    signs.confirmed(signs.next_number(101.0))
    signs.next_number(108.5)
    assert lease_is_over(signs, 108.5, SHORT)
    signs.confirmed(1)
    assert lease_is_over(signs, 108.5, SHORT)
    signs.confirmed(2)
    assert not lease_is_over(signs, 108.5, SHORT)


def test_what_is_confirmed_late_takes_nothing_back() -> None:
    """A coordinator that slept gave its launchers more time; an old answer then comes in."""
    signs = SignsOfLife(100.0)
    number = signs.next_number(101.0)
    signs.not_counted(8.0)
    signs.confirmed(number)
    assert signs.unconfirmed(110.0) == 2.0


def test_a_confirmation_of_what_was_never_sent_gives_nothing() -> None:
    signs = SignsOfLife(100.0)
    signs.next_number(100.0)
    signs.confirmed(10**9)
    assert signs.unconfirmed(103.0) == 3.0
    assert lease_is_over(signs, 107.0, SHORT)


@pytest.mark.parametrize(
    ("silent", "closed", "hearing"),
    [
        (0.0, None, "heard"),
        (2.6, None, "late"),
        (7.6, None, "lost"),
        (1.0, 1.0, "heard"),
        (1.6, 1.6, "lost"),
        (0.2, 3.0, "heard"),
        (1.6, 0.1, "heard"),
        (7.6, 0.1, "lost"),
    ],
)
def test_a_closed_connection_is_given_a_moment(
    silent: float, closed: float | None, hearing: str
) -> None:
    found = fencing.hearing_of(silent, deaf=0.0, closed=closed, timed_out=False, terms=SHORT)
    assert found is Hearing(hearing)


def test_datagrams_alone_do_not_keep_a_node_for_ever() -> None:
    assert fencing.beats_count(spoken=11.0, closed=None)
    assert not fencing.beats_count(spoken=13.0, closed=None)
    assert fencing.beats_count(spoken=3.0, closed=3.0)
    assert not fencing.beats_count(spoken=5.0, closed=5.0)


def test_a_machine_that_answered_is_not_dead_for_one_lost_packet() -> None:
    member = MemberStream("b", a_card(), TOKEN, 0.0)
    member.machine_asked(answered=False, now=1.0)
    assert member.judge(8.0).machine_answers is None, "silence says nothing where it never answered"
    member.machine_answered = True
    member.machine_asked(answered=True, now=8.0)
    member.machine_asked(answered=False, now=10.0)
    assert member.judge(10.0).machine_answers is True
    member.machine_asked(answered=False, now=19.0)
    assert member.judge(19.0).machine_answers is False
