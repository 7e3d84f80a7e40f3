"""The two ends of a link over loopback."""

from __future__ import annotations

import signal
import threading
import time

import pytest

from holdfast.nodes.channel_errors import CannotListen, CouldNotJoin, Refused, WrongToken
from holdfast.nodes.token import fresh_token
from holdfast.run.nodes.link.interface import NodeClosed, NodeJoined
from holdfast.run.nodes.messages import (
    EndRound,
    Leaving,
    NodeReport,
    Ready,
    Say,
    ToldToStop,
)
from tests.run.nodes.link.pair import NewsOf, a_card, coordinating, joined, until


def test_messages_go_both_ways_in_order() -> None:
    with coordinating() as here, joined(here.port) as there:
        news = NewsOf(here)
        joined_now = news.first(NodeJoined)
        assert joined_now == NodeJoined("b", a_card(), "127.0.0.1", clock=joined_now.clock)
        assert joined_now.clock is not None
        assert abs(joined_now.clock.seconds) <= joined_now.clock.bound  # one machine, one clock
        assert (there.admitted.name, there.admitted.run) == ("b", "20261116-a")
        assert (there.coordinator, there.coordinator_address) == ("a", "127.0.0.1")
        for number in range(200):
            there.send(Ready(after=number))
            here.send("b", Say(lines=(str(number),)))
        until(lambda: len(news.said("b")) == 200)
        assert news.said("b") == [Ready(after=number) for number in range(200)]
        told = NewsOf(there)
        until(lambda: len(told.of(Say)) == 200)
        assert told.all == [Say(lines=(str(number),)) for number in range(200)]
        here.send("nobody", Say(lines=()))


def test_news_wake_the_waiting_thread() -> None:
    with coordinating() as here, joined(here.port) as there:
        NewsOf(here).first(NodeJoined)
        there.send(ToldToStop(signal="SIGTERM"))
        began = time.monotonic()
        here.wait(20.0)
        assert time.monotonic() - began < 10.0
        assert here.news()


def test_names_are_unique_and_the_coordinators_own_is_taken() -> None:
    with coordinating() as here:
        cards = [a_card("a", "1"), a_card("b", "2"), a_card("b", "3")]
        links = [joined(here.port, card=card) for card in cards]
        with links[0] as one, links[1] as two, links[2] as three:
            assert [link.admitted.name for link in (one, two, three)] == ["a#2", "b", "b#2"]


def test_a_launcher_that_leaves_says_so_and_frees_its_name() -> None:
    with coordinating() as here:
        with joined(here.port) as there:
            there.close("told to stop by SIGTERM")
        news = NewsOf(here)
        until(lambda: news.said("b"))
        assert news.said("b") == [Leaving(why="told to stop by SIGTERM")]
        heard = here.heard()["b"]
        assert (heard.hearing, heard.farewell, heard.fenced) == ("lost", "left", True)
        assert heard.words == "told to stop by SIGTERM"
        with joined(here.port, card=a_card("b", "another")) as again:
            assert again.admitted.name == "b"
            until(lambda: here.heard()["b"].hearing == "heard")


def test_a_coordinator_that_ends_delivers_what_it_sent_and_says_so() -> None:
    with coordinating() as here, joined(here.port) as there:
        NewsOf(here).first(NodeJoined)
        assert there.lost() is None
        here.send("b", EndRound(round=1, action="done"))
        here.close()
        lost = until(there.lost)
        assert (lost.farewell, lost.words) == ("left", "the coordinator has ended")
        assert there.news() == [EndRound(round=1, action="done")]


def test_a_closed_connection_is_a_lost_node_within_seconds() -> None:
    with coordinating() as here, joined(here.port) as there:
        news = NewsOf(here)
        news.first(NodeJoined)
        until(lambda: here._names["b"].machine_answered)
        there.close()
        assert news.first(NodeClosed) == NodeClosed("b", "closed the connection")
        heard = until(lambda: here.heard()["b"].hearing == "lost" and here.heard()["b"], 5.0)
        assert (heard.farewell, heard.fenced) == ("closed", False)
        assert until(lambda: here.heard()["b"].machine_answers) is True


def test_reports_arrive_by_the_coordinators_clock() -> None:
    with coordinating() as here, joined(here.port) as there:
        news = NewsOf(here)
        for _ in range(3):
            there.send(NodeReport(round=1, at=time.monotonic(), ranks=()))
        until(lambda: len(news.said("b")) == 3)
        for report in news.said("b"):
            assert abs(report.at - time.monotonic()) < 20.0
            assert 0 < report.clock_bound < 1.0


def test_who_may_not_join_hears_why() -> None:
    with coordinating(rendezvous_id="job-7") as here:
        with pytest.raises(WrongToken, match="has another token"):
            joined(here.port, token=fresh_token()).__enter__()
        with pytest.raises(Refused, match="it belongs to run job-8, this is run job-7"):
            joined(here.port, rendezvous_id="job-8").__enter__()
        with pytest.raises(CannotListen, match="Address already in use"):
            coordinating(port=here.port).__enter__()
        until(lambda: len(here.turned_away()) == 2)
    with pytest.raises(CouldNotJoin, match="Connection refused"):
        joined(here.port, seconds=0.3).__enter__()


def test_a_link_over_ipv6_has_datagrams_too() -> None:
    with coordinating("::1") as here, joined(here.port, "::1") as there:
        assert (there.own_address, there.coordinator_address) == ("::1", "::1")
        until(lambda: here._names["b"].beats_to)
        there.send(Ready(after=0))
        news = NewsOf(here)
        until(lambda: news.said("b"))


def test_a_machine_behind_another_address_is_not_asked_whether_it_answers() -> None:
    """What answers at the address we see may be a router."""
    card = a_card("b", addresses=("10.9.9.9",))
    with coordinating() as here:
        with joined(here.port, card=card):
            NewsOf(here).first(NodeJoined)
        until(lambda: here.heard()["b"].hearing == "lost")
        assert here.heard()["b"].machine_answers is None


def test_ctrl_c_while_joining_leaves_no_thread_behind() -> None:
    """It would join in the name of a launcher that is gone."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        with pytest.raises(KeyboardInterrupt):
            joined(1, seconds=60.0).__enter__()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)
    until(lambda: not [t for t in threading.enumerate() if t.name == "holdfast-link"])
