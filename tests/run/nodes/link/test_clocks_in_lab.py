"""Wall clocks that differ, and that are set while the link is up: times stay right."""

from __future__ import annotations

import sys
import time

import pytest

from holdfast.drill.lab import Lab
from holdfast.nodes.token import VARIABLE
from holdfast.run.nodes.link.interface import NodeSaid
from holdfast.run.nodes.messages import NodeReport
from tests.run.nodes.link.pair import TOKEN, NewsOf, coordinating, until

pytestmark = [pytest.mark.long, pytest.mark.lab, pytest.mark.xdist_group("link-clocks")]


def test_wall_times_are_the_coordinators_also_after_a_step(lab: Lab) -> None:
    a, b = lab.hosts(2)
    b.clock(-70)
    with a.inside():
        here = coordinating(a.address)
        link = here.__enter__()
    try:
        lab.start(
            b,
            [sys.executable, "-m", "tests.run.nodes.link.reporting_process",
             a.address, str(link.port), b.name],
            env={VARIABLE: TOKEN.secret.decode()}, stderr=None,
        )  # fmt: skip
        news = NewsOf(link)
        for ahead in (-70, 90):
            b.clock(ahead)
            until(lambda ahead=ahead: len(by_clock(news, ahead)) > 5)  # type: ignore[misc]
            for report in by_clock(news, ahead)[-3:]:
                assert abs(report.evidence_wall - time.time()) < 20.0
                assert abs((time.time() - report.evidence_wall)
                           - (time.monotonic() - report.evidence_at)) < 0.1  # fmt: skip
                assert report.clock_bound < 1.0
    finally:
        here.__exit__(None, None, None)


def by_clock(news: NewsOf, ahead: int) -> list[NodeReport]:
    """Reports that were made while that host's clock was so far ahead."""
    return [
        said.message
        for said in news.of(NodeSaid)
        if isinstance(said.message, NodeReport)
        and abs(said.message.oom_kills - time.time() - ahead) < 40
    ]
