"""Connections that break at any moment: nothing that was said is lost, doubled or out of order."""

from __future__ import annotations

import random
import threading
import time

import pytest

from holdfast.nodes.channel_errors import Refused
from holdfast.run.nodes.link import fencing
from holdfast.run.nodes.link.fencing import LeaseTerms
from holdfast.run.nodes.link.interface import NodeClosed, NodeJoined
from holdfast.run.nodes.messages import NodeReport, Ready, RoundStart, Say
from tests.run.nodes.link.breaking_proxy import breaking
from tests.run.nodes.link.pair import NewsOf, a_card, coordinating, joined, until
from tests.run.scenes import a_rank, waiting

pytestmark = pytest.mark.xdist_group("link-broken")


def test_nothing_is_lost_when_connections_break_again_and_again() -> None:
    with (
        coordinating() as here,
        breaking(here.port) as proxy,
        joined(proxy.port, card=a_card("b")) as there,
    ):
        news, told = NewsOf(here), NewsOf(there)
        rest = random.Random(7)
        for number in range(60):
            there.send(Ready(after=number))
            there.send(NodeReport(round=number, at=1.0, ranks=(a_rank(1, recorder=waiting()),)))
            here.send("b", Say(lines=(str(number),)))
            if number % 6 == 3:
                proxy.most_bytes = rest.choice([None, 2000, 5000])
                proxy.break_all()
            time.sleep(rest.uniform(0, 0.05))
        proxy.most_bytes = None
        proxy.break_all()
        until(lambda: len(told.of(Say)) == 60 and len(news.said("b")) == 120)
        assert [int(said.lines[0]) for said in told.of(Say)] == list(range(60))
        said = news.said("b")
        assert [one.after for one in said if isinstance(one, Ready)] == list(range(60))
        reports = [one for one in said if isinstance(one, NodeReport)]
        assert [one.round for one in reports] == list(range(60))
        assert all(one.ranks[0].recorder for one in reports)
        assert proxy.connections > 5
        assert there.lost() is None
        assert here.heard()["b"].hearing == "heard"


def test_who_comes_back_keeps_its_name() -> None:
    with coordinating() as here, breaking(here.port) as proxy, joined(proxy.port) as there:
        news, told = NewsOf(here), NewsOf(there)
        news.first(NodeJoined)
        start = RoundStart(round=4, attempt=2, nodes=(), store_node="a", store_port=1)
        here.send("b", start)
        assert told.first(RoundStart) == start
        proxy.break_all()
        again = until(lambda: len(news.of(NodeJoined)) == 2 and news.of(NodeJoined)[1])
        assert (again.node, again.resumed) == ("b", True)
        assert news.first(NodeClosed).node == "b"
        there.send(Ready(after=4))
        until(lambda: news.said("b"))
        proxy.break_all()
        again = until(lambda: len(news.of(NodeJoined)) == 3 and news.of(NodeJoined)[2])
        assert (again.node, again.resumed) == ("b", True)


def test_a_coordinator_that_is_gone_is_noticed_within_seconds() -> None:
    with coordinating() as here, breaking(here.port) as proxy, joined(proxy.port) as there:
        began = time.monotonic()
        proxy.close()
        lost = until(there.lost)
        assert time.monotonic() - began < 6.0
        assert lost.farewell == "closed"
        assert f"nothing listens at 127.0.0.1:{proxy.port} any more" in lost.words


def test_a_launcher_that_was_given_up_is_told_so() -> None:
    with coordinating() as here, breaking(here.port) as proxy, joined(proxy.port) as there:
        NewsOf(here).first(NodeJoined)
        here._thread.call(here._names["b"].given_up, "it is given up by this test")
        proxy.break_all()
        lost = until(there.lost)
        assert (lost.farewell, there.news()) == ("closed", [])
        assert lost.words.endswith("this node was given up: it is given up by this test")
        assert here.heard()["b"].hearing == "lost"


@pytest.mark.long
def test_a_new_launcher_gets_the_name_once_the_ranks_of_the_old_one_are_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fencing, "ENDING", -4.5)  # 3 s after it was heard last
    with coordinating() as here:
        with joined(here.port) as old:
            old.close()
        with pytest.raises(Refused, match="the launcher that was b is gone, its ranks may still"):
            joined(here.port, card=a_card("b", "new"), seconds=0.3).__enter__()
        with joined(here.port, card=a_card("b", "new")) as new:
            assert new.admitted.name == "b"
            assert here.heard()["b"].hearing == "heard"


def test_the_same_launcher_may_join_again_at_once() -> None:
    with coordinating() as here, joined(here.port) as old, joined(here.port) as new:
        assert new.admitted.name == "b"
        lost = until(old.lost)
        assert lost.words.endswith("joined again")
        until(lambda: here.heard()["b"].hearing == "heard")


@pytest.mark.long
def test_signs_of_life_go_on_while_the_agents_thread_is_busy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Neither side's own thread asks anything of its link for longer than a lease."""
    monkeypatch.setattr(fencing, "LATE", 1.5)
    with coordinating(terms=LeaseTerms(2.0)) as here, joined(here.port) as there:
        threading.Event().wait(3.0)
        assert there.lost() is None
        assert here.heard()["b"].hearing == "heard"
