"""Nine launchers on nine hosts, each with another fault on its way to the coordinator, at once."""

from __future__ import annotations

import contextlib
import dataclasses
import sys
import time
from collections.abc import Iterator

import pytest

from holdfast.drill.lab import Host, Lab
from holdfast.nodes.token import VARIABLE
from holdfast.run.nodes.link.coordinator_link import ListeningLink
from holdfast.run.nodes.link.interface import CoordinatorLost, Heard, NodeClosed, NodeJoined
from holdfast.run.nodes.link.launcher_link import JoinedLink
from tests.drill.lab.fixture import lab_or_skip
from tests.run.nodes.link.pair import LONG, TOKEN, NewsOf, a_card, coordinating, until

pytestmark = [pytest.mark.lab, pytest.mark.xdist_group("link-lost-nodes")]

CUT_OFF = ("c", "d", "e", "i")
SOON = 12.0
"""seconds; 9 on a machine that is not busy, see test_fencing.py"""


@dataclasses.dataclass
class Sample:
    after: float
    """seconds since the faults began"""
    heard: Heard
    lost: CoordinatorLost | None


class Record:
    """What both sides saw of each launcher, twenty times a second."""

    def __init__(self) -> None:
        self.samples: dict[str, list[Sample]] = {}
        self.closed: dict[str, str] = {}
        self.joined: dict[str, int] = {}

    def first_lost(self, node: str) -> Sample:
        """As the coordinator saw it."""
        return next(s for s in self.samples[node] if s.heard.hearing == "lost")

    def first_over(self, node: str) -> tuple[float, CoordinatorLost]:
        """As its launcher saw it."""
        return next((s.after, s.lost) for s in self.samples[node] if s.lost)

    def complete(self) -> bool:
        """Whoever is cut off is lost on both sides."""
        last = [self.last(node) for node in CUT_OFF]
        return all(s.lost and s.heard.hearing == "lost" for s in last)

    def last(self, node: str) -> Sample:
        return self.samples[node][-1]


@contextlib.contextmanager
def on(host: Host, coordinator: ListeningLink, at: Host) -> Iterator[JoinedLink]:
    with host.inside():
        link = JoinedLink(
            at.address, coordinator.port, token=TOKEN, card=a_card(host.name), seconds=LONG
        )
    try:
        yield link
    finally:
        link.close()


def play(lab: Lab) -> Record:
    a, *others = lab.hosts(10)
    by_name = {host.name: host for host in others}
    *held, killed = others
    with contextlib.ExitStack() as stack:
        with a.inside():
            here = stack.enter_context(coordinating(a.address))
        lab.link(a, by_name["g"]).delay(200)
        links = {host.name: stack.enter_context(on(host, here, a)) for host in held}
        process = lab.start(
            killed,
            [sys.executable, "-m", "tests.run.nodes.link.launcher_process",
             a.address, str(here.port), killed.name],
            env={VARIABLE: TOKEN.secret.decode()}, stderr=None,
        )  # fmt: skip
        assert process.stdout is not None
        assert process.stdout.readline() == "joined\n"
        news = NewsOf(here)
        until(lambda: len(news.of(NodeJoined)) == len(others))
        until(lambda: all(member.machine_answered for member in here._names.values()))
        time.sleep(0.3)
        lab.link(a, by_name["b"]).cut()
        lab.link(a, by_name["c"]).cut()
        lab.link(a, by_name["d"]).drop(to=a)
        lab.link(a, by_name["e"]).drop(to=by_name["e"])
        lab.link(a, by_name["f"]).loss(30)
        lab.link(a, by_name["h"]).drop(protocol="udp")
        by_name["i"].cut()
        process.kill()
        return recorded(lab, a, by_name["b"], here, links, news)


def recorded(
    lab: Lab, a: Host, b: Host, here: ListeningLink, links: dict[str, JoinedLink], news: NewsOf
) -> Record:
    record, began, restored = Record(), time.monotonic(), False
    while (after := time.monotonic() - began) < SOON and not (after > 8.0 and record.complete()):
        if after >= 5.0 and not restored:
            lab.link(a, b).restore()
            restored = True
        for name, heard in here.heard().items():
            lost = links[name].lost() if name in links else None
            record.samples.setdefault(name, []).append(Sample(after, heard, lost))
        time.sleep(0.05)
    record.closed = {one.node: one.why for one in news.of(NodeClosed)}
    for joined in news.of(NodeJoined):
        record.joined[joined.node] = record.joined.get(joined.node, 0) + 1
    return record


@pytest.fixture(scope="module")
def record() -> Iterator[Record]:
    with lab_or_skip() as lab:
        yield play(lab)


def test_a_flap_of_five_seconds_and_thirty_percent_loss_lose_nobody(record: Record) -> None:
    for node in ("b", "f", "g", "h"):
        last = record.last(node)
        assert (node, last.heard.hearing, last.lost) == (node, "heard", None)
        assert not [s for s in record.samples[node] if s.heard.hearing == "lost"]
        assert record.joined[node] == 1


def test_loss_and_delay_make_nobody_late_for_long(record: Record) -> None:
    for node in ("f", "g", "h"):
        late = [s for s in record.samples[node] if s.heard.hearing == "late"]
        assert len(late) < 0.1 * len(record.samples[node])


def test_a_cut_is_noticed_by_both_sides(record: Record) -> None:
    for node in ("c", "i"):
        lost = record.first_lost(node)
        assert 6.0 < lost.after < SOON
        assert (lost.heard.farewell, lost.heard.fenced) == ("silent", False)
        assert lost.heard.words.startswith("nothing for ")
        after, over = record.first_over(node)
        assert 6.0 < after < SOON
        assert over.farewell == "silent"
        assert over.words.startswith("nothing from the coordinator for ")


def test_a_one_way_cut_is_noticed_by_both_sides(record: Record) -> None:
    heard_nothing, was_not_heard = "nothing from the coordinator for ", "has not heard this node"
    for node, words in (("d", was_not_heard), ("e", heard_nothing)):
        after, over = record.first_over(node)
        assert 6.0 < after < SOON
        assert words in over.words
        lost = record.first_lost(node)
        assert 6.0 < lost.after < SOON
        assert lost.heard.farewell == "silent"


def test_ranks_end_before_their_node_is_given_up_for_good(record: Record) -> None:
    for node in CUT_OFF:
        over, lost = record.first_over(node)[0], record.first_lost(node)
        assert over < lost.after + 3.0
        assert not lost.heard.fenced


def test_a_killed_launcher_and_a_dead_machine_are_told_apart(record: Record) -> None:
    killed = record.first_lost("j")
    assert killed.after < 7.0, "before one that is only silent"
    assert killed.heard.farewell == "closed"
    assert record.closed["j"] in ("closed the connection", "Connection reset by peer")
    # A busy machine may be asked a little later than it is given up.
    assert record.last("j").heard.machine_answers is True
    assert record.last("i").heard.machine_answers is False
    assert "i" not in record.closed or record.last("i").heard.farewell == "silent"
